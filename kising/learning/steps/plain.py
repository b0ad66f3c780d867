"""The paper's plain gradient ascent (docs/maths.md, "Learning"): a rate times the gradient, with momentum."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kising.estimators.estep import EStep
from kising.estimators.gradient import Gradient
from kising.learning.layout import UNIT, flatten, slopes, unflatten
from kising.learning.state import EMState, History, Problem
from kising.learning.steps.base import Lack, Step
from kising.model import Couplings
from kising.options import Learner


@dataclass(frozen=True)
class PlainStep(Step):
    """Gradient ascent. The verdict looks at the scale-free step of `measure`, which does not depend on the rate."""

    measure: Step

    @classmethod
    def applies(cls, learner: Learner, estep: EStep, problem: Problem) -> bool:
        """Where it was asked for."""
        return learner.step == "gradient"

    def observe(self, state: EMState, *, threads: int) -> tuple[EMState, Gradient]:
        """The same E-step."""
        return self.measure.observe(state, threads=threads)

    def direction(self, state: EMState, gradient: Gradient) -> Couplings:
        """The step that would need no rate."""
        return self.measure.direction(state, gradient)

    def settled(self, state: EMState, sizes: Sequence[float]) -> Sequence[bool]:
        """By the size of that step."""
        return self.measure.settled(state, sizes)

    def missing(self, state: EMState) -> dict[str, Lack]:
        """By the size of that step too."""
        return self.measure.missing(state)

    def advance(self, state: EMState, direction: Couplings, gradient: Gradient) -> EMState:
        """Climb."""
        moved, history = ascend(state.couplings, gradient, state.history, self.learner)
        return replace(state, couplings=moved, history=history)


def ascend(
    couplings: Couplings, gradient: Gradient, history: History, learner: Learner
) -> tuple[Couplings, History]:
    """The couplings after one move, and the history with its velocity."""
    velocity = learner.momentum * history.velocity + learner.rate * flatten(slopes(gradient), UNIT)
    moved = unflatten(flatten(couplings, UNIT) + velocity, couplings, UNIT)
    return moved, history._replace(velocity=velocity)
