"""Exact averages where few spins are unknown at a time: sums over all their states, carried through time.

At every step t the unknown spins, hidden and missing ones, have 2^n(t) states. With e(x) = P(known spins at t+1 | x)

    α(x') = Σ_x α(x) e(x) P(x'|x)          β(x) = e(x) Σ_x' P(x'|x) β(x')          P(x | all) ∝ α(x) β(x)

from α = 2^-n at the first step of a segment. The normaliser of α at every step is the chance of what is known then,
given all that is known before. A step costs about 2^n(t) (4 N + 2^n(t+1)) operations.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.estimators.paths.network import Network
from kising.estimators.paths.statistics import Complete
from kising.estimators.paths.timeline import Timeline
from kising.kernels.jit import kernel
from kising.model import Array, Spins

# No step may have more unknown spins than this, and all steps together at most this many operations per step.
MOST_UNKNOWN = 12
MOST_OPERATIONS = 10_000
# Up to this field, both 1/(1+e^{2H}) and 1 minus it are numbers other than 0 and 1.
LARGEST_FIELD = 17.5
# A product of chances goes on until it is smaller than this.
TINY = 1e-100

Counts = npt.NDArray[np.int64]


class Enumerated(NamedTuple):
    """What the sums give."""

    log_likelihood: Array
    """log P of what is known at step t, given all known before; 0 at the first step of a segment, (T,), nats"""
    mean: Array
    """⟨z_k(t)⟩ given all that is known, (T, N); NaN for the hidden spins of the last step of a segment"""
    forecast: Array
    """P(z_k(t) = +1) given all that is known before t, (T, N); NaN at the first step of a segment"""
    expected: Array
    """⟨tanh H_k(t+1)⟩ given all that is known, (T, N); NaN at the last step of a segment"""
    pair: Array
    """⟨tanh(H_i(t+1)) σ_b(t)⟩ of visible spins i, (T, Nv, Nh), or (0, Nv, Nh) where it is not kept; NaN as above"""
    in_time: Array
    """⟨σ_a(t+1) σ_b(t)⟩, (T, Nh, Nh), or (0, Nh, Nh); 0 where σ(t+1) acts on nothing"""
    sums: Complete
    """averages of the sums over steps, given all that is known"""


def unknown_counts(timeline: Timeline, hidden: int) -> Counts:
    """n(t), the number of unknown spins of every step that act on something or are missing, (T,)."""
    counts = np.full(len(timeline.spins), hidden, np.int64)
    counts[timeline.bounds[1:] - 1] = 0
    if len(timeline.summed):
        counts += timeline.summed.sum(axis=1)
    return counts


def is_feasible(timeline: Timeline, hidden: int) -> bool:
    """Whether few enough spins are unknown."""
    counts = unknown_counts(timeline, hidden)
    if counts.max() > MOST_UNKNOWN:
        return False
    later = np.append(counts[1:], 0)
    operations = 2.0**counts * (4.0 * (timeline.spins.shape[1] + hidden) + 2.0**later)
    return bool(operations.mean() <= MOST_OPERATIONS)


def enumerate_paths(network: Network, timeline: Timeline, *, keep_pairs: bool = False) -> Enumerated:
    """Exact averages of a recording with few unknown spins at a time."""
    nv, nh, kept = network.visible, network.hidden, len(timeline.spins) if keep_pairs else 0
    T, n_units, p = len(timeline.spins), len(network.bias), timeline.inputs.shape[1]
    unknown = unknown_counts(timeline, network.hidden)
    weights = np.hstack([network.weights, network.bias[:, None], network.sensitivity])
    found = Enumerated(
        np.zeros(T),
        np.full((T, n_units), np.nan),
        np.full((T, n_units), np.nan),
        np.full((T, n_units), np.nan),
        np.full((kept, nv, nh), np.nan),
        np.zeros((kept, nh, nh)),
        Complete(
            np.zeros((n_units, n_units + 1 + p)),
            np.zeros((n_units + 1 + p, network.hidden)),
            np.zeros(n_units),
            np.zeros(n_units),
        ),
    )
    states = np.ones((T, n_units), np.int8)
    states[:, : network.visible] = timeline.spins
    for start, stop in pairwise(timeline.bounds.tolist()):
        offsets = np.concatenate([[0], np.cumsum(2 ** unknown[start:stop])])
        _sum_segment(
            weights,
            network.visible,
            states[start:stop],
            timeline.inputs[start:stop],
            timeline.missing[start:stop],
            timeline.summed[start:stop],
            offsets,
            found.log_likelihood[start:stop],
            found.mean[start:stop],
            found.forecast[start:stop],
            found.expected[start:stop],
            found.pair[start:stop],
            found.in_time[start:stop],
            *found.sums,
        )
    if timeline.memoryless:
        # Nothing depends on J and L.
        found.sums.score[:, :nv] = 0.0
        found.sums.with_hidden[:nv] = 0.0
    return found


@kernel
def _unknown_units(
    t: int, last: int, n_units: int, nv: int, summed: npt.NDArray[np.bool_], units: Counts
) -> int:
    """The unknown spins of a step that are summed over; returns how many there are."""
    n = 0
    for u in range(n_units):
        if (u >= nv and t < last) or (u < nv and summed.shape[0] > 0 and summed[t, u]):
            units[n] = u
            n += 1
    return n


@kernel
def _chances_of_up(weights: Array, x: Array, units: Counts, n: int, up: Array) -> None:
    """P(z_k = +1) of all spins for every state of the unknown ones at the step before, row by row of `up`; `x` is
    (z, 1, u) at that step, and its unknown entries are set to -1.
    """
    n_units = weights.shape[0]
    for k in range(n):
        x[units[k]] = -1.0
    for k in range(n_units):
        up[0, k] = 0.0
        for j in range(weights.shape[1]):
            up[0, k] += weights[k, j] * x[j]
    for bit in range(n):
        for state in range(1 << bit):
            for k in range(n_units):
                up[(1 << bit) + state, k] = up[state, k] + 2.0 * weights[k, units[bit]]
    for state in range(1 << n):
        for k in range(n_units):
            field = min(max(up[state, k], -LARGEST_FIELD), LARGEST_FIELD)
            up[state, k] = 1.0 / (1.0 + np.exp(-2.0 * field))


@kernel
def _known_log(up: Array, after: Spins, is_unknown: npt.NDArray[np.bool_]) -> float:
    """log P of the known spins."""
    total, product = 0.0, 1.0
    for k in range(up.shape[0]):
        if not is_unknown[k]:
            product *= up[k] if after[k] > 0 else 1.0 - up[k]
            if product < TINY:
                total += np.log(product)
                product = 1.0
    return float(total + np.log(product))


@kernel
def _chances(up: Array, units: Counts, n: int, chances: Array) -> None:
    """P of all 2^n states of some spins; bit k of a state is set where spin k of them is +1."""
    chances[0] = 1.0
    for k in range(n):
        size = 1 << k
        for state in range(size):
            chances[size + state] = chances[state] * up[units[k]]
            chances[state] *= 1.0 - up[units[k]]


@kernel
def _set_inputs(x: Array, states: Spins, inputs: Array, t: int) -> None:
    n_units = states.shape[1]
    for k in range(n_units):
        x[k] = states[t, k]
    x[n_units] = 1.0
    for j in range(inputs.shape[1]):
        x[n_units + 1 + j] = inputs[t, j]


@kernel
def _sum_segment(
    weights: Array,
    nv: int,
    states: Spins,
    inputs: Array,
    missing: npt.NDArray[np.bool_],
    summed: npt.NDArray[np.bool_],
    offsets: Counts,
    log_likelihood: Array,
    mean: Array,
    forecast: Array,
    means: Array,
    pair: Array,
    in_time: Array,
    score: Array,
    with_hidden: Array,
    size: Array,
    square: Array,
) -> None:
    T, n_units = states.shape
    last = T - 1
    alpha = np.empty(offsets[T])
    beta = np.empty(offsets[T])
    largest = 1
    for t in range(T):
        largest = max(largest, offsets[t + 1] - offsets[t])
    chances, evidence = np.empty(largest), np.empty(largest)
    units, later = np.empty(n_units, np.int64), np.empty(n_units, np.int64)
    hidden_now = np.zeros(n_units, np.bool_)
    x, up, total = np.empty(weights.shape[1]), np.empty((largest, n_units)), np.empty(n_units)
    for state in range(offsets[1]):
        alpha[state] = 1.0 / offsets[1]
    # Forwards.
    for t in range(last):
        n = _unknown_units(t, last, n_units, nv, summed, units)
        n_later = _unknown_units(t + 1, last, n_units, nv, summed, later)
        for k in range(n_units):
            hidden_now[k] = k >= nv or (missing.shape[0] > 0 and missing[t + 1, k])
            forecast[t + 1, k] = 0.0
        _set_inputs(x, states, inputs, t)
        a, b, c = offsets[t], offsets[t + 1], offsets[t + 2]
        top = -np.inf
        _chances_of_up(weights, x, units, n, up)
        for state in range(b - a):
            for k in range(n_units):
                forecast[t + 1, k] += alpha[a + state] * up[state, k]
            evidence[state] = _known_log(up[state], states[t + 1], hidden_now)
            top = max(top, evidence[state])
        for state in range(b, c):
            alpha[state] = 0.0
        for state in range(b - a):
            _chances(up[state], later, n_later, chances)
            weight = alpha[a + state] * np.exp(evidence[state] - top)
            for after in range(c - b):
                alpha[b + after] += weight * chances[after]
        norm = 0.0
        for state in range(b, c):
            norm += alpha[state]
        for state in range(b, c):
            alpha[state] /= norm
        log_likelihood[t + 1] = top + np.log(norm)
    # Backwards.
    for state in range(offsets[last], offsets[T]):
        beta[state] = 1.0
    for t in range(last, -1, -1):
        n = _unknown_units(t, last, n_units, nv, summed, units)
        a, b = offsets[t], offsets[t + 1]
        if t < last:
            c = offsets[t + 2]
            n_later = _unknown_units(t + 1, last, n_units, nv, summed, later)
            for k in range(n_units):
                hidden_now[k] = k >= nv or (missing.shape[0] > 0 and missing[t + 1, k])
            _set_inputs(x, states, inputs, t)
            _chances_of_up(weights, x, units, n, up)
            for k in range(n_units):
                means[t, k] = 0.0
            if pair.shape[0] > 0:
                pair[t] = 0.0
            norm = 0.0
            for state in range(b - a):
                _chances(up[state], later, n_later, chances)
                reach = 0.0
                for after in range(c - b):
                    reach += chances[after] * beta[b + after]
                evidence[state] = np.exp(
                    _known_log(up[state], states[t + 1], hidden_now) - log_likelihood[t + 1]
                )
                beta[a + state] = evidence[state] * reach
                norm += alpha[a + state] * beta[a + state]
            for state in range(b - a):
                for k in range(n):
                    x[units[k]] = 1.0 if state >> k & 1 else -1.0
                posterior = alpha[a + state] * beta[a + state] / norm
                if posterior == 0.0:
                    continue
                _chances(up[state], later, n_later, chances)
                for k in range(n_units):
                    total[k] = states[t + 1, k]
                reach = 0.0
                for k in range(n_later):
                    total[later[k]] = 0.0
                for after in range(c - b):
                    chance = chances[after] * beta[b + after]
                    reach += chance
                    for k in range(n_later):
                        total[later[k]] += chance if after >> k & 1 else -chance
                for k in range(n_later):
                    total[later[k]] /= reach
                felt = nv if t + 1 == last else n_units
                for k in range(felt):
                    expected = 2.0 * up[state, k] - 1.0
                    residual = posterior * (total[k] - expected)
                    if k < nv and hidden_now[k] and summed.shape[0] == 0:
                        residual = (
                            0.0  # a missing entry on which nothing depends: its mean is what is expected
                        )
                    means[t, k] += posterior * expected
                    size[k] += posterior * abs(expected)
                    square[k] += posterior * expected * expected
                    for j in range(weights.shape[1]):
                        score[k, j] += residual * x[j]
                if pair.shape[0] > 0:
                    for h in range(n_units - nv):
                        for i in range(nv):
                            pair[t, i, h] += posterior * (2.0 * up[state, i] - 1.0) * x[nv + h]
                        for k in range(nv, felt):
                            in_time[t, k - nv, h] += posterior * total[k] * x[nv + h]
                for j in range(weights.shape[1]):
                    for k in range(n_units - nv):
                        with_hidden[j, k] += posterior * x[j] * x[nv + k]
        norm = 0.0
        for state in range(a, b):
            norm += alpha[state] * beta[state]
        for k in range(n_units):
            mean[t, k] = states[t, k] if k < nv and states[t, k] != 0 else np.nan
        for k in range(n):
            mean[t, units[k]] = 0.0
        for state in range(b - a):
            posterior = alpha[a + state] * beta[a + state] / norm
            for k in range(n):
                mean[t, units[k]] += posterior if state >> k & 1 else -posterior
