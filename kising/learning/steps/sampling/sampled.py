"""Learning from samples, for estimators whose averages are noisy.

Every iteration makes one sweep of all chains and one step, measured by a `metric`. The couplings approach their end
with full steps, at first on part of the slices (`slices_used`); then they are averaged while steps shrink (`phases`).
Learning ends when the Monte-Carlo error of that mean, as a share of each coupling's statistical error and in the root
mean square over a block, has been below `noise` for `hold` iterations in a row.

So learning has converged when what is left of the way, and the Monte-Carlo error, are both small against the
statistical error. Neither depends on `max_iterations`: a larger budget never changes a verdict that a smaller one has
reached.

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
from kising.estimators.gibbs.chains import Chains
from kising.estimators.gradient import Gradient, sampled_gradient
from kising.learning.layout import flatten, places, unflatten
from kising.learning.state import Anchor, EMState, Problem, first_state
from kising.learning.steps.acceleration import within_reach
from kising.learning.steps.base import Lack, Step, unsettled
from kising.learning.steps.metric import (
    LastAnchor,
    Metric,
    complete_errors,
    is_due,
    metric_of,
    metric_step,
    of_chains,
)
from kising.learning.steps.observed import observed_shares
from kising.learning.steps.sampling.phases import (
    EXPONENT,
    LEAST_APPROACH,
    LONG_MOMENTUM,
    MOMENTUM_FROM,
    NEAR,
    arrive,
    begin_sampling,
    drifts,
    gain,
    mean,
    momentum,
    monte_carlo_error,
    relative,
    sampler_of,
    went_back,
)
from kising.messages import plural
from kising.model import Array, Couplings
from kising.options import Learner
from kising.seeds import Seed

# Before momentum begins, an eighth of a long recording is enough, and at least this many slices.
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
    metrics: LastAnchor[Metric] = field(default_factory=LastAnchor)
    shares: LastAnchor[Couplings] = field(default_factory=LastAnchor)

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

    @property
    def chains_shape(self) -> tuple[int, int]:
        """One chain per slice."""
        return self.problem.n_slices, self.problem.hidden

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
        return metric_step(self.metric(state), gradient)

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
            text = f"fewer than {LEAST_APPROACH} iterations"
            if went_back(state):
                text = f"back to full steps only {plural(sampler.iterations, 'iteration')} ago"
            return unsettled(state, self.learner, [Lack(text) for _ in BLOCKS])
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
        """The next couplings, and the move that momentum goes by: the one to them, but as it was before `within_reach`
        shortened it.
        """
        sampler, scales = sampler_of(state), self.problem.scales
        velocity = gain(sampler, self.exponent) * flatten(direction, scales)
        velocity = velocity + momentum(sampler, self.long_momentum) * state.history.velocity
        return within_reach(state.couplings, unflatten(velocity, state.couplings, scales), scales), velocity

    def learned(self, state: EMState) -> Couplings:
        """The mean, once there is one; of an approach that was cut short, the mean of its last third."""
        stalled = state.outcome == "stalled"
        average = mean(sampler_of(state), cut_short=stalled, near=stalled and went_back(state))
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

    def metric(self, state: EMState) -> Metric:
        """The metric at the anchor."""
        assert state.anchor is not None
        return self.metrics.of(state.anchor, self.metric_at)

    def metric_at(self, anchor: Anchor) -> Metric:
        """What steps are divided by."""
        return metric_of(anchor, self.problem.slices, self.prior)

    def statistical_errors(self, state: EMState) -> Couplings:
        """Those of complete data, divided by the root of the share of information that is left."""
        assert state.anchor is not None
        complete = complete_errors(self.metric(state), self.problem.n_slices, state.couplings)
        shares = self.shares.of(state.anchor, lambda x: observed_shares(x, self.problem.slices))
        return Couplings(*(x / np.sqrt(share) for x, share in zip(complete, shares, strict=True)))

    def _flat_errors(self, state: EMState) -> Array:
        return flatten(self.statistical_errors(state), self.problem.scales)


def slices_used(n_slices: int, iteration: int) -> int:
    """How many slices an iteration goes through: few at first, because far from the end a few slices are enough to show
    the way.
    """
    return n_slices if iteration >= MOMENTUM_FROM else min(n_slices, max(LEAST_SLICES, n_slices // 8))
