"""The phases of learning from samples, and the mean of the couplings over iterations.

    approach   full steps, with momentum, until they lead nowhere: every STRETCH iterations the last third of all
               iterations so far is cut in two, and in no block may the two means differ by more, in the root mean
               square and beyond what their scatter explains, than NEAR of a coupling's statistical error. It takes at
               least LEAST_APPROACH iterations, and as many as it needs
    average    steps shrink as k^-0.6, along paths as k^-0.4, and the result is the mean of the couplings over all
               iterations of this phase. Where the average turns out to drift, which short steps do not bring to an
               end, the approach is taken up again

Means and scatter come from batches of iterations, whose length doubles as they fill up. Where the two halves of the
averaging phase differ by more than the scatter explains, errors grow by as much, so that a mean that still drifts
never passes for a settled one.

Couplings are one vector here, in units of the bond scale.
"""

import numpy as np

from kising.estimators.gibbs.chains import first_chains
from kising.kernels.counter import key_of
from kising.learning.state import EMState, Sampler
from kising.learning.trace_columns import NOISE
from kising.model import Array
from kising.seeds import Seed

STRETCH = 20
# An average is looked at after this many iterations, and whenever batches have doubled since, provided that it has had
# at least this share of all iterations: the longer learning takes, the longer an average may take to settle.
LEAST_AVERAGE = 320
LEAST_SHARE = 0.25
# It drifts where the squared difference between its halves is this many times as large as their scatter explains. The
# Monte-Carlo error is then twice as large as without drift.
DRIFTS = 4.0
LEAST_APPROACH = 60
EXPONENT = 0.6
FIRST_BATCH = 5
MOST_BATCHES = 32
LEAST_BATCHES = 8
# Two for each half of them: their scatter must be known.
LEAST_LATE = 4
NEAR = 0.2
# Along what the recording hardly determines, EM goes a small share of the way per iteration. Momentum makes that five
# times as much. Sooner, while hidden units still find their roles, it would throw them out of these.
MOMENTUM = 0.8
MOMENTUM_FROM = 32
# An approach that is as long as this has still far to go: ten times as much.
LONG_MOMENTUM = 0.9
LONG_FROM = 160


def sampler_of(state: EMState) -> Sampler:
    """What a state of learning from samples carries along."""
    assert state.sampler is not None
    return state.sampler


def begin_sampling(n_slices: int, hidden: int, n_couplings: int, seed: Seed) -> Sampler:
    """Chains of a recording's slices, and nothing averaged yet."""
    key = key_of(seed)
    return Sampler(
        key=key,
        chains=first_chains(n_slices, hidden, key),
        averages=False,
        iterations=0,
        batches=np.empty((0, n_couplings)),
        batch=FIRST_BATCH,
        zeros=np.zeros(n_couplings, np.int64),
    )


def went_back(state: EMState) -> bool:
    """Whether an average was given up before the present phase: only averages have a Monte-Carlo error."""
    earlier = state.trace[: max(state.iteration - sampler_of(state).iterations, 0)]
    return bool(np.isfinite(earlier[:, NOISE]).any())


def gain(sampler: Sampler, exponent: float = EXPONENT) -> float:
    """The share of the next step that is taken."""
    return float((sampler.iterations + 1) ** -exponent) if sampler.averages else 1.0


def momentum(sampler: Sampler, long: float = LONG_MOMENTUM) -> float:
    """The share of the last move that is added to the next one."""
    if sampler.averages:
        # Iterates along slow directions are then correlated over fewer iterations.
        return MOMENTUM
    if sampler.iterations < MOMENTUM_FROM:
        return 0.0
    return MOMENTUM if sampler.iterations < LONG_FROM else long


def arrive(
    sampler: Sampler,
    couplings: Array,
    blocks: list[slice],
    statistical: Array,
    *,
    noise: float,
    iteration: int,
) -> Sampler:
    """Add the couplings that a step has led to. The vector and its statistical errors are in units of the bond scale;
    `blocks` are its parts. `noise` is the share of a statistical error that ends learning, and `iteration` the number
    of earlier iterations of all phases.
    """
    batches, size = sampler.batches, sampler.batch
    if sampler.iterations % size == 0:
        if len(batches) == MOST_BATCHES:
            batches, size = batches[0::2] + batches[1::2], 2 * size
        batches = np.vstack([batches, np.zeros(couplings.size)])
    batches = np.vstack([batches[:-1], batches[-1] + couplings])
    zeros = sampler.zeros + (couplings == 0)
    sampler = sampler._replace(iterations=sampler.iterations + 1, batches=batches, batch=size, zeros=zeros)
    n = sampler.iterations
    if sampler.averages:
        due = n >= max(LEAST_AVERAGE, LEAST_SHARE * iteration) and n == sampler.batch * MOST_BATCHES
        ends = due and _average_drifts(sampler, blocks, statistical, noise)
    else:
        due = n >= LEAST_APPROACH and n % STRETCH == 0
        ends = due and max(drifts(sampler, blocks, statistical)) < NEAR
    if not ends:
        return sampler
    return sampler._replace(
        averages=not sampler.averages,
        iterations=0,
        batches=batches[:0],
        batch=FIRST_BATCH,
        zeros=np.zeros_like(zeros),
    )


