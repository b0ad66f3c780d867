"""Decimation: a given number of couplings differ from zero.

A block keeps the couplings that are largest in size after a whole scale-free step. The others are zero, and every row
goes to the minimum of q (`sparse` has it) over what it keeps. A coupling that was dropped can come back. The step
vanishes where G = 0 for all that is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kising.blocks import TABLE
from kising.errors import InputError
from kising.estimators.estep import EStep
from kising.estimators.gradient import Gradient
from kising.learning.scores import BlockShares, bond_shares
from kising.learning.state import EMState, History, Problem
from kising.learning.steps.sparsity.sparse import Curvature, SparseStep, step_by_rows
from kising.model import Array, Couplings
from kising.options import Learner

# Iterations until as few couplings are kept as asked for: the first steps say little about which these are.
NARROWING = 20


@dataclass(frozen=True)
class DecimatedStep(SparseStep):
    """Scaled steps among ever fewer couplings."""

    def __post_init__(self) -> None:
        check_known(self.problem, self.learner)

    @classmethod
    def applies(cls, learner: Learner, estep: EStep, problem: Problem) -> bool:
        """Where it was asked for."""
        return learner.decimate != "none"

    def direction(self, state: EMState, gradient: Gradient) -> Couplings:
        """To the minimum over what is kept at this iteration."""
        shares = shares_kept(final_shares(self.problem, self.learner), state.iteration)
        return decimated_step(state.couplings, gradient, self.curvature(state, gradient), shares)

    def settled(self, state: EMState, sizes: Sequence[float]) -> Sequence[bool]:
        """Nothing settles while couplings are still being dropped."""
        return [state.iteration >= NARROWING and ok for ok in super().settled(state, sizes)]

    def comparable_history(self, state: EMState, direction: Couplings) -> History:
        """None where the step drops couplings or takes some back: earlier steps were among others."""
        pairs = zip(state.couplings, direction, strict=True)
        same = all(np.array_equal(x == 0, x + dx == 0) for x, dx in pairs)
        return super().comparable_history(state, direction) if same else state.history.without_steps()


def check_known(problem: Problem, learner: Learner) -> None:
    """An InputError where the known sparsity is asked for and is not known."""
    if learner.decimate == "known" and problem.truth is None:
        raise InputError(
            "decimate='known' uses the number of true couplings that are not zero: give truth=, or a fraction"
        )


def final_shares(problem: Problem, learner: Learner) -> BlockShares:
    """The share of each block's couplings that may differ from zero in the end."""
    if learner.decimate == "known":
        assert problem.truth is not None
        return bond_shares(problem.truth)
    return tuple(1.0 if block.is_field else float(learner.decimate) for block in TABLE)


def shares_kept(shares: BlockShares, iteration: int) -> BlockShares:
    """The share of each block's couplings that is kept at an iteration: 1 at the first, falling to the one given."""
    return tuple(share ** (min(iteration, NARROWING) / NARROWING) for share in shares)


def decimated_step(
    couplings: Couplings, gradient: Gradient, curvature: Curvature, shares: BlockShares
) -> Couplings:
    """From the couplings to the minimum of q over the share of every block that is kept, the others at zero."""
    everything = Couplings(*(np.ones(x.shape, dtype=bool) for x in couplings))
    whole = step_by_rows(_restricted_rows, couplings, gradient, curvature, everything)
    landing = Couplings(*(x + dx for x, dx in zip(couplings, whole, strict=True)))
    return restricted_step(couplings, gradient, curvature, largest(landing, shares))


def restricted_step(
    couplings: Couplings, gradient: Gradient, curvature: Curvature, kept: Couplings
) -> Couplings:
    """From the couplings to the minimum of q over those that are kept, the others at zero."""
    return step_by_rows(_restricted_rows, couplings, gradient, curvature, kept)


def largest(couplings: Couplings, shares: BlockShares) -> Couplings:
    """True for the largest couplings of every block, as many as its share says."""
    return Couplings(*(_largest(x, share) for x, share in zip(couplings, shares, strict=True)))


def _largest(block: Array, share: float) -> Array:
    order = np.argsort(-np.abs(block), axis=None, kind="stable")
    chosen = np.zeros(block.size, dtype=bool)
    chosen[order[: round(share * block.size)]] = True
    return chosen.reshape(block.shape)


def _restricted_rows(rows: Array, G: Array, matrices: Array, freedom: Array, kept: Array) -> Array:
    steps: Array = -rows
    every = np.broadcast_to(matrices, (len(rows), *matrices.shape[1:]))
    for step, slope, C, f, own in zip(steps, G, every, freedom, kept, strict=True):
        if own.any():
            # What is dropped moves too, and what is kept makes up for that.
            pull = slope[own] / f - C[np.ix_(own, ~own)] @ step[~own]
            step[own] = np.linalg.solve(C[np.ix_(own, own)], pull)
    return steps
