"""Moments of the hidden spins, slice by slice: `infer`."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kising.arguments import INFER
from kising.arrays import holds_arrays
from kising.cores import check_threads
from kising.estimators.averaging import each_chunk
from kising.estimators.chunks import Chunk, Estimate
from kising.estimators.estep import EStep
from kising.estimators.gibbs.chains import Errors
from kising.estimators.sampling import Sampling
from kising.estimators.slices import Slices, as_slices, slices_of
from kising.estimators.steps import Steps
from kising.estimators.totals import add_up
from kising.model import Array, Couplings, Spins, as_couplings
from kising.seeds import Seed


@holds_arrays
class Moments(NamedTuple):
    """Averages over the hidden spins, given the visible ones; slice k is centred on time step k+1 of the
    recording.
    """

    m: Array
    """⟨tanh f_i⟩, (T-2, Nv)"""
    mu: Array
    """⟨σ_b⟩, (T-2, Nh)"""
    pair: Array
    """⟨tanh(f_i) σ_b⟩, (T-2, Nv, Nh)"""
    log_likelihood: Array
    """log P_t, nats, (T-2,): exact, or approximate as the estimator's registry entry says"""
    converged: npt.NDArray[np.bool_]
    """whether the slice's iteration reached its tolerance, (T-2,)"""
    iterations: npt.NDArray[np.int64]
    """how many iterations it took, (T-2,)"""
    corrected: npt.NDArray[np.int64]
    """how many of the slice's Nv Nh pair averages passed ±1 and were replaced, (T-2,)"""


@holds_arrays
class SampledMoments(Moments):
    """Moments from an estimator that samples."""

    errors: Errors
    """standard errors of m, mu, pair and log_likelihood, from sampling"""


@holds_arrays
class PathMoments(Moments):
    """Moments of a network with couplings M among hidden spins: given all visible spins of the segment. The
    log-likelihood is log P(s(t+1) | s(≤t)).
    """

    in_time: Array
    """⟨σ_a(t+1) σ_b(t)⟩, (T-2, Nh, Nh), t the step that the slice is centred on; zero in the last slice of a segment,
    for σ(t+1) acts on nothing that was seen"""


class Averages(NamedTuple):
    """What an estimator finds of all steps of a recording, for networks with M: one row per step (`steps.py`)."""

    m: Array
    """⟨tanh f_i⟩, (n, Nv)"""
    mu: Array
    """⟨σ_a(t)⟩, (n, Nh)"""
    pair: Array
    """⟨tanh(f_i) σ_b(t)⟩, (n, Nv, Nh), or (0, Nv, Nh) where pairs are not kept"""
    in_time: Array
    """⟨σ_a(t+1) σ_b(t)⟩, (n, Nh, Nh), or (0, Nh, Nh)"""
    log_likelihood: Array
    """log P(s(t+1) | s(≤t)), nats, (n,)"""


@INFER.taken_by
def infer(
    couplings: Couplings,
    visible: npt.ArrayLike | Slices,
    *,
    covariates: npt.ArrayLike | None = None,
    sweeps: int = Sampling.sweeps,
    seed: Seed | None = None,
    threads: int = 1,
    **options: Any,
) -> Moments:
    """Average over the hidden spins of every slice of a recording, at the couplings given.

    `covariates` are the inputs of a network that has any. `sweeps` and `seed` are for estimators that sample.
    """
    threads = check_threads(threads)
    couplings, slices, estep = checked(
        couplings, visible, covariates, options, "infer", sweeps=sweeps, seed=seed
    )
    couplings = couplings.lean
    if slices.coupled_by(couplings):
        return _path_moments(couplings, slices, estep, threads)

    def moments(chunk: Chunk, estimate: Estimate, errors: Errors | None) -> tuple[Moments, Errors | None]:
        found = Moments(
            estimate.m,
            estimate.mu,
            estimate.pair,
            add_up(chunk, estimate).log_likelihood,
            estimate.converged,
            estimate.iterations,
            estimate.corrected,
        )
        return found, errors

    parts, errors = zip(
        *each_chunk(couplings, slices, estep, moments, keep_pairs=True, threads=threads), strict=True
    )
    arrays = [np.concatenate(x) for x in zip(*parts, strict=True)]
    if errors[0] is None:
        return Moments(*arrays)
    sampled = SampledMoments(*arrays)
    sampled.errors = Errors(*(np.concatenate(x) for x in zip(*errors, strict=True)))
    return sampled


def _path_moments(couplings: Couplings, slices: Slices, estep: EStep, threads: int) -> PathMoments:
    inner, found = inner_averages(couplings, slices, estep, threads=threads, keep_pairs=True)
    n = len(slices)
    moments = PathMoments(
        m=found.m[inner],
        mu=found.mu[inner],
        pair=found.pair[inner],
        log_likelihood=found.log_likelihood[inner],
        converged=np.ones(n, dtype=np.bool_),
        iterations=np.ones(n, dtype=np.int64),
        corrected=np.zeros(n, dtype=np.int64),
    )
    moments.in_time = found.in_time[inner]
    return moments


def inner_averages(
    couplings: Couplings, slices: Slices, estep: EStep, *, threads: int, keep_pairs: bool
) -> tuple[npt.NDArray[np.bool_], Averages]:
    """The averages where slices depend on each other, and which rows of them are those of slices."""
    code = estep.estimator.path_code(gaps=slices.has_gaps)
    found: Averages = code.moments(couplings, slices, estep, threads=threads, keep_pairs=keep_pairs)
    return ~Steps.of(slices).begins, found


def hidden_means(couplings: Couplings, slices: Slices, estep: EStep) -> Array:
    """⟨σ_a(t)⟩ of all steps where slices depend on each other, (n, Nh)"""
    code = estep.estimator.path_code(gaps=slices.has_gaps)
    found: Array = code.hidden_means(couplings, slices, estep)
    return found


def checked(
    couplings: Couplings,
    visible: npt.ArrayLike | Slices,
    covariates: npt.ArrayLike | None,
    options: dict[str, Any],
    function: str,
    *,
    sweeps: int,
    seed: Seed | None,
) -> tuple[Couplings, Slices, EStep]:
    """The arguments of a function that makes E-steps, checked."""
    couplings = as_couplings(couplings)
    nv, nh = couplings.K.shape
    coupled = bool(couplings.M.any())
    others = {"model.visible": nv, "model.hidden": nh, "model.hidden_coupling": float(coupled)}
    learner = INFER.learner(options, others, function=function)
    slices = visible if isinstance(visible, Slices) else slices_of(visible, couplings, covariates)[0]
    sampling = Sampling(sweeps=sweeps, seed=seed)
    return couplings, slices, EStep.of(learner, nh, sampling, coupled=coupled, gaps=slices.has_gaps)


def marginals(couplings: Couplings, recording: Slices | Spins, estep: EStep) -> Array:
    """⟨σ_b⟩ of every slice, (T-2, Nh), for arguments that were checked before."""
    slices = as_slices(recording)
    if slices.coupled_by(couplings):
        steps = hidden_means(couplings, slices, estep)
        return steps[~Steps.of(slices).begins]

    def mu(chunk: Chunk, estimate: Estimate, errors: Errors | None) -> Array:
        return estimate.mu

    return np.concatenate(list(each_chunk(couplings, recording, estep, mu, keep_pairs=False, threads=1)))
