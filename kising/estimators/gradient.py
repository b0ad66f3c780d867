"""The gradient of the log-likelihood, a mean over slices: what learning asks of E-steps (docs/maths.md, "Learning")."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kising.arguments import INFER
from kising.arrays import holds_arrays
from kising.cores import check_threads
from kising.estimators.averaging import each_chunk
from kising.estimators.chunks import Chunk, Estimate, Weights, empty_estimate
from kising.estimators.estep import EStep
from kising.estimators.gibbs.chains import Chains, Errors, sweep
from kising.estimators.moments import checked
from kising.estimators.parallel import in_order
from kising.estimators.sampling import Sampling
from kising.estimators.slices import Slices, as_slices
from kising.estimators.totals import add_up
from kising.model import Array, Couplings, Spins
from kising.seeds import Seed

# The type of numbers in a sweep: rounding is far below the noise of sampling.
SAMPLED: npt.DTypeLike = np.float32


@holds_arrays
class Gradient(NamedTuple):
    """The gradient of the mean log-likelihood of a slice, and other sums that learning uses. Means are
    over slices.
    """

    J: Array
    """mean of (s_i⁺ - m_i) s_j, (Nv, Nv)"""
    K: Array
    """mean of s_i⁺ μ_b - ⟨τ_i σ_b⟩, (Nv, Nh)"""
    L: Array
    """mean of (μ_a - tanh B_a) s_j⁻, (Nh, Nv)"""
    h: Array
    """mean of s_i⁺ - m_i, (Nv,); empty, as the three below, where a learner leaves it out"""
    b: Array
    """mean of μ_a - tanh B_a, (Nh,)"""
    F: Array
    """mean of (s_i⁺ - m_i) u_k, (Nv, p)"""
    G: Array
    """mean of (μ_a - tanh B_a) u_k⁻, (Nh, p)"""
    M: Array
    """mean of ⟨(σ_a - tanh B_a) σ_b⁻⟩, (Nh, Nh); empty where M is not there"""
    log_likelihood: float
    """mean of log P_t, nats per slice"""
    converged: float
    """fraction of slices whose iteration reached its tolerance"""
    corrected: float
    """fraction of pair averages that passed ±1 and were replaced"""
    iterations: float
    """mean number of E-step iterations per slice"""
    abs_m: float
    """mean of |m_i|"""
    abs_mu: float
    """mean of |μ_b|"""
    abs_pair: float
    """mean of |⟨τ_i σ_b⟩|; with samples, of single sweeps; NaN with M"""
    freedom_visible: Array
    """mean of 1 - m_i², (Nv,): the weight of row i of (J, K) in the complete-data information"""
    freedom_hidden: Array
    """mean of 1 - tanh² b_a, (Nh,): the weight of row a of L"""
    visible_hidden: Array
    """mean of x_j μ_b, x = (s, 1, u) what is known of the inputs of a visible spin, (Nv+q, Nh)"""
    hidden_hidden: Array
    """mean of ⟨σ_a σ_b⟩ with σ_a, σ_b taken as independent within a slice, (Nh, Nh)"""


@INFER.taken_by
def gradient(
    couplings: Couplings,
    visible: npt.ArrayLike | Slices,
    *,
    covariates: npt.ArrayLike | None = None,
    sweeps: int = Sampling.sweeps,
    seed: Seed | None = None,
    threads: int = 1,
    **options: Any,
) -> Gradient:
    """The gradient of the mean log-likelihood per slice; memory does not grow with the length of the recording.

    `covariates` are the inputs of a network that has any. `sweeps` and `seed` are for estimators that sample.
    """
    couplings, slices, estep = checked(
        couplings, visible, covariates, options, "gradient", sweeps=sweeps, seed=seed
    )
    return checked_gradient(couplings.without_zero_M, slices, estep, threads=check_threads(threads))


def checked_gradient(
    couplings: Couplings, recording: Slices | Spins, estep: EStep, *, threads: int
) -> Gradient:
    """`gradient` for arguments that were checked before: a learner calls it at every iteration on the same data.

    Where couplings M among hidden spins are there, or entries are missing, means are over steps (`steps.py`), and the
    log-likelihood is that of whole segments given their first time step.
    """
    slices = as_slices(recording)
    if slices.coupled_by(couplings):
        code = estep.estimator.path_code(gaps=slices.has_gaps)
        found: Gradient = code.gradient(couplings, slices, estep, threads=threads)
        return found

    def sums(chunk: Chunk, estimate: Estimate, _: Errors | None) -> Gradient:
        return _sums(chunk, estimate, couplings)

    parts = each_chunk(couplings, slices, estep, sums, keep_pairs=False, threads=threads)
    return mean_of(parts, len(slices), *couplings.K.shape)


def sampled_gradient(
    couplings: Couplings,
    recording: Slices | Spins,
    chains: Chains,
    *,
    key: np.uint64,
    iteration: int,
    threads: int,
) -> tuple[Gradient, Chains]:
    """The gradient as one sweep of all chains sees it, and the chains after the sweep; `chains` is not changed."""
    nv, nh = couplings.K.shape
    slices = as_slices(recording)
    moved = chains.copy()
    weights = Weights.of(couplings, slices, SAMPLED)

    def work(part: slice) -> Gradient:
        chunk = weights.fields(slices, part)
        out = empty_estimate(part.stop - part.start, nv, nh, keep_pairs=False, dtype=SAMPLED)
        here = moved[part]
        sweep(couplings, chunk, here, out, first=part.start, key=key, iteration=iteration)
        sigma = here.astype(SAMPLED)
        return _sums(chunk, out, couplings, hidden_hidden=sigma.T @ sigma)

    return mean_of(in_order(work, len(slices), threads), len(slices), nv, nh), moved


def mean_of(parts: Iterator[Gradient], n_slices: int, nv: int, nh: int) -> Gradient:
    """The sums of all chunks as means over slices and units."""
    # In double precision, whatever the chunks were summed in.
    total: list[Any] = [x + np.float64(0.0) for x in next(parts)]
    for part in parts:
        total = [x + y for x, y in zip(total, part, strict=True)]
    mean = Gradient(*(x / n_slices for x in total))
    return mean._replace(
        corrected=mean.corrected / max(nv * nh, 1),
        abs_m=mean.abs_m / nv,
        abs_mu=mean.abs_mu / max(nh, 1),
        abs_pair=mean.abs_pair / max(nv * nh, 1),
    )


def _sums(
    chunk: Chunk, estimate: Estimate, couplings: Couplings, hidden_hidden: Array | None = None
) -> Gradient:
    """Sums over the slices of a chunk; ⟨σ_a σ_b⟩ from the averages unless its sum is given."""
    mu, n = estimate.mu, len(estimate.mu)
    totals = add_up(chunk, estimate)
    bias = bool(couplings.h.size)
    J, h, F = apart((chunk.known_now.T @ totals.surprise).T, couplings.h, couplings.F, bias=bias)
    L, b, G = apart((chunk.known_before.T @ totals.hidden_surprise).T, couplings.b, couplings.G, bias=bias)
    if hidden_hidden is None:
        hidden_hidden = mu.T @ mu + np.diag(n - totals.square_mu)
    return Gradient(
        J=J,
        K=chunk.after.T @ mu - estimate.pair_sum,
        L=L,
        h=h,
        b=b,
        F=F,
        G=G,
        M=np.zeros((len(L), 0)),
        log_likelihood=float(np.sum(totals.log_likelihood)),
        converged=float(np.sum(estimate.converged)),
        corrected=float(np.sum(estimate.corrected)),
        iterations=float(np.sum(estimate.iterations)),
        abs_m=float(np.sum(totals.abs_m)),
        abs_mu=float(np.sum(totals.abs_mu)),
        abs_pair=float(estimate.pair_abs[0]),
        freedom_visible=n - totals.square_m,
        freedom_hidden=n - totals.square_expected,
        visible_hidden=chunk.known_now.T @ mu,
        hidden_hidden=hidden_hidden,
    )


def apart(known: Array, biases: Array, sensitivity: Array, *, bias: bool) -> tuple[Array, Array, Array]:
    """The slopes of couplings to known inputs: to spins, to the constant (shaped as the biases), and to inputs."""
    end = known.shape[1] - sensitivity.shape[1]
    return known[:, : end - bias], known[:, end - bias : end].reshape(biases.shape), known[:, end:]
