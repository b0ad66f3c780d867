"""Exact averages of recordings with missing entries, where few spins are unknown at a time: what estimator `exact` does
about gaps.
"""

import numpy as np

from kising.errors import InputError
from kising.estimators.estep import EStep
from kising.estimators.gradient import Gradient
from kising.estimators.moments import Averages
from kising.estimators.paths.enumeration import (
    MOST_OPERATIONS,
    MOST_UNKNOWN,
    Enumerated,
    enumerate_paths,
    is_feasible,
    unknown_counts,
)
from kising.estimators.paths.gradients import gradient_of
from kising.estimators.paths.timeline import Timeline
from kising.estimators.slices import Slices
from kising.model import Array, Couplings


def gradient(couplings: Couplings, slices: Slices, estep: EStep, *, threads: int) -> Gradient:
    """The gradient of the mean over steps of log P(known spins at t+1 | known spins before)."""
    timeline, found = _enumerated(couplings, slices)
    n = int(np.sum(timeline.sources))
    return gradient_of(found.sums, n, float(np.sum(found.log_likelihood)), couplings)


def moments(
    couplings: Couplings,
    slices: Slices,
    estep: EStep,
    *,
    threads: int,
    keep_pairs: bool,
) -> Averages:
    """Averages given all that was seen of the segment, of all steps."""
    timeline, found = _enumerated(couplings, slices, keep_pairs=keep_pairs)
    nv, sources = couplings.K.shape[0], timeline.sources
    return Averages(
        m=found.expected[sources, :nv],
        mu=found.mean[sources, nv:],
        pair=found.pair[sources] if keep_pairs else found.pair,
        in_time=found.in_time[sources] if keep_pairs else found.in_time,
        log_likelihood=found.log_likelihood[1:][sources[:-1]],
    )


def hidden_means(couplings: Couplings, slices: Slices, estep: EStep) -> Array:
    """⟨σ_a(t)⟩ given all that is known, of all steps, (n, Nh)"""
    timeline, found = _enumerated(couplings, slices)
    return found.mean[timeline.sources, couplings.K.shape[0] :]


def log_likelihood(couplings: Couplings, slices: Slices, estep: EStep, *, threads: int) -> Array:
    """log P(known spins at t+1 | known spins before) of all steps, nats, (n,)"""
    timeline, found = _enumerated(couplings, slices)
    return found.log_likelihood[1:][timeline.sources[:-1]]


def forecast(couplings: Couplings, slices: Slices) -> Array:
    """P(s_i(t+1) = +1 | known spins before) of all steps, (n, Nv)"""
    timeline, found = _enumerated(couplings, slices)
    return found.forecast[1:][timeline.sources[:-1], : couplings.K.shape[0]]


def means(couplings: Couplings, slices: Slices) -> Array:
    """⟨z_k(t)⟩ of all time steps and all spins given what is known, (T, N)"""
    return _enumerated(couplings, slices)[1].mean


def can_enumerate(couplings: Couplings, slices: Slices) -> bool:
    """Whether few enough spins are unknown at a time."""
    return is_feasible(Timeline.of(slices), couplings.K.shape[1])


def _enumerated(
    couplings: Couplings, slices: Slices, *, keep_pairs: bool = False
) -> tuple[Timeline, Enumerated]:
    timeline = Timeline.of(slices)
    check(timeline, couplings.K.shape[1])
    return timeline, enumerate_paths(timeline.network(couplings), timeline, keep_pairs=keep_pairs)


def check(timeline: Timeline, hidden: int) -> None:
    """An InputError where too many spins are unknown at a time."""
    if not is_feasible(timeline, hidden):
        most = int(unknown_counts(timeline, hidden).max())
        raise InputError(
            "estimator exact sums over all states of the unknown spins of a time step, hidden and missing ones. Here "
            f"there are up to {most} of them, which is too many: allowed are up to {MOST_UNKNOWN}, and "
            f"{MOST_OPERATIONS:,} operations per step on average; use estimator gibbs"
        )
