"""Learning from samples, for estimators whose averages are noisy.

Every iteration makes one sweep of all chains and one step, measured by a `metric`. There are three phases:

    approach   full steps, until they lead nowhere: every STRETCH iterations the second half of all iterations so far
               is cut in two, and in no block may the two means differ by more, in the root mean square and beyond
               what their scatter explains, than NEAR of a coupling's statistical error. It takes at least
               LEAST_APPROACH iterations and at most half of those allowed: what the data do not determine, such as a
               hidden spin without bonds, wanders for ever, and its block never counts as converged
    average    steps shrink as k^-0.6, and the result is the mean of the couplings over all iterations of this phase
    end        the Monte-Carlo error of that mean, as a share of each coupling's statistical error and in the root mean
               square over a block, has been below `noise` for `hold` iterations in a row

Means and scatter come from batches of iterations, whose length doubles as they fill up. Where the two halves of the
averaging phase differ by more than the scatter explains, errors grow by as much, so that a mean that still drifts
never passes for a settled one. The statistical error is that of complete data: hidden spins can only make it larger,
so the rule errs towards too many iterations.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kising.blocks import BLOCKS
from kising.estimators.estep import EStep
from kising.estimators.gibbs.chains import first_chains
from kising.estimators.gradient import Gradient, sampled_gradient
from kising.kernels.counter import key_of
from kising.learning.layout import flatten, places, unflatten
from kising.learning.state import EMState, Problem, Sampler, first_state
from kising.learning.steps.acceleration import within_reach
from kising.learning.steps.base import Step
from kising.learning.steps.metric import Metric, MetricCache, complete_errors, is_due, metric_step, of_chains
from kising.learning.steps.prior import with_prior
from kising.model import Array, Couplings
from kising.options import Learner
from kising.seeds import Seed

STRETCH = 20
LEAST_APPROACH = 60
EXPONENT = 0.6
FIRST_BATCH = 5
MOST_BATCHES = 32
LEAST_BATCHES = 8
NEAR = 0.2


@dataclass(frozen=True)
class SampledStep(Step):
    """Steps along noisy gradients, and the mean of where they lead."""

    cache: MetricCache = field(default_factory=MetricCache)

    @classmethod
    def applies(cls, learner: Learner, estep: EStep, problem: Problem) -> bool:
        """Where averages are noisy."""
        return estep.estimator.samples

    def begin(self, couplings: Couplings, seed: Seed) -> EMState:
        """Chains at their first states, and nothing averaged yet."""
        n_couplings = sum(x.size for x in couplings)
        return first_state(
            couplings, begin_sampling(self.problem.n_slices, self.problem.hidden, n_couplings, seed)
        )

    def observe(self, state: EMState, *, threads: int) -> tuple[EMState, Gradient]:
        """One sweep of all chains; at some iterations, the metric is taken anew."""
        sampler = _sampler(state)
        found, chains = sampled_gradient(
            state.couplings,
            self.problem.slices,
            sampler.chains,
            key=sampler.key,
            iteration=state.iteration,
            threads=threads,
        )
        state = replace(state, sampler=sampler._replace(chains=chains))
        if is_due(state.iteration, noisy=True):
            state = replace(state, anchor=of_chains(state.couplings, chains, state.iteration))
        return state, with_prior(found, state.couplings, self.problem, self.learner)

    def direction(self, state: EMState, gradient: Gradient) -> Couplings:
        """The noisy gradient over the information."""
        return metric_step(self._metric(state), gradient)

    def settled(self, state: EMState, sizes: Sequence[float]) -> Sequence[bool]:
        """By the error of the mean: steps never vanish."""
        pairs = zip(self.noise(state), _sampler(state).arrived, strict=True)
        return [share < self.learner.noise and arrived for share, arrived in pairs]

    def advance(self, state: EMState, direction: Couplings, gradient: Gradient) -> EMState:
        """Take a share of the step, and add where it leads to the batches."""
        sampler, scales = _sampler(state), self.problem.scales
        share = gain(sampler)
        couplings = within_reach(state.couplings, Couplings(*(share * x for x in direction)), scales)
        sampler = arrive(
            sampler,
            flatten(couplings, scales),
            places(couplings),
            flatten(self._statistical_errors(state), scales),
            longest_approach=max(1, self.learner.max_iterations // 2),
        )
        return replace(state, couplings=couplings, sampler=sampler)

    def learned(self, state: EMState) -> Couplings:
        """The mean, once there is one."""
        average = mean(_sampler(state))
        return (
            state.couplings if average is None else unflatten(average, state.couplings, self.problem.scales)
        )

    def monte_carlo_error(self, state: EMState) -> Couplings | None:
        """That of the mean."""
        error = monte_carlo_error(_sampler(state), places(state.couplings))
        return None if error is None else unflatten(error, state.couplings, self.problem.scales)

    def noise(self, state: EMState) -> Sequence[float]:
        """The Monte-Carlo error over the statistical one, in the root mean square over each block."""
        errors = self.monte_carlo_error(state)
        if errors is None:
            return [np.nan for _ in BLOCKS]
        pairs = zip(errors, self._statistical_errors(state), strict=True)
        return [float(np.sqrt(np.mean((x / error) ** 2))) if x.size else 0.0 for x, error in pairs]

    def _metric(self, state: EMState) -> Metric:
        assert state.anchor is not None
        return self.cache.of(state.anchor, self.problem.slices)

    def _statistical_errors(self, state: EMState) -> Couplings:
        return complete_errors(self._metric(state), self.problem.n_slices, state.couplings)


def _sampler(state: EMState) -> Sampler:
    assert state.sampler is not None
    return state.sampler


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
    """Add the couplings that a step has led to. The vector and its statistical errors are in units of the bond scale;
    `blocks` are its parts.
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
    """For each block, whether full steps no longer lead anywhere."""
    if sampler.iterations < LEAST_APPROACH:
        return tuple(False for _ in blocks)
    means = _whole_batches(sampler)
    square, variance = _halves(means[len(means) // 2 :])
    distance = (square - variance) / statistical**2
    # A block that is not learned is empty, and leads nowhere.
    return tuple(part.start == part.stop or bool(np.mean(distance[part]) < NEAR**2) for part in blocks)


def _whole_batches(sampler: Sampler) -> Array:
    """The means of the batches that are full."""
    return sampler.batches[: sampler.iterations // sampler.batch] / sampler.batch


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


def mean(sampler: Sampler) -> Array | None:
    """The average so far, in units of the bond scale; None before averaging began."""
    if not sampler.averages or sampler.iterations == 0:
        return None
    average: Array = np.sum(sampler.batches, axis=0) / sampler.iterations
    return average


def monte_carlo_error(sampler: Sampler, blocks: list[slice]) -> Array | None:
    """The error of the average, coupling by coupling, in units of the bond scale; None while there are too few batches
    to tell.
    """
    means = _whole_batches(sampler)
    if not sampler.averages or len(means) < LEAST_BATCHES:
        return None
    error: Array = np.std(means, axis=0, ddof=1) / np.sqrt(len(means))
    for part, drift in zip(blocks, _drift(means, blocks), strict=True):
        error[part] *= np.sqrt(max(1.0, drift))
    return error
