"""The interface of steps: what a session needs of them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kising.blocks import BLOCKS
from kising.estimators.estep import EStep
from kising.estimators.gradient import Gradient, checked_gradient
from kising.learning.layout import present
from kising.learning.state import EMState, Problem, first_state
from kising.learning.steps.prior import Prior
from kising.model import Couplings
from kising.options import Learner
from kising.seeds import Seed


class Lack(NamedTuple):
    """What a block that has not converged is short of."""

    text: str
    """in words, with the limit"""
    excess: float | None = None
    """how many times its limit the number in question is; None while it is not known"""


@dataclass(frozen=True)
class Step(ABC):
    """One way to learn, for one problem. An iteration is `observe`, `direction`, the verdict on that, and `advance`."""

    problem: Problem
    learner: Learner
    estep: EStep
    patience: int
    """iterations in a row for which steps must have shrunk before they are accelerated"""

    @classmethod
    @abstractmethod
    def applies(cls, learner: Learner, estep: EStep, problem: Problem) -> bool:
        """Whether this is the step to take."""

    def begin(self, couplings: Couplings, seed: Seed) -> EMState:
        """The state before the first iteration; `seed` is for steps that sample."""
        return first_state(couplings)

    @property
    def chains_shape(self) -> tuple[int, int] | None:
        """The shape of the chains that a state of it carries along; None for steps that do not sample."""
        return None

    def observe(self, state: EMState, *, threads: int) -> tuple[EMState, Gradient]:
        """Make the E-step: its gradient, and the state with all that goes along with it."""
        found = checked_gradient(state.couplings, self.problem.slices, self.estep_of(state), threads=threads)
        return state, self.pulled(found, state.couplings)

    def estep_of(self, state: EMState) -> EStep:
        """The E-step of an iteration."""
        return self.estep

    @property
    def prior(self) -> Prior | None:
        """The prior of the couplings, where there is one."""
        return Prior.of(self.problem, self.learner)

    def pulled(self, gradient: Gradient, couplings: Couplings) -> Gradient:
        """The gradient that learning climbs: that of the likelihood, or of its product with the prior."""
        return gradient if self.prior is None else self.prior.pulled(gradient, couplings)

    @abstractmethod
    def direction(self, state: EMState, gradient: Gradient) -> Couplings:
        """The scale-free step, which the verdict looks at."""

    def settled(self, state: EMState, sizes: Sequence[float]) -> Sequence[bool]:
        """For each block, whether it has settled, given the relative size of its step."""
        return [size < self.learner.tolerance for size in sizes]

    def counts(self, state: EMState) -> bool:
        """Whether an iteration counts for the verdict; one that does not leaves `held` as it was."""
        return True

    def crawls(self, state: EMState, size: float) -> bool:
        """Whether further iterations would change nothing that matters, and not end in convergence either. `size` is
        the largest relative size of a block's step.
        """
        return False

    def missing(self, state: EMState) -> dict[str, Lack]:
        """For each block that has not converged: what is missing."""
        sizes = state.trace[-1, 1 : 1 + len(BLOCKS)] if state.iteration else [np.inf for _ in BLOCKS]
        limit = self.learner.tolerance
        lacks = [Lack(f"step {x:.2g} bond scales, limit {limit:g}", float(x / limit)) for x in sizes]
        return unsettled(state, self.learner, lacks)

    @abstractmethod
    def advance(self, state: EMState, direction: Couplings, gradient: Gradient) -> EMState:
        """The state with the next couplings, and what is remembered of the step to them."""

    def learned(self, state: EMState) -> Couplings:
        """The result so far."""
        return state.couplings

    def monte_carlo_error(self, state: EMState) -> Couplings | None:
        """The part of the result's error that is due to sampling; None where there is none, or none known yet."""
        return None

    def noise(self, state: EMState) -> Sequence[float]:
        """For each block, the Monte-Carlo error as a share of the statistical error; NaN where it is not known."""
        return [np.nan for _ in BLOCKS]


def unsettled(state: EMState, learner: Learner, lacks: Sequence[Lack]) -> dict[str, Lack]:
    """Of what all blocks lack, that of blocks that are learned and have not been settled for long enough."""
    learned = present(state.couplings)
    triples = zip(BLOCKS, state.held, lacks, strict=True)
    return {name: lack for name, held, lack in triples if learned[name] and held < learner.hold}
