"""Learning from samples, for estimators whose averages are noisy.

Every iteration makes one sweep of all chains and one step, measured by a `metric`. There are three phases:

    approach   full steps, at first on part of the slices (`slices_used`), then with momentum, until they lead nowhere:
               every STRETCH iterations the last third of all iterations so far is cut in two, and in no block may the
               two means differ by more, in the root mean square and beyond what their scatter explains, than NEAR of
               a coupling's statistical error. It takes at least LEAST_APPROACH iterations, and as many as it needs
    average    steps shrink as k^-0.6, along paths as k^-0.4, and the result is the mean of the couplings over all
               iterations of this phase. Where the average turns out to drift, which short steps do not bring to an
               end, the approach is taken up again
    end        the Monte-Carlo error of that mean, as a share of each coupling's statistical error and in the root mean
               square over a block, has been below `noise` for `hold` iterations in a row

So learning has converged when what is left of the way, and the Monte-Carlo error, are both small against the
statistical error. Neither depends on `max_iterations`: a larger budget never changes a verdict that a smaller one has
reached.

Means and scatter come from batches of iterations, whose length doubles as they fill up. Where the two halves of the
averaging phase differ by more than the scatter explains, errors grow by as much, so that a mean that still drifts
never passes for a settled one.

The statistical error is that of the visible data: the error of complete data, divided by the root of the share of
information that is left (`observed`). What the recording hardly determines, such as the couplings of a hidden spin
with weak bonds, may move by a share of its own large error.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from kising.blocks import BLOCKS
from kising.estimators.estep import EStep
from kising.estimators.gibbs.chains import Chains, first_chains
from kising.estimators.gradient import Gradient, sampled_gradient
from kising.kernels.counter import key_of
from kising.learning.layout import flatten, places, unflatten
from kising.learning.state import EMState, Problem, Sampler, first_state
from kising.learning.steps.acceleration import within_reach
from kising.learning.steps.base import Lack, Step, unsettled
from kising.learning.steps.metric import Metric, MetricCache, complete_errors, is_due, metric_step, of_chains
from kising.model import Array, Couplings
from kising.options import Learner
from kising.seeds import Seed

STRETCH = 20
# An average is looked at after this many iterations, and whenever batches have doubled since, provided that it has had
# at least this share of all iterations: the longer learning takes, the longer an average may take to settle.
LEAST_AVERAGE = 320
LEAST_SHARE = 0.25
# It drifts where the squared difference between its halves is so many times what their scatter explains: the
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
# Until then, an eighth of a long recording is enough, and at least this many slices.
LEAST_SLICES = 10_000
# Sweeps of the slices that join then, before the first step that they have a say in.
SETTLING = 5


@dataclass(frozen=True)
class SampledStep(Step):
    """Steps along noisy gradients, and the mean of where they lead."""

    exponent: ClassVar[float] = EXPONENT
    """how fast steps shrink while couplings are averaged"""
    long_momentum: ClassVar[float] = LONG_MOMENTUM
    """the momentum of a long approach"""
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
        """One sweep of all chains, or of the first ones; at some iterations, the metric is recomputed."""
        sampler = sampler_of(state)
        n = slices_used(self.problem.n_slices, state.iteration)
        part = self.problem.slices.first(n)

        def swept(chains: Chains, iteration: int) -> tuple[Gradient, Chains]:
            return sampled_gradient(
                state.couplings, part, chains, key=sampler.key, iteration=iteration, threads=threads
            )

        chains = sampler.chains[:n]
        before = slices_used(self.problem.n_slices, max(state.iteration - 1, 0))
        if n > before:
            # Chains that join are still where they began, and their gradient would throw the couplings far off. They
            # settle first, with their random numbers of earlier iterations, which are unused.
            for k in range(state.iteration - SETTLING, state.iteration):
                chains = np.concatenate([chains[:before], swept(chains, k)[1][before:]])
        found, moved = swept(chains, state.iteration)
        chains = moved if n == len(sampler.chains) else np.concatenate([moved, sampler.chains[n:]])
        state = replace(state, sampler=sampler._replace(chains=chains))
        if is_due(state.iteration, noisy=True):
            state = replace(state, anchor=of_chains(state.couplings, chains, state.iteration))
        return state, self.pulled(found, state.couplings)

    def direction(self, state: EMState, gradient: Gradient) -> Couplings:
        """The noisy gradient over the information."""
        return metric_step(self._metric(state), gradient)

    def settled(self, state: EMState, sizes: Sequence[float]) -> Sequence[bool]:
        """By the error of the mean: steps never vanish, and before there is a mean nothing has settled."""
        return [sampler_of(state).averages and share < self.learner.noise for share in self.noise(state)]

    def missing(self, state: EMState) -> dict[str, Lack]:
        """How far blocks still drift while there is no mean, then how noisy it is."""
        sampler, limit = sampler_of(state), self.learner.noise
        if sampler.averages:
            lacks = [
                Lack(f"Monte-Carlo error {x:.2g} of the statistical error, limit {limit:g}", x / limit)
                if np.isfinite(x)
                else Lack(f"averaged over only {sampler.iterations} iterations")
                for x in self.noise(state)
            ]
            return unsettled(state, self.learner, lacks)
        if sampler.iterations < LEAST_APPROACH:
            lacks = [Lack(f"fewer than {LEAST_APPROACH} iterations") for _ in BLOCKS]
            return unsettled(state, self.learner, lacks)
        way = drifts(sampler, places(state.couplings), self._flat_errors(state))
        lacks = [Lack(f"drifts by {x:.2g} of the statistical error, limit {NEAR:g}", x / NEAR) for x in way]
        found = unsettled(state, self.learner, lacks)
        # All blocks wait for those that drift.
        return {name: found[name] for name, x in zip(BLOCKS, way, strict=True) if x >= NEAR} or found

    def advance(self, state: EMState, direction: Couplings, gradient: Gradient) -> EMState:
        """Take a share of the step, and add where it leads to the batches."""
        couplings, velocity = self.move(state, direction)
        sampler = arrive(
            sampler_of(state),
            flatten(couplings, self.problem.scales),
            places(couplings),
            self._flat_errors(state),
            noise=self.learner.noise,
            iteration=state.iteration,
        )
        history = state.history._replace(velocity=velocity)
        return replace(state, couplings=couplings, history=history, sampler=sampler)

    def move(self, state: EMState, direction: Couplings) -> tuple[Couplings, Array]:
        """The next couplings, and the move to them, which momentum goes by."""
        sampler, scales = sampler_of(state), self.problem.scales
        velocity = gain(sampler, self.exponent) * flatten(direction, scales)
        velocity = velocity + momentum(sampler, self.long_momentum) * state.history.velocity
        return within_reach(state.couplings, unflatten(velocity, state.couplings, scales), scales), velocity

    def learned(self, state: EMState) -> Couplings:
        """The mean, once there is one; of an approach that was cut short, the mean of its last third."""
        average = mean(sampler_of(state), cut_short=state.outcome == "stalled")
        return (
            state.couplings if average is None else unflatten(average, state.couplings, self.problem.scales)
        )

    def monte_carlo_error(self, state: EMState) -> Couplings | None:
        """That of the mean."""
        cut_short = state.outcome == "stalled"
        error = monte_carlo_error(sampler_of(state), places(state.couplings), cut_short=cut_short)
        return None if error is None else unflatten(error, state.couplings, self.problem.scales)

    def noise(self, state: EMState) -> Sequence[float]:
        """The Monte-Carlo error over the statistical one, in the root mean square over each block."""
        errors = self.monte_carlo_error(state)
        if errors is None:
            return [np.nan for _ in BLOCKS]
        flat = flatten(errors, self.problem.scales)
        return relative(flat, self._flat_errors(state), places(state.couplings))

    def _metric(self, state: EMState) -> Metric:
        assert state.anchor is not None
        return self.cache.of(state.anchor, self.problem.slices, self.prior)

    def statistical_errors(self, state: EMState) -> Couplings:
        """Those of complete data, divided by the root of the share of information that is left."""
        assert state.anchor is not None
        complete = complete_errors(self._metric(state), self.problem.n_slices, state.couplings)
        shares = self.cache.shares_of(state.anchor, self.problem.slices, self.prior)
        return Couplings(*(x / np.sqrt(share) for x, share in zip(complete, shares, strict=True)))

    def _flat_errors(self, state: EMState) -> Array:
        return flatten(self.statistical_errors(state), self.problem.scales)


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


def slices_used(n_slices: int, iteration: int) -> int:
    """How many slices an iteration goes through: few at first, while couplings are further from the end than few slices
    can tell.
    """
    return n_slices if iteration >= MOMENTUM_FROM else min(n_slices, max(LEAST_SLICES, n_slices // 8))


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


def _average_drifts(sampler: Sampler, blocks: list[slice], statistical: Array, noise: float) -> bool:
    """Whether drift, not scatter, keeps the Monte-Carlo error of a block above its limit."""
    error = monte_carlo_error(sampler, blocks)
    assert error is not None
    found = zip(relative(error, statistical, blocks), _drift(_whole_batches(sampler), blocks), strict=True)
    return any(share >= noise and drift >= DRIFTS for share, drift in found)


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


def _late(sampler: Sampler) -> Array:
    """The means of the batches in the last third of an approach."""
    means = _whole_batches(sampler)
    return means[-max(len(means) // 3, LEAST_LATE) :]


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


def mean(sampler: Sampler, *, cut_short: bool = False) -> Array | None:
    """The average so far, in units of the bond scale; None before averaging began, unless the approach was cut short
    and its last third must do.
    """
    if not sampler.averages:
        late = _late(sampler)
        middle: Array | None = late.mean(axis=0) if cut_short and len(late) else None
        return middle
    if sampler.iterations == 0:
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