def mean(sampler: Sampler, *, cut_short: bool = False, near: bool = False) -> Array | None:
    """The average so far, in units of the bond scale; None before averaging began, unless the approach was cut short
    and its last third must do, or, where it began `near` the end, all of it.
    """
    if not sampler.averages:
        if cut_short and len(late := _late(sampler)):
            middle: Array = late.mean(axis=0)
            return middle
        if not (cut_short and near):
            return None
    if not sampler.iterations:
        return None
    average: Array = np.sum(sampler.batches, axis=0) / sampler.iterations
    return average


def monte_carlo_error(sampler: Sampler, blocks: list[slice], *, cut_short: bool = False) -> Array | None:
    """The error of the average, coupling by coupling, in units of the bond scale; None while there are too few batches
    to tell.
    """
    means = _whole_batches(sampler) if sampler.averages else _late(sampler)
    least = LEAST_BATCHES if sampler.averages else LEAST_LATE
    if not (sampler.averages or cut_short) or len(means) < least:
        return None
    error: Array = np.std(means, axis=0, ddof=1) / np.sqrt(len(means))
    for part, drift in zip(blocks, _drift(means, blocks), strict=True):
        error[part] *= np.sqrt(max(1.0, drift))
    return error


def relative(error: Array, statistical: Array, blocks: list[slice]) -> list[float]:
    """For each block, the error over the statistical one, in the root mean square; 0 for a block that is empty."""
    squares = (error / statistical) ** 2
    return [float(np.sqrt(np.mean(squares[part]))) if part.start < part.stop else 0.0 for part in blocks]


def drifts(sampler: Sampler, blocks: list[slice], statistical: Array) -> list[float]:
    """For each block, how far the couplings of an approach went lately: the difference between the means of both
    halves of its last third, beyond what their scatter explains, over the statistical error, in the root mean square.
    """
    square, variance = _halves(_late(sampler))
    distance = (square - variance) / statistical**2
    # A block that is not learned is empty, and goes nowhere.
    return [
        max(float(np.mean(distance[part])), 0.0) ** 0.5 if part.start < part.stop else 0.0 for part in blocks
    ]


def _average_drifts(sampler: Sampler, blocks: list[slice], statistical: Array, noise: float) -> bool:
    """Whether drift, not scatter, keeps the Monte-Carlo error of a block above its limit."""
    error = monte_carlo_error(sampler, blocks)
    assert error is not None
    found = zip(relative(error, statistical, blocks), _drift(_whole_batches(sampler), blocks), strict=True)
    return any(share >= noise and drift >= DRIFTS for share, drift in found)


def _drift(means: Array, blocks: list[slice]) -> list[float]:
    """For each block, the squared difference between the means of both halves, over its expectation for one mean."""
    square, variance = _halves(means)
    tiny = np.finfo(float).tiny
    return [float(np.sum(square[part]) / (np.sum(variance[part]) + tiny)) for part in blocks]


def _halves(means: Array) -> tuple[Array, Array]:
    """The squared difference between the means of both halves, and its expectation from their scatter alone."""
    half = len(means) // 2
    first, second = means[:half], means[-half:]
    variance: Array = (np.var(first, axis=0, ddof=1) + np.var(second, axis=0, ddof=1)) / half
    square: Array = (np.mean(first, axis=0) - np.mean(second, axis=0)) ** 2
    return square, variance


def _late(sampler: Sampler) -> Array:
    """The means of the batches in the last third of an approach."""
    means = _whole_batches(sampler)
    return means[-max(len(means) // 3, LEAST_LATE) :]


def _whole_batches(sampler: Sampler) -> Array:
    """The means of the batches that are full."""
    return sampler.batches[: sampler.iterations // sampler.batch] / sampler.batch
