"""Learning from samples towards couplings of which many are zero: `penalised` and `decimated` with noisy averages.

Phases, batches and the verdict are those of `sampled`. What differs is the move, and which couplings end at zero.

    l1         every row goes to the minimum of q(x)/γ + Σ_j λ_j |x_j|, with q about the couplings moved on by momentum
               (`sparse` has q, here with each row's own information; γ is the share of a step that is taken). A
               coupling whose slope stays below λ comes to rest at zero as steps shrink. The result is the mean, and
               zero for every coupling that was zero in more than half of the averaged iterations
    decimate   the approach keeps the largest couplings after every step, among ever fewer. Where it ends, the mean of
               its last third decides once which couplings are kept, and the average is over these alone

λ is that of `penalised`. It needs ⟨tanh f⟩² of every slice, of which the square of one sample is no estimate, so it is
taken where the metric is taken: from some sweeps over the first slices.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from kising.estimators.estep import EStep
from kising.estimators.gradient import Gradient, checked_gradient
from kising.estimators.sampling import Sampling
from kising.learning.layout import UNIT, flatten, unflatten
from kising.learning.state import Anchor, EMState, Problem
from kising.learning.steps.acceleration import within_reach
from kising.learning.steps.metric import SLICES, LastAnchor, Metric, information_of
from kising.learning.steps.sampling.phases import gain, mean, momentum, sampler_of
from kising.learning.steps.sampling.sampled import SampledStep
from kising.learning.steps.sparsity.decimated import (
    check_known,
    decimated_step,
    final_shares,
    largest,
    restricted_step,
    shares_kept,
)
from kising.learning.steps.sparsity.penalised import penalised_step, penalties
from kising.learning.steps.sparsity.sparse import Curvature
from kising.model import Array, Couplings
from kising.options import Learner

# Of the sweeps that λ is taken from: any number will do, as long as it is always the same.
PENALTY_SEED = 0


@dataclass(frozen=True)
class SparseSamplesStep(SampledStep):
    """Steps along noisy gradients that lead to zeros. Their `direction` includes gain and momentum."""

    def curvature(self, state: EMState) -> Curvature:
        """f C of every row, at the anchor."""
        found = self.metric(state)
        return Curvature(found.matrices, found.weights)

    def metric_at(self, anchor: Anchor) -> Metric:
        """Information that is not inverted: rows go to the minimum of a quadratic model."""
        return information_of(anchor, self.problem.slices, self.prior)

    def carried(self, state: EMState) -> Couplings:
        """The share of the last move that is added to the next one."""
        velocity = momentum(sampler_of(state)) * state.history.velocity
        return unflatten(velocity, state.couplings, self.problem.scales)

    def move(self, state: EMState, direction: Couplings) -> tuple[Couplings, Array]:
        """The step as it is, but for one that is too long; momentum goes by the move that was made. Couplings whose
        step ends at zero are at zero.
        """
        new = within_reach(state.couplings, direction, self.problem.scales)
        triples = zip(new, state.couplings, direction, strict=True)
        new = Couplings(*(np.where(x + dx == 0, 0.0, y) for y, x, dx in triples))
        before, after = (flatten(x, self.problem.scales) for x in (state.couplings, new))
        return new, after - before

    def learned(self, state: EMState) -> Couplings:
        """The mean, and zero where couplings were zero for most of the time."""
        found, sampler = super().learned(state), sampler_of(state)
        zeros = unflatten(sampler.zeros.astype(np.float64), found, UNIT)
        half = max(sampler.iterations / 2, 0.5)
        return Couplings(*(np.where(count > half, 0.0, x) for count, x in zip(zeros, found, strict=True)))

    def statistical_errors(self, state: EMState) -> Couplings:
        """Scaled so that means over a block are over couplings that are not zero: those at rest would hide the noise of
        the others.
        """
        found = super().statistical_errors(state)
        pairs = zip(found, state.couplings, strict=True)
        return Couplings(*(error * np.sqrt(_share_in_use(x)) for error, x in pairs))


def _share_in_use(block: Array) -> float:
    return max(int(np.count_nonzero(block)), 1) / max(block.size, 1)


@dataclass(frozen=True)
class PenalisedSamplesStep(SparseSamplesStep):
    """Noisy steps with an l1 penalty."""

    penalty: LastAnchor[Couplings] = field(default_factory=LastAnchor)

    @classmethod
    def applies(cls, learner: Learner, estep: EStep, problem: Problem) -> bool:
        """Where averages are noisy and there is a penalty."""
        return super().applies(learner, estep, problem) and learner.l1 > 0

    def direction(self, state: EMState, gradient: Gradient) -> Couplings:
        """From the couplings to the minimum of q/γ + Σ λ |x|, with q about where momentum leads."""
        assert state.anchor is not None
        matrices, freedom = self.curvature(state)
        share = gain(sampler_of(state))
        curvature = Curvature(
            matrices._replace(**{k: x / share for k, x in matrices._asdict().items()}), freedom
        )
        penalty = self.penalty.of(state.anchor, self._penalty_at)
        carried = self.carried(state)
        ahead = Couplings(*(x + dx for x, dx in zip(state.couplings, carried, strict=True)))
        step = penalised_step(ahead, gradient, curvature, penalty)
        # Where the minimum is at zero, the move is -x to the last bit.
        parts = zip(state.couplings, ahead, step, strict=True)
        return Couplings(*(np.where(y + dy == 0, -x, (y - x) + dy) for x, y, dy in parts))

    def _penalty_at(self, anchor: Anchor) -> Couplings:
        """λ at the couplings of an anchor."""
        sampled = self.estep.sampled(Sampling.brief(PENALTY_SEED))
        found = checked_gradient(anchor.couplings, self.problem.slices.first(SLICES), sampled, threads=1)
        return penalties(found, self.problem.products, self.problem.n_slices, self.learner.l1)


@dataclass(frozen=True)
class DecimatedSamplesStep(SparseSamplesStep):
    """Noisy steps among ever fewer couplings, then among those that were chosen."""

    def __post_init__(self) -> None:
        check_known(self.problem, self.learner)

    @classmethod
    def applies(cls, learner: Learner, estep: EStep, problem: Problem) -> bool:
        """Where averages are noisy and it was asked for."""
        return super().applies(learner, estep, problem) and learner.decimate != "none"

    def direction(self, state: EMState, gradient: Gradient) -> Couplings:
        """A share of the way to the minimum over what is kept, and momentum for what is kept before and after."""
        couplings, curvature, sampler = state.couplings, self.curvature(state), sampler_of(state)
        if sampler.averages:
            kept = Couplings(*(x != 0 for x in couplings))
            step = restricted_step(couplings, gradient, curvature, kept)
        else:
            shares = shares_kept(final_shares(self.problem, self.learner), state.iteration)
            step = decimated_step(couplings, gradient, curvature, shares)
        share = gain(sampler)
        triples = zip(couplings, step, self.carried(state), strict=True)
        return Couplings(*(np.where(x + dx == 0, -x, share * dx + carried) for x, dx, carried in triples))

    def advance(self, state: EMState, direction: Couplings, gradient: Gradient) -> EMState:
        """Where the approach ends, choose what is kept, and start from its mean."""
        later, approach = super().advance(state, direction, gradient), sampler_of(state)
        if approach.averages or not sampler_of(later).averages:
            return later
        late = mean(approach, cut_short=True)
        assert late is not None
        chosen = self._chosen(unflatten(late, state.couplings, self.problem.scales))
        history = later.history._replace(velocity=np.zeros_like(later.history.velocity))
        return replace(later, couplings=chosen, history=history)

    def learned(self, state: EMState) -> Couplings:
        """The mean; of an approach that was cut short, what an average would have begun with."""
        if sampler_of(state).averages or state.outcome != "stalled":
            return super().learned(state)
        return self._chosen(SampledStep.learned(self, state))

    def _chosen(self, middle: Couplings) -> Couplings:
        """Those of the couplings that are kept in the end."""
        kept = largest(middle, final_shares(self.problem, self.learner))
        return Couplings(*(np.where(own, x, 0.0) for own, x in zip(kept, middle, strict=True)))
