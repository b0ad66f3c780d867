"""Forecasts of single visible spins, one step ahead (docs/maths.md, "Model and time indices", has the model).

The state s(t+1) is forecast from s(t) and s(t-1). Nothing is known of the hidden spins but their prior given s(t-1),
in which they are independent:

    P(s_i(t+1) = ±1) = Σ_σ P(σ) / (1 + x_i(σ)^±1)        x_i(σ) = e^{-2 θ_i} Π_b e^{-2 K_ib σ_b}

The sum runs over all 2^Nh states where these are few. Beyond, it is a mean over draws of σ. They come in antithetic
pairs, from uniform numbers u and 1-u: x_i is monotone in each u, so that the two never err alike, and the standard
error of a forecast is at most 1/(2 √DRAWS) = 0.008.

With couplings M among hidden spins the past says more about σ(t): P(σ(t) | s(≤t)) from the forward recursion stands in
the place of the prior.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from kising.arrays import holds_arrays
from kising.estimators.chunks import fields
from kising.estimators.exact.paths import predicted
from kising.estimators.parallel import in_order
from kising.estimators.paths import enumerated, sampled
from kising.estimators.paths.enumerated import can_enumerate
from kising.estimators.registry import entry
from kising.estimators.slices import Slices, as_slices
from kising.estimators.steps import Steps
from kising.kernels.counter import key_of, philox, uniform
from kising.kernels.jit import kernel
from kising.model import Array, Couplings, Spins
from kising.seeds import Seed

# Up to this many hidden spins their states are summed over: the sum then costs no more than the draws.
LARGEST_ENUMERATION = 12
DRAWS = 4096
# Hidden spins whose effect on all visible spins is looked up together, where states are drawn.
GROUPED = 8
# Slices whose states are held at once.
PIECE = 64
# The logarithm up to which x stays within floating point.
LARGEST_EXPONENT = 600.0
# Word of the counter's last place: what a number is for. Those of estimator `gibbs` are 0 to 2.
FORECAST = 3

States = npt.NDArray[np.uint16]


@holds_arrays
class Forecasts(NamedTuple):
    """What is expected of the visible spins; row k is about time step k+2 of the recording."""

    up: Array
    """P(s_i = +1), (T-2, Nv)"""
    down: Array
    """P(s_i = -1), (T-2, Nv): 1 - up, without its rounding errors"""


def forecasts(couplings: Couplings, recording: Slices | Spins, *, seed: Seed, threads: int = 1) -> Forecasts:
    """Forecasts of all steps of a checked recording but the first two; `seed` is that of the draws, if any."""
    key = key_of(seed)
    slices = as_slices(recording)
    couplings = couplings.without_zero_M
    hidden = couplings.K.shape[1]
    coupled = couplings.couples_slices
    if slices.has_gaps or (coupled and hidden > (entry("exact").largest_coupled or 0)):
        return _followed(couplings, slices, seed, threads)
    filtered = predicted(couplings, slices, threads=threads)[~Steps.of(slices).begins] if coupled else None
    drawn = hidden > LARGEST_ENUMERATION
    bounds = [min(k, hidden) for k in range(0, hidden + GROUPED, GROUPED)] if drawn else [0, hidden]
    groups = [slice(a, b) for a, b in pairwise(bounds)]
    largest = LARGEST_EXPONENT / (len(groups) + 1)
    tables = _tables(couplings.K, groups, largest)

    def work(part: slice) -> Forecasts:
        chunk = fields(couplings, slices, part)
        x = np.exp(np.clip(-2.0 * chunk.theta, -largest, largest))
        prior = expit(2.0 * chunk.b)
        found = Forecasts(np.empty_like(x), np.empty_like(x))
        for start in range(0, len(x), PIECE):
            piece = slice(start, min(start + PIECE, len(x)))
            n = piece.stop - piece.start
            if drawn:
                states = np.zeros((n, DRAWS, len(groups)), np.uint16)
                _draw(prior[piece], part.start + start, key, states)
                weights = np.full((1, DRAWS), 1.0 / DRAWS)
            else:
                states = np.arange(2**hidden, dtype=np.uint16).reshape(1, -1, 1)
                steps = slice(part.start + piece.start, part.start + piece.stop)
                weights = _weights(prior[piece]) if filtered is None else filtered[steps]
            _average(x[piece], tables, states, weights, found.up[piece], found.down[piece])
        return found

    parts = list(in_order(work, len(slices), threads))
    return Forecasts(*(np.concatenate(x) for x in zip(*parts, strict=True)))


def forecast_log_likelihood(found: Forecasts, recording: Slices | Spins) -> Array:
    """Σ_i log P(s_i) of what then happened, as far as that is known, nats, for each row of the forecasts: (T-2,)."""
    after = as_slices(recording).after
    logs = np.log(np.where(after > 0, found.up, found.down))
    nats: Array = np.sum(np.where(after == 0, 0.0, logs), axis=1)
    return nats


def _followed(couplings: Couplings, slices: Slices, seed: Seed, threads: int) -> Forecasts:
    """With missing entries or many coupled hidden spins: by sums over all unknown spins where these are few at a time,
    else by particles.
    """
    if slices.has_gaps and can_enumerate(couplings, slices):
        up = enumerated.forecast(couplings, slices)
    else:
        up = sampled.forecast(couplings, slices, seed=seed, threads=threads)
    up = up[~Steps.of(slices).begins]
    return Forecasts(up, 1.0 - up)


def _tables(K: Array, groups: list[slice], largest: float) -> Array:
    """e^{-2 Σ_b K_ib σ_b} over the spins b of a group, for each of its states: (groups, states, Nv). Bit k of a state
    is set where spin k of the group is +1.
    """
    size = max(group.stop - group.start for group in groups)
    signs = np.where((np.arange(2**size)[:, None] >> np.arange(size)) & 1, 1.0, -1.0)
    effects = [signs[:, : group.stop - group.start] @ K[:, group].T for group in groups]
    return np.exp(np.clip(-2.0 * np.array(effects), -largest, largest))


def _weights(prior: Array) -> Array:
    """The prior probability of every state of the hidden spins, (n, 2^Nh), numbered as in `_tables`."""
    weights = np.ones((len(prior), 1))
    for up in prior.T:
        weights = np.hstack([weights * (1.0 - up)[:, None], weights * up[:, None]])
    return weights


@kernel
def _draw(prior: Array, first: int, key: np.uint64, states: States) -> None:
    """States from the prior; draws 2k and 2k+1 use the same random numbers, u and 1-u."""
    n, nh = prior.shape
    for t in range(n):
        for pair in range(states.shape[1] // 2):
            for quarter in range((nh + 3) // 4):
                place = np.uint64(pair) << np.uint64(16) | np.uint64(quarter)
                words = philox(key, np.uint64(first + t), place, np.uint64(0), np.uint64(FORECAST))
                for k in range(min(4, nh - 4 * quarter)):
                    a = 4 * quarter + k
                    bit = np.uint16(1 << (a % GROUPED))
                    u = uniform(words[k])
                    if u < prior[t, a]:
                        states[t, 2 * pair, a // GROUPED] |= bit
                    if 1.0 - u < prior[t, a]:
                        states[t, 2 * pair + 1, a // GROUPED] |= bit


@kernel
def _average(x: Array, tables: Array, states: States, weights: Array, up: Array, down: Array) -> None:
    """The weighted sums over states. States and weights that all slices share are given once."""
    n, nv = x.shape
    ratio = np.empty(nv)
    for t in range(n):
        mine, weighted = t % states.shape[0], t % weights.shape[0]
        for i in range(nv):
            up[t, i] = 0.0
            down[t, i] = 0.0
        for k in range(states.shape[1]):
            for i in range(nv):
                ratio[i] = x[t, i] * tables[0, states[mine, k, 0], i]
            for group in range(1, tables.shape[0]):
                for i in range(nv):
                    ratio[i] *= tables[group, states[mine, k, group], i]
            weight = weights[weighted, k]
            for i in range(nv):
                likely = weight / (1.0 + ratio[i])
                up[t, i] += likely
                down[t, i] += ratio[i] * likely
