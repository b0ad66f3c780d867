"""The E-step: moments of the hidden spins slice by slice (`infer`), or summed up (`gradient`)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from kising.errors import InputError
from kising.estimators import meanfield, tap
from kising.estimators.bp import propagation as bp
from kising.estimators.bp.correlations import CODES
from kising.estimators.chunks import Block, Estimate, empty_estimate, fields
from kising.estimators.exact import enumeration as exact
from kising.estimators.gibbs import chains as gibbs
from kising.estimators.gibbs.chains import Chains, Errors, Sampling
from kising.estimators.parallel import in_order
from kising.estimators.totals import add_up
from kising.model import Array, Couplings, Spins, as_couplings, as_spins
from kising.seeds import Seed

ESTIMATORS = ("auto", "exact", "gibbs", "bp", "tap", "mean-field")
# Up to so many hidden spins learning from sums over all their states takes no longer than from samples.
AUTO_EXACT_HIDDEN = 8
CORRELATIONS = tuple(CODES)
PRECISIONS = ("float64", "float32")
Out = TypeVar("Out")


class Moments(NamedTuple):
    """Averages over the hidden spins, given the visible ones; slice k is about time step k+1 of the
    recording.
    """

    m: Array
    """⟨tanh f_i⟩, (T-2, Nv)"""
    mu: Array
    """⟨σ_b⟩, (T-2, Nh)"""
    pair: Array
    """⟨tanh(f_i) σ_b⟩, (T-2, Nv, Nh)"""
    log_likelihood: Array
    """log P_t, nats, (T-2,): exact for `exact`, by importance sampling for `gibbs`, Bethe for `bp`, the free energy
    of the expansion for `tap` and `mean-field`
    """
    converged: npt.NDArray[np.bool_]
    """whether the slice's iteration reached its tolerance, (T-2,)"""
    iterations: npt.NDArray[np.int64]
    """how many iterations it took, (T-2,)"""
    corrected: npt.NDArray[np.int64]
    """how many of the slice's Nv Nh pair averages passed ±1 and were replaced, (T-2,)"""


class SampledMoments(Moments):
    """The same of estimator gibbs."""

    errors: Errors
    """standard errors of m, mu, pair and log_likelihood, from sampling"""


class Gradient(NamedTuple):
    """The gradient of the mean log-likelihood of a slice, and what a learner wants to know besides. Means are
    over slices.
    """

    J: Array
    """mean of (s_i⁺ - m_i) s_j, (Nv, Nv)"""
    K: Array
    """mean of s_i⁺ μ_b - ⟨τ_i σ_b⟩, (Nv, Nh)"""
    L: Array
    """mean of (μ_a - tanh b_a) s_j⁻, (Nh, Nv)"""
    log_likelihood: float
    """mean of log P_t, nats a slice"""
    converged: float
    """fraction of slices whose iteration reached its tolerance"""
    corrected: float
    """fraction of pair averages that passed ±1 and were replaced"""
    iterations: float
    """mean number of E-step iterations a slice"""
    abs_m: float
    """mean of |m_i|"""
    abs_mu: float
    """mean of |μ_b|"""
    abs_pair: float
    """mean of |⟨τ_i σ_b⟩|; of gibbs, that of single sweeps"""
    freedom_visible: Array
    """mean of 1 - m_i², (Nv,): the weight of row i of (J, K) in the complete-data information"""
    freedom_hidden: Array
    """mean of 1 - tanh² b_a, (Nh,): the weight of row a of L"""
    visible_hidden: Array
    """mean of s_j μ_b, (Nv, Nh)"""
    hidden_hidden: Array
    """mean of ⟨σ_a σ_b⟩ with σ_a, σ_b taken as independent within a slice, (Nh, Nh)"""


