"""Forecasts where unknown spins are too many to sum over: a cloud of states that follows the recording.

Every particle is a state of all spins that agrees with what is known. With z(t-1) drawn from the dynamics, the mean of
the particles' chances of +1 is the forecast of step t. Then the known spins s(t) are taken into account. At 20 hidden
and 80 visible spins, next to no state that was drawn without s(t) is likely with it. So s(t) comes in by degrees: the
target is

    π_λ(z(t-1)) ∝ P(z(t-1) | z(t-2)) P(known s(t) | z(t-1))^λ          λ from 0 to 1

and at every degree particles that are likely are multiplied at the expense of the others (systematic resampling), and
all are moved by a sweep of Gibbs sampling that leaves π_λ as it is. λ grows by as much as leaves half of the particles
effective. The product over degrees of the mean weights estimates P(known s(t) | all before).

Particles come in batches that never exchange any: the scatter between batches gives standard errors.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.estimators.parallel import one_blas_thread
from kising.estimators.paths.network import LARGEST_FIELD, Network
from kising.estimators.paths.timeline import Mask, Timeline
from kising.estimators.sampling import BATCHES
from kising.kernels.jit import kernel
from kising.model import Array
from kising.seeds import Seed, as_numbers, random_stream

PARTICLES = 512
# States that a forecast is the mean of: several are drawn from the past of every particle, in antithetic pairs.
DRAWS = 4096
# The effective share of particles that a step towards λ = 1 leaves.
EFFECTIVE = 0.5
# Bisections of the next λ.
HALVINGS = 20
# The odds of a state turned over against the state as it is stay within these.
LARGEST_ODDS = 1e150
# Factors whose product stays within floating point.
TOGETHER = 4


class Followed(NamedTuple):
    """What particles foresaw."""

    forecast: Array
    """P(s_i(t) = +1) given what is known before t, (T, Nv); NaN at the first step of a segment"""
    forecast_error: Array
    """its standard error, (T, Nv)"""
    log_likelihood: Array
    """log P of what is known at t given what is known before, (T,), nats; 0 at the first step of a segment"""
    error: float
    """the standard error of the sum of `log_likelihood`, nats"""


class _Cloud(NamedTuple):
    """The particles of a segment at one time step."""

    states: Array
    """z, (N, particles)"""
    own: Array
    """the fields that z was drawn from, (N, particles)"""


def follow(
    network: Network, timeline: Timeline, *, seed: Seed, particles: int = PARTICLES, threads: int = 1
) -> Followed:
    """Forecasts of all steps but the first of every segment; the number of particles is a multiple of `BATCHES`."""
    T, nv = timeline.spins.shape
    forecast, error = np.full((T, nv), np.nan), np.full((T, nv), np.nan)
    logs, by_batch = np.zeros(T), np.zeros((T, BATCHES))
    numbers = as_numbers(seed)
    first = (numbers,) if isinstance(numbers, int) else numbers

    def work(segment: tuple[int, tuple[int, int]]) -> None:
        k, (start, stop) = segment
        part = slice(start, stop)
        known = ~timeline.missing[part] if len(timeline.missing) else np.ones((stop - start, nv), np.bool_)
        outside = network.bias + timeline.inputs[part] @ network.sensitivity.T
        rng = random_stream((*first, k))
        found = _Segment(network, timeline.spins[part], outside, known, rng, particles)
        found.follow(forecast[part], error[part], logs[part], by_batch[part])

    segments = list(enumerate(pairwise(timeline.bounds.tolist())))
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, segments))
    return Followed(forecast, error, logs, float(by_batch.sum(axis=0).std(ddof=1) / np.sqrt(BATCHES)))


class _Segment:
    """One segment, and the particles that follow it."""

    def __init__(
        self,
        network: Network,
        spins: npt.NDArray[np.int8],
        outside: Array,
        known: Mask,
        rng: np.random.Generator,
        particles: int,
    ) -> None:
        self.nv, self.W, self.outside, self.rng = network.visible, network.weights, outside, rng
        self.spins, self.known = spins.astype(np.float64), known
        self.particles = particles
        self.batches = np.arange(particles).reshape(BATCHES, -1)

    def follow(self, forecast: Array, error: Array, logs: Array, by_batch: Array) -> None:
        """Fill in the rows of all steps but the first."""
        n_units = len(self.W)
        cloud = self._drawn(0, np.zeros((n_units, self.particles)))
        for t in range(1, len(self.spins)):
            expected = self._forecast(t, cloud.own)
            forecast[t] = expected.mean(axis=0)
            error[t] = expected.std(axis=0, ddof=1) / np.sqrt(BATCHES)
            cloud, logs[t], by_batch[t] = self._taken_in(t, cloud)
            if t + 1 < len(self.spins):
                cloud = self._drawn(t, self._fields(t, cloud.states))

    def _unknown(self, t: int) -> npt.NDArray[np.int64]:
        unknown = np.ones(len(self.W), np.bool_)
        unknown[: self.nv] = ~self.known[t]
        return np.flatnonzero(unknown)

    def _drawn(self, t: int, own: Array) -> _Cloud:
        """States of step t, from the fields on them."""
        states = np.empty_like(own)
        states[: self.nv] = self.spins[t, :, None]
        unknown = self._unknown(t)
        states[unknown] = _signs(own[unknown], self.rng.random((len(unknown), self.particles)))
        return _Cloud(states, own)

    def _fields(self, t: int, states: Array) -> Array:
        """The fields on all spins at step t."""
        fields: Array = self.W @ states + self.outside[t - 1][:, None]
        return np.clip(fields, -LARGEST_FIELD, LARGEST_FIELD, out=fields)

    def _forecast(self, t: int, own: Array) -> Array:
        """P(s_i(t) = +1) by the particles of every batch, (batches, Nv)."""
        unknown = self._unknown(t - 1)
        known = np.setdiff1d(np.arange(self.nv), unknown)
        repeats = max(1, DRAWS // (2 * self.particles))
        u = self.rng.random((repeats, len(unknown), self.particles))
        both = np.concatenate([_signs(own[unknown], x) for y in u for x in (y, 1.0 - y)], axis=1)
        alike = self.W[: self.nv, known] @ self.spins[t - 1, known] + self.outside[t - 1][: self.nv]
        down = np.exp(-2.0 * (self.W[: self.nv, unknown] @ both + alike[:, None]))
        down += 1.0
        means: Array = (
            np.reciprocal(down, out=down).reshape(self.nv, -1, BATCHES, self.batches.shape[1]).mean((1, 3))
        )
        return means.T

    def _taken_in(self, t: int, cloud: _Cloud) -> tuple[_Cloud, float, Array]:
        """Particles of step t-1 given the known spins of step t too, and log P of these: of all, and by batch."""
        seen, unknown = np.flatnonzero(self.known[t]), self._unknown(t - 1)
        s = self.spins[t, seen]
        # V = e^{-2 s f} of the known spins, and what turning over a spin of step t-1 makes of it.
        V = np.exp(-2.0 * s[:, None] * self._fields(t, cloud.states)[seen])
        turn = np.exp(4.0 * s[:, None] * self.W[np.ix_(seen, unknown)])
        z, own = cloud.states[unknown], cloud.own[unknown]
        logs = np.empty(self.particles)
        reached, total, by_batch = 0.0, 0.0, np.zeros(BATCHES)
        while reached < 1.0:
            _known_logs(V, logs)
            step = _next_step(logs, 1.0 - reached)
            reached = 1.0 if step == 1.0 - reached else reached + step
            top = logs.max()
            weights = np.exp(step * (logs - top))
            total += step * top + np.log(weights.mean())
            each = weights[self.batches]
            by_batch += step * top + np.log(each.mean(axis=1))
            chosen = self._resampled(each)
            z, own, V = z[:, chosen], own[:, chosen], V[:, chosen]
            if len(unknown):
                u = self.rng.random(z.shape)
                _move(z, own, V, turn, 1.0 / turn, reached, u)
        states = cloud.states
        states[unknown] = z
        return _Cloud(states, own), total, by_batch

    def _resampled(self, weights: Array) -> npt.NDArray[np.int64]:
        """Which particles go on, in proportion to their weights, (batches, particles per batch); systematically."""
        n = weights.shape[1]
        chosen = np.empty_like(self.batches)
        for k, row in enumerate(weights):
            edges = np.cumsum(row)
            places = (np.arange(n) + self.rng.random()) * (edges[-1] / n)
            chosen[k] = k * n + np.minimum(np.searchsorted(edges, places, side="right"), n - 1)
        return chosen.ravel()


def _signs(own: Array, u: Array) -> Array:
    """±1 with the chances that fields give, from uniform numbers."""
    return np.where(u * (1.0 + np.exp(-2.0 * own)) < 1.0, 1.0, -1.0)


def _next_step(logs: Array, most: float) -> float:
    """The largest step in λ, up to `most`, with weights e^{step logs} of which enough are effective."""
    centred = logs - logs.max()

    def effective(step: float) -> bool:
        weights = np.exp(step * centred)
        return bool(weights.sum() ** 2 >= EFFECTIVE * len(logs) * np.sum(weights**2))

    if effective(most):
        return most
    low, high = 0.0, most
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(middle) else (low, middle)
    return max(low, most * 2.0**-HALVINGS)


@kernel
def _known_logs(V: Array, logs: Array) -> None:
    """Σ_i log 1/(1 + V_i) of every particle."""
    n, particles = V.shape
    product = np.empty(particles)
    for p in range(particles):
        logs[p] = 0.0
    for first in range(0, n, TOGETHER):
        for p in range(particles):
            product[p] = 1.0
        for i in range(first, min(first + TOGETHER, n)):
            for p in range(particles):
                product[p] *= 1.0 + V[i, p]
        for p in range(particles):
            logs[p] -= np.log(product[p])


@kernel
def _move(z: Array, own: Array, V: Array, turn: Array, back: Array, reached: float, u: Array) -> None:
    """One sweep of Gibbs sampling over the unknown spins; z and V are changed in place."""
    n_seen, n_unknown = turn.shape
    particles = z.shape[1]
    odds, product = np.empty(particles), np.empty(particles)
    for a in range(n_unknown):
        for p in range(particles):
            odds[p] = 1.0
        for first in range(0, n_seen, TOGETHER):
            for p in range(particles):
                product[p] = 1.0
            for i in range(first, min(first + TOGETHER, n_seen)):
                up, down = turn[i, a], back[i, a]
                for p in range(particles):
                    factor = up if z[a, p] > 0.0 else down
                    product[p] *= (1.0 + V[i, p]) / (1.0 + V[i, p] * factor)
            for p in range(particles):
                odds[p] = min(max(odds[p] * product[p], 1.0 / LARGEST_ODDS), LARGEST_ODDS)
        for p in range(particles):
            turned = np.exp(reached * np.log(odds[p]) - 2.0 * z[a, p] * own[a, p])
            # NaN keeps the state as it is.
            product[p] = -1.0 if u[a, p] * (1.0 + turned) < turned else 1.0
        for i in range(n_seen):
            up, down = turn[i, a], back[i, a]
            for p in range(particles):
                factor = up if z[a, p] > 0.0 else down
                V[i, p] *= factor if product[p] < 0.0 else 1.0
        for p in range(particles):
            z[a, p] *= product[p]
