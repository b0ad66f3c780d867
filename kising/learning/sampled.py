"""Learning from samples: what is particular to a noisy E-step (estimator `gibbs`).

Every iteration makes one sweep of all chains and one scale-free step. Three phases, each a rule:

    approach   full steps, until they lead nowhere: every STRETCH iterations the second half of all iterations so far
               is cut in two, and in no block may the two means differ by more, in the root mean square and beyond
               what their scatter explains, than NEAR of a coupling's statistical error. At least LEAST_APPROACH
               iterations, at most half of those allowed: what cannot be told from the data, such as a hidden spin
               without bonds, wanders for ever, and its block never counts as converged
    average    steps shrink as k^-0.6, and the couplings reported are the mean over all iterations of this phase
    end        the Monte-Carlo error of that mean, as a share of each coupling's statistical error and in the root mean
               square over a block, has been below `noise` for `hold` iterations in a row

Means and scatter come from batches of iterations, whose length doubles as they fill up. Where the two halves of the
averaging phase differ by more than the scatter explains, errors grow by as much, so that a mean that still drifts
never passes for a settled one. Steps are measured by the complete-data information (`metric`), and the statistical
error is that of complete data: hidden spins can only make it larger, so the rule errs towards too many iterations.
"""

from typing import NamedTuple

import numpy as np

from kising.estimators.gibbs.chains import Chains, first_chains
from kising.kernels.counter import key_of
from kising.model import Array
from kising.seeds import Seed

STRETCH = 20
LEAST_APPROACH = 60
EXPONENT = 0.6
FIRST_BATCH = 5
MOST_BATCHES = 32
LEAST_BATCHES = 8
NEAR = 0.2


class Sampler(NamedTuple):
    """What sampled learning carries from one iteration to the next; all of it is part of a saved state."""

    key: np.uint64
    """of every random number"""
    chains: Chains
    """the hidden state of every slice, (T-2, Nh)"""
    averages: bool
    """whether steps shrink, and what is in the batches counts as the result"""
    iterations: int
    """how many are in the batches"""
    batches: Array
    """sums of the couplings over batches of iterations, in units of the bond scale, (k, n)"""
    batch: int
    """iterations a batch"""
    arrived: tuple[bool, ...] = (False, False, False)
    """whether full steps had come to where they lead when averaging began; of J, K, L"""


def begin_sampling(n_slices: int, hidden: int, n_couplings: int, seed: Seed) -> Sampler:
    """Chains of a recording's slices, and nothing averaged yet."""
    key = key_of(seed)
    return Sampler(
        key, first_chains(n_slices, hidden, key), False, 0, np.empty((0, n_couplings)), FIRST_BATCH
    )


def gain(sampler: Sampler) -> float:
    """The share of the next step that is taken."""
    return float((sampler.iterations + 1) ** -EXPONENT) if sampler.averages else 1.0


def arrive(
    sampler: Sampler,
    couplings: Array,
    blocks: list[slice],
    statistical: Array,
    *,
    longest_approach: int,
) -> Sampler:
    """Take in where a step has led. J, K and L are the `blocks` of the vector; it and its statistical errors are in
    units of the bond scale.
    """
    batches, size = sampler.batches, sampler.batch
    if sampler.iterations % size == 0:
        if len(batches) == MOST_BATCHES:
            batches, size = batches[0::2] + batches[1::2], 2 * size
        batches = np.vstack([batches, np.zeros(couplings.size)])
    batches = np.vstack([batches[:-1], batches[-1] + couplings])
    sampler = sampler._replace(iterations=sampler.iterations + 1, batches=batches, batch=size)
    n = sampler.iterations
    ends = n >= longest_approach
    if sampler.averages or not (ends or (n >= LEAST_APPROACH and n % STRETCH == 0)):
        return sampler
    arrived = _near(sampler, blocks, statistical)
    if not (ends or all(arrived)):
        return sampler
    return sampler._replace(
        averages=True, iterations=0, batches=batches[:0], batch=FIRST_BATCH, arrived=arrived
    )


def _near(sampler: Sampler, blocks: list[slice], statistical: Array) -> tuple[bool, ...]:
    """Whether full steps have come to where they lead; of J, K, L."""
    if sampler.iterations < LEAST_APPROACH:
        return tuple(False for _ in blocks)
    means = _whole_batches(sampler)
    square, variance = _halves(means[len(means) // 2 :])
    way = (square - variance) / statistical**2
    return tuple(bool(np.mean(way[part]) < NEAR**2) for part in blocks)


def _whole_batches(sampler: Sampler) -> Array:
    """The means of the batches that are full."""
    return sampler.batches[: sampler.iterations // sampler.batch] / sampler.batch


def _drift(means: Array, blocks: list[slice]) -> list[float]:
    """For each block the squared difference of the halves' means over its variance, had they one mean."""
    square, variance = _halves(means)
    tiny = np.finfo(float).tiny
    return [float(np.sum(square[part]) / (np.sum(variance[part]) + tiny)) for part in blocks]


def _halves(means: Array) -> tuple[Array, Array]:
    """The squared difference of the means of both halves, and what it would be by their scatter alone."""
    half = len(means) // 2
    first, second = means[:half], means[-half:]
    variance: Array = (np.var(first, axis=0, ddof=1) + np.var(second, axis=0, ddof=1)) / half
    square: Array = (np.mean(first, axis=0) - np.mean(second, axis=0)) ** 2
    return square, variance


def mean(sampler: Sampler) -> Array | None:
    """The average so far, in units of the bond scale; None before averaging began."""
    if not sampler.averages or sampler.iterations == 0:
        return None
    average: Array = np.sum(sampler.batches, axis=0) / sampler.iterations
    return average


def monte_carlo_error(sampler: Sampler, blocks: list[slice]) -> Array | None:
    """That of the average, coupling by coupling, in units of the bond scale; None while there are too few
    batches to tell.
    """
    means = _whole_batches(sampler)
    if not sampler.averages or len(means) < LEAST_BATCHES:
        return None
    error: Array = np.std(means, axis=0, ddof=1) / np.sqrt(len(means))
    for part, drift in zip(blocks, _drift(means, blocks), strict=True):
        error[part] *= np.sqrt(max(1.0, drift))
    return error