@dataclass(frozen=True, kw_only=True)
class EStep:
    """How hidden spins are averaged over."""

    estimator: str = "bp"
    """auto | exact | gibbs | bp | tap | mean-field; auto is exact for few hidden spins, gibbs for more"""
    correlations: str = "closed"
    """for bp: iterated | closed | pair | corrected | iterated-corrected"""
    tolerance: float = 1e-9
    """a slice has converged when the mean square change of its messages is below this"""
    damping: float | None = None
    """share of the old message kept at each iteration; None: undamped first, 0.5 and 0.8 where that does not
    settle
    """
    max_iterations: int = 200
    """iterations after which a slice counts as not converged"""
    precision: str = "float64"
    """for bp: float64 | float32, of the messages; all sums are float64"""
    sampling: Sampling = field(default_factory=Sampling)
    """for gibbs at given couplings: how many sweeps, and their seed"""

    def __post_init__(self) -> None:
        _one_of("estimator", self.estimator, ESTIMATORS)
        _one_of("correlations", self.correlations, CORRELATIONS)
        _one_of("precision", self.precision, PRECISIONS)
        if not self.tolerance >= 0:
            raise InputError(f"tolerance={self.tolerance}: must be 0 or more")
        if self.damping is not None and not 0 <= self.damping < 1:
            raise InputError(
                f"damping={self.damping}: must be at least 0 and below 1, or None for adaptive damping"
            )
        if self.max_iterations < 1:
            raise InputError(f"max_iterations={self.max_iterations}: must be at least 1")

    def resolved(self, hidden: int) -> "EStep":
        """The same with `auto` decided; ValueError for a network that the estimator cannot treat."""
        if self.estimator == "auto":
            return replace(self, estimator="exact" if hidden <= AUTO_EXACT_HIDDEN else "gibbs")
        if self.estimator == "exact":
            exact.check_hidden(hidden)
        return self


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{name}={value!r}: must be one of {', '.join(allowed)}")


def infer(
    couplings: Couplings,
    visible: npt.ArrayLike,
    *,
    estimator: str = "bp",
    correlations: str = "closed",
    tolerance: float = 1e-9,
    damping: float | None = None,
    max_iterations: int = 200,
    precision: str = "float64",
    sweeps: int = 200,
    seed: Seed | None = None,
    threads: int = 1,
) -> Moments:
    """Average over the hidden spins of every slice of a recording, at the couplings given.

    `sweeps` and `seed` are for estimator 'gibbs', which samples.
    """
    couplings = as_couplings(couplings)
    spins = as_spins(visible, width=couplings.J.shape[0])
    estep = EStep(
        estimator=estimator,
        correlations=correlations,
        tolerance=tolerance,
        damping=damping,
        max_iterations=max_iterations,
        precision=precision,
        sampling=Sampling(sweeps=sweeps, seed=seed),
    ).resolved(couplings.K.shape[1])

    def moments(block: Block, estimate: Estimate, errors: Errors | None) -> tuple[Moments, Errors | None]:
        found = Moments(
            estimate.m,
            estimate.mu,
            estimate.pair,
            add_up(block, estimate).log_likelihood,
            estimate.converged,
            estimate.iterations,
            estimate.corrected,
        )
        return found, errors

    parts, errors = zip(
        *each_block(couplings, spins, estep, moments, keep_pairs=True, threads=threads), strict=True
    )
    arrays = [np.concatenate(x) for x in zip(*parts, strict=True)]
    if None in errors:
        return Moments(*arrays)
    sampled = SampledMoments(*arrays)
    sampled.errors = Errors(*(np.concatenate(x) for x in zip(*errors, strict=True)))
    return sampled


def gradient(
    couplings: Couplings,
    visible: npt.ArrayLike,
    *,
    estimator: str = "bp",
    correlations: str = "closed",
    tolerance: float = 1e-9,
    damping: float | None = None,
    max_iterations: int = 200,
    precision: str = "float64",
    sweeps: int = 200,
    seed: Seed | None = None,
    threads: int = 1,
) -> Gradient:
    """The gradient of the mean log-likelihood of a slice; memory does not grow with the length of the
    recording.
    """
    couplings = as_couplings(couplings)
    spins = as_spins(visible, width=couplings.J.shape[0])
    estep = EStep(
        estimator=estimator,
        correlations=correlations,
        tolerance=tolerance,
        damping=damping,
        max_iterations=max_iterations,
        precision=precision,
        sampling=Sampling(sweeps=sweeps, seed=seed),
    ).resolved(couplings.K.shape[1])
    return checked_gradient(couplings, spins, estep, threads=threads)


def checked_gradient(couplings: Couplings, spins: Spins, estep: EStep, *, threads: int) -> Gradient:
    """`gradient` for arguments that were checked and resolved before: a learner calls it at every iteration on
    the same data.
    """
    n_slices = spins.shape[0] - 2
    parts = each_block(couplings, spins, estep, _sums, keep_pairs=False, threads=threads)
    return _mean(parts, n_slices, *couplings.K.shape)


