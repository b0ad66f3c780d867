"""Judge of what is sampled along paths: direct sums over all unknown spins of a short recording."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from kising.estimators.paths.network import Network
from kising.estimators.paths.timeline import Timeline


class Sums(NamedTuple):
    sites: list[tuple[int, int]]
    """(step, spin) of every unknown spin that acts on something, or is missing"""
    states: np.ndarray
    """all their states, (2^n, n)"""
    weights: np.ndarray
    """the probability of each, given what is known"""
    log_likelihood: float
    """log P of the known spins, given those of the first step of each segment"""
    scores: np.ndarray
    """Σ_t (z(t+1) - tanh H(t+1)) z(t)ᵀ in each state, (2^n, N, N)"""


def some_network(seed: int, visible: int, hidden: int, *, inputs: int = 0, scale: float = 0.9) -> Network:
    rng = np.random.default_rng(seed)
    n = visible + hidden
    weights = scale * rng.standard_normal((n, n))
    return Network(weights, 0.3 * rng.standard_normal(n), 0.3 * rng.standard_normal((n, inputs)), visible)


def some_steps(
    seed: int, visible: int, lengths: list[int], *, inputs: int = 0, missing: float = 0.0
) -> Timeline:
    rng = np.random.default_rng((seed, 1))
    T = sum(lengths)
    spins = rng.choice(np.array([-1, 1], np.int8), (T, visible))
    gaps = rng.random((T, visible)) < missing if missing else np.zeros((0, visible), bool)
    return Timeline(spins, rng.standard_normal((T, inputs)), np.cumsum([0, *lengths]), gaps)


def unknown_sites(network: Network, steps: Timeline) -> list[tuple[int, int]]:
    last = {int(b) - 1 for b in steps.bounds[1:]}
    T, nv = steps.spins.shape
    return [
        (t, u)
        for t in range(T)
        for u in range(nv + network.hidden)
        if (u >= nv and t not in last) or (u < nv and len(steps.missing) and steps.missing[t, u])
    ]


def sum_paths(network: Network, steps: Timeline) -> Sums:
    sites = unknown_sites(network, steps)
    T, nv = steps.spins.shape
    z = np.ones((T, nv + network.hidden))
    z[:, :nv] = steps.spins
    states = np.array(list(itertools.product([-1.0, 1.0], repeat=len(sites))))
    logs, scores = [], []
    for state in states:
        for (t, u), value in zip(sites, state, strict=True):
            z[t, u] = value
        log, score = _complete(network, steps, z)
        logs.append(log)
        scores.append(score)
    top = max(logs)
    weights = np.exp(np.array(logs) - top)
    total = weights.sum()
    return Sums(sites, states, weights / total, float(top + np.log(total)), np.array(scores))


def _complete(network: Network, steps: Timeline, z: np.ndarray) -> tuple[float, np.ndarray]:
    nv = network.visible
    log, score = 0.0, np.zeros(network.weights.shape)
    for start, stop in itertools.pairwise(steps.bounds.tolist()):
        unknown = network.hidden * (stop > start + 1) + (
            int(steps.missing[start].sum()) if len(steps.missing) else 0
        )
        log -= unknown * np.log(2.0)
        for t in range(start, stop - 1):
            H = network.bias + network.sensitivity @ steps.inputs[t] + network.weights @ z[t]
            felt = slice(0, nv if t == stop - 2 else None)
            log += float(np.sum((z[t + 1] * H - np.logaddexp(H, -H))[felt]))
            score[felt] += np.outer((z[t + 1] - np.tanh(H))[felt], z[t])
    return log, score
