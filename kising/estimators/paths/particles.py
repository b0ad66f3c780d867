"""Forecasts where unknown spins are too many to sum over: a cloud of states that follows the recording.

Every particle is a state of all spins that agrees with what is known. At each step particles move by the dynamics; the
mean of their chances of +1 is the forecast of the next step. Then those that foresaw the known spins well are
multiplied at the expense of the others (systematic resampling). The mean of a particle's chance of all known spins is
an unbiased estimate of P(known spins | all before).
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kising.estimators.parallel import one_blas_thread
from kising.estimators.paths.network import LARGEST_FIELD, Network
from kising.estimators.paths.timeline import Timeline
from kising.model import Array
from kising.seeds import Seed, as_numbers, random_stream

PARTICLES = 1024


class Followed(NamedTuple):
    """What particles foresaw."""

    forecast: Array
    """P(s_i(t) = +1) given what is known before t, (T, Nv); NaN at the first step of a segment"""
    log_likelihood: Array
    """log P of what is known at t given what is known before, (T,), nats; 0 at the first step of a segment"""


def follow(
    network: Network, timeline: Timeline, *, seed: Seed, particles: int = PARTICLES, threads: int = 1
) -> Followed:
    """Forecasts of all steps but the first of every segment."""
    T, nv = timeline.spins.shape
    found = Followed(np.full((T, nv), np.nan), np.zeros(T))
    numbers = as_numbers(seed)
    first = (numbers,) if isinstance(numbers, int) else numbers

    def work(segment: tuple[int, tuple[int, int]]) -> None:
        k, (start, stop) = segment
        _follow_segment(network, timeline, start, stop, random_stream((*first, k)), particles, found)

    segments = list(enumerate(pairwise(timeline.bounds.tolist())))
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, segments))
    return found


def _follow_segment(
    network: Network,
    timeline: Timeline,
    start: int,
    stop: int,
    rng: np.random.Generator,
    particles: int,
    found: Followed,
) -> None:
    nv, n_units = network.visible, len(network.bias)
    outside = network.bias + timeline.inputs[start:stop] @ network.sensitivity.T
    weights = np.ascontiguousarray(network.weights.T)
    known = np.zeros((stop - start, n_units), np.bool_)
    known[:, :nv] = ~timeline.missing[start:stop] if len(timeline.missing) else True
    z = np.where(rng.random((particles, n_units)) < 0.5, -1.0, 1.0)
    z[:, :nv][:, known[0, :nv]] = timeline.spins[start][known[0, :nv]]
    for t in range(1, stop - start):
        field = np.clip(z @ weights + outside[t - 1], -LARGEST_FIELD, LARGEST_FIELD)
        up = 1.0 / (1.0 + np.exp(-2.0 * field))
        found.forecast[start + t] = up[:, :nv].mean(axis=0)
        seen = np.flatnonzero(known[t])
        signed = field[:, seen] * timeline.spins[start + t, seen]
        logs = -np.sum(np.log1p(np.exp(-2.0 * signed)), axis=1)
        top = logs.max()
        chances = np.exp(logs - top)
        found.log_likelihood[start + t] = top + np.log(chances.mean())
        edges = np.cumsum(chances)
        chosen = np.searchsorted(edges, (np.arange(particles) + rng.random()) * (edges[-1] / particles))
        chosen = np.minimum(chosen, particles - 1)
        z = np.where(rng.random((particles, n_units)) < up[chosen], 1.0, -1.0)
        z[:, seen] = timeline.spins[start + t, seen]