def marginals(couplings: Couplings, spins: Spins, estep: EStep) -> Array:
    """⟨σ_b⟩ of every slice, (T-2, Nh), for arguments that were checked and resolved before."""

    def mu(block: Block, estimate: Estimate, errors: Errors | None) -> Array:
        return estimate.mu

    return np.concatenate(list(each_block(couplings, spins, estep, mu, keep_pairs=False, threads=1)))


def _mean(parts: Iterator[Gradient], n_slices: int, nv: int, nh: int) -> Gradient:
    """The sums of all blocks as means over slices and units."""
    total: list[Any] = list(next(parts))
    for part in parts:
        total = [x + y for x, y in zip(total, part, strict=True)]
    mean = Gradient(*(x / n_slices for x in total))
    return mean._replace(
        corrected=mean.corrected / (nv * nh),
        abs_m=mean.abs_m / nv,
        abs_mu=mean.abs_mu / nh,
        abs_pair=mean.abs_pair / (nv * nh),
    )


def sampled_gradient(
    couplings: Couplings, spins: Spins, chains: Chains, *, key: np.uint64, iteration: int, threads: int
) -> tuple[Gradient, Chains]:
    """The gradient as one sweep of all chains sees it, and the chains after the sweep; `chains` is not changed."""
    nv, nh = couplings.K.shape
    n_slices = spins.shape[0] - 2
    moved = chains.copy()

    def work(part: slice) -> Gradient:
        block = fields(couplings, spins, part)
        out = empty_estimate(part.stop - part.start, nv, nh, keep_pairs=False)
        here = moved[part]
        gibbs.sweep(couplings, block, here, out, first=part.start, key=key, iteration=iteration)
        sigma = here.astype(np.float64)
        return _sums(block, out)._replace(hidden_hidden=sigma.T @ sigma)

    return _mean(in_order(work, n_slices, threads), n_slices, nv, nh), moved


def _sums(block: Block, estimate: Estimate, _: Errors | None = None) -> Gradient:
    mu, n = estimate.mu, len(estimate.mu)
    totals = add_up(block, estimate)
    return Gradient(
        J=totals.surprise.T @ block.now,
        K=block.after.T @ mu - estimate.pair_sum,
        L=totals.hidden_surprise.T @ block.before,
        log_likelihood=float(np.sum(totals.log_likelihood)),
        converged=float(np.sum(estimate.converged)),
        corrected=float(np.sum(estimate.corrected)),
        iterations=float(np.sum(estimate.iterations)),
        abs_m=float(np.sum(totals.abs_m)),
        abs_mu=float(np.sum(totals.abs_mu)),
        abs_pair=float(estimate.pair_abs[0]),
        freedom_visible=n - totals.square_m,
        freedom_hidden=n - totals.square_expected,
        visible_hidden=block.now.T @ mu,
        hidden_hidden=mu.T @ mu + np.diag(n - totals.square_mu),
    )


def each_block(
    couplings: Couplings,
    spins: Spins,
    estep: EStep,
    reduce: Callable[[Block, Estimate, Errors | None], Out],
    *,
    keep_pairs: bool,
    threads: int,
) -> Iterator[Out]:
    """`reduce` of every block in order, computed on `threads` threads; what is computed does not depend on
    how many.
    """
    nv, nh = couplings.K.shape

    def work(part: slice) -> Out:
        block = fields(couplings, spins, part)
        out = empty_estimate(part.stop - part.start, nv, nh, keep_pairs=keep_pairs)
        return reduce(block, out, _fill(couplings, block, out, estep, part.start))

    yield from in_order(work, spins.shape[0] - 2, threads)


def _fill(couplings: Couplings, block: Block, out: Estimate, estep: EStep, first: int) -> Errors | None:
    """The averages of a block, whose first slice is number `first` of the recording; their errors if sampled."""
    damping = -1.0 if estep.damping is None else estep.damping
    cap = estep.max_iterations
    match estep.estimator:
        case "exact":
            exact.estimate(couplings, block, out)
        case "gibbs":
            return gibbs.estimate(couplings, block, out, first=first, sampling=estep.sampling)
        case "bp":
            bp.estimate(
                couplings,
                block,
                out,
                correlations=estep.correlations,
                tolerance=estep.tolerance,
                damping=damping,
                max_iterations=cap,
                precision=estep.precision,
            )
        case "tap":
            tap.estimate(
                couplings, block, out, tolerance=estep.tolerance, damping=damping, max_iterations=cap
            )
        case "mean-field":
            meanfield.estimate(
                couplings, block, out, tolerance=estep.tolerance, damping=damping, max_iterations=cap
            )
    return None
