"""The accuracy of an estimator at given couplings: against the true hidden states, and against exact averages."""

from collections.abc import Iterator
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from kising.estimators.averaging import each_chunk
from kising.estimators.chunks import Chunk, Estimate, cut
from kising.estimators.estep import EStep
from kising.estimators.gibbs.chains import Errors
from kising.estimators.moments import inner_averages
from kising.estimators.slices import as_slices
from kising.estimators.totals import add_up
from kising.model import Array, Couplings, Recording, as_couplings
from kising.options import Learner


class Assessment(NamedTuple):
    """The accuracy of an estimator at given couplings. Means are over slices and units."""

    converged: float
    """fraction of slices whose iteration reached its tolerance"""
    corrected: float
    """fraction of pair averages that passed ±1 and were replaced"""
    log_likelihood: float
    """mean of log P_t, nats per slice"""
    overlap: float
    """mean of σ_a(t) sign μ_a(t)"""
    rmse_m: float | None
    """root mean square difference from the exact ⟨tanh f_i⟩; None where it was not asked for"""
    rmse_mu: float | None
    """the same for ⟨σ_b⟩"""
    rmse_pair: float | None
    """the same for ⟨tanh(f_i) σ_b⟩"""


def assess(
    couplings: Couplings, recording: Recording, estep: EStep, *, against_exact: bool, threads: int = 1
) -> Assessment:
    """Average over hidden spins at the couplings given, and score the averages against the true hidden states."""
    couplings = as_couplings(couplings).lean
    if as_slices(recording.visible).coupled_by(couplings):
        return _assess_paths(couplings, recording, estep, against_exact=against_exact, threads=threads)
    visible, hidden = recording
    n_slices = len(visible) - 2
    sums = np.zeros(7)

    def count(chunk: Chunk, estimate: Estimate, _: Errors | None) -> tuple[Array, Estimate]:
        counts = [
            np.sum(estimate.converged),
            np.sum(estimate.corrected),
            np.sum(add_up(chunk, estimate).log_likelihood),
        ]
        return np.array(counts, dtype=np.float64), estimate

    ours = each_chunk(couplings, visible, estep, count, keep_pairs=against_exact, threads=threads)
    judge: Iterator[Any] = repeat(None)
    if against_exact:
        exact_estep = EStep.of(Learner(estimator="exact"), hidden.shape[1])
        judge = each_chunk(
            couplings, visible, exact_estep, lambda chunk, e, _: e, keep_pairs=True, threads=threads
        )
    for part, (counts, estimate), truth in zip(cut(n_slices), ours, judge, strict=False):
        sums[:3] += counts
        sums[3] += np.sum(np.sign(estimate.mu) * hidden[part.start + 1 : part.stop + 1])
        if truth is not None:
            sums[4] += np.sum((estimate.m - truth.m) ** 2)
            sums[5] += np.sum((estimate.mu - truth.mu) ** 2)
            sums[6] += np.sum((estimate.pair - truth.pair) ** 2)
    return _assessment(sums, couplings, n_slices, against_exact=against_exact)


def _assess_paths(
    couplings: Couplings, recording: Recording, estep: EStep, *, against_exact: bool, threads: int
) -> Assessment:
    """`assess` for networks with M, and for recordings with missing entries."""
    visible, hidden = recording
    slices, truth = as_slices(visible), hidden[1:-1]
    inner, found = inner_averages(couplings, slices, estep, threads=threads, keep_pairs=against_exact)
    squares = [0.0, 0.0, 0.0]
    if against_exact:
        exact = EStep.of(Learner(estimator="exact"), hidden.shape[1], gaps=slices.has_gaps)
        _, judge = inner_averages(couplings, slices, exact, threads=threads, keep_pairs=True)
        pairs = ((found.m, judge.m), (found.mu, judge.mu), (found.pair, judge.pair))
        squares = [float(np.sum((x[inner] - y[inner]) ** 2)) for x, y in pairs]
    n = len(slices)
    overlap = np.sum(np.sign(found.mu[inner]) * truth)
    sums = np.array([n, 0.0, np.sum(found.log_likelihood[inner]), overlap, *squares])
    return _assessment(sums, couplings, n, against_exact=against_exact)


def _assessment(sums: Array, couplings: Couplings, n_slices: int, *, against_exact: bool) -> Assessment:
    """Sums over slices and units as means."""
    nv, nh = couplings.K.shape
    means = sums / n_slices / np.maximum([1, nv * nh, 1, nh, nv, nh, nv * nh], 1)
    errors = [float(np.sqrt(x)) if against_exact else None for x in means[4:]]
    return Assessment(*(float(x) for x in means[:4]), *errors)
