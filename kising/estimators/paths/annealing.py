"""The likelihood where unknown spins are too many to sum over: by the slope along a way from a network in which it is
known.

Let λ scale all couplings through which unknown spins act on visible ones: K, and with missing entries J too. At λ = 0
the visible spins do not depend on anything unknown, and log P is a sum over timeline. From there

    log P(λ=1) = log P(λ=0) + ∫₀¹ dλ Σ_ij X_ij ⟨ Σ_t (s_i(t+1) - tanh H_i(t+1)) z_j(t) ⟩_λ        X = (J, K) or (0, K)

The averages are sampled along paths at the nodes of a Gaussian quadrature, from λ = 0 to 1 and back, each from where
the one before ended. Their scatter over batches of sweeps gives the standard error. Half the difference between both
ways is added to it: samples that lag behind λ err in opposite directions. The error of the quadrature itself is far
smaller, as the integrand is smooth.
"""

from typing import NamedTuple

import numpy as np

from kising.estimators.paths.network import Network
from kising.estimators.paths.sampler import first_states, sweep
from kising.estimators.paths.statistics import complete_sums
from kising.estimators.paths.timeline import Timeline
from kising.estimators.sampling import BATCHES
from kising.model import Array

NODES = 12
# Batches of sweeps at every node that are not averaged.
SETTLED = 3


class Annealed(NamedTuple):
    """An estimate of the likelihood of a recording."""

    log_likelihood: float
    """log P of all that is known, given what is known at the first step of every segment; nats"""
    error: float
    """its standard error, nats"""


def annealed_log_likelihood(
    network: Network, timeline: Timeline, *, key: np.uint64, sweeps: int, threads: int = 1
) -> Annealed:
    """The likelihood from about `sweeps` sweeps in all that are averaged."""
    nv = network.visible
    acting = network.weights.copy()
    acting[nv:] = 0.0
    if not len(timeline.missing):
        acting[:, :nv] = 0.0
    places, weights = np.polynomial.legendre.leggauss(NODES)
    nodes = list(zip(0.5 + 0.5 * places, 0.5 * weights, strict=True))
    per_batch = max(1, round(sweeps / (2 * NODES * BATCHES)))
    states = first_states(timeline, network.hidden, key)
    integrals, variance, iteration = [], 0.0, 0
    for ordered in (nodes, nodes[::-1]):
        integral = 0.0
        for place, weight in ordered:
            here = network._replace(weights=network.weights - (1.0 - place) * acting)
            slopes = np.zeros(BATCHES)
            for k in range(-SETTLED * per_batch, BATCHES * per_batch):
                sweep(here, timeline, states, key=key, iteration=iteration, threads=threads)
                iteration += 1
                if k >= 0:
                    score = complete_sums(here, timeline, states, threads=threads).score
                    slopes[k // per_batch] += np.sum(score[:, : len(acting)] * acting) / per_batch
            integral += weight * slopes.mean()
            variance += 0.25 * weight**2 * slopes.var(ddof=1) / BATCHES
        integrals.append(integral)
    up, down = integrals
    error = np.hypot(np.sqrt(variance), 0.5 * (up - down))
    return Annealed(_without(network, acting, timeline) + 0.5 * (up + down), float(error))


def _without(network: Network, acting: Array, timeline: Timeline) -> float:
    """log P at λ = 0: visible spins feel known spins, inputs and biases alone."""
    nv = network.visible
    weights = (network.weights - acting)[:nv, :nv]
    field = network.bias[:nv] + timeline.inputs @ network.sensitivity[:nv].T + timeline.spins @ weights.T
    after = timeline.spins[1:].astype(np.float64)
    logs = after * field[:-1] - np.logaddexp(field[:-1], -field[:-1])
    if len(timeline.missing):
        logs[timeline.missing[1:]] = 0.0
    logs[timeline.bounds[1:-1] - 1] = 0.0
    return float(np.sum(logs))
