"""An l1 penalty: every row goes to the minimum of q(x) + Σ_j λ_j |x_j| (`sparse` has q).

λ_j = l1 √(f C_jj / slices): l1 is a threshold in standard errors that the coupling would have alone and with the hidden
spins seen, the same for any length of the recording. The step vanishes where G = λ sign(x) for every x that is not
zero, and |G| ≤ λ for every x that is.
"""

from dataclasses import replace

import numpy as np

from kising.blocks import TABLE
from kising.estimators.estep import EStep
from kising.estimators.gradient import Gradient
from kising.kernels.jit import kernel
from kising.learning.layout import UNIT, Rows, flatten, from_rows, slopes
from kising.learning.state import EMState, Problem, SpinProducts
from kising.learning.steps.plain import PlainStep
from kising.learning.steps.scaled import complete_information, freedom_of
from kising.learning.steps.sparsity.sparse import Curvature, SparseStep, step_by_rows
from kising.model import Array, Couplings
from kising.options import Learner

# Of coordinate descent. It starts at the present couplings, so that too few passes make a step shorter, not wrong.
PASSES = 100
SMALLEST_CHANGE = 1e-10


class PenalisedStep(SparseStep):
    """Scaled steps with an l1 penalty."""

    @classmethod
    def applies(cls, learner: Learner, estep: EStep, problem: Problem) -> bool:
        """Where there is a penalty."""
        return learner.l1 > 0

    def direction(self, state: EMState, gradient: Gradient) -> Couplings:
        """From the couplings to the minimum of q + Σ λ |x|."""
        penalty = _penalty(gradient, self.problem, self.learner)
        return penalised_step(state.couplings, gradient, self.curvature(state, gradient), penalty)


class PenalisedAscent(PlainStep):
    """Plain ascent with an l1 penalty."""

    @classmethod
    def applies(cls, learner: Learner, estep: EStep, problem: Problem) -> bool:
        """Where both were asked for."""
        return super().applies(learner, estep, problem) and learner.l1 > 0

    def advance(self, state: EMState, direction: Couplings, gradient: Gradient) -> EMState:
        """Climb, then pull every coupling towards zero."""
        climbed = super().advance(state, direction, gradient)
        penalty = _penalty(gradient, self.problem, self.learner)
        moved = soft_threshold(climbed.couplings, penalty, self.learner.rate)
        # Momentum is that of the whole move, so that it vanishes where the penalised likelihood is largest.
        velocity = flatten(moved, UNIT) - flatten(state.couplings, UNIT)
        return replace(climbed, couplings=moved, history=climbed.history._replace(velocity=velocity))


def _penalty(gradient: Gradient, problem: Problem, learner: Learner) -> Couplings:
    return penalties(gradient, problem.products, problem.n_slices, learner.l1)


def penalties(gradient: Gradient, products: SpinProducts, n_slices: int, l1: float) -> Couplings:
    """λ of every coupling, in units of the gradient of the mean log-likelihood."""

    def of_rows(C: Array, freedom: Array) -> Array:
        information = freedom[:, None] * np.diag(C)[None, :]
        result: Array = l1 * np.sqrt(information / n_slices)
        return result

    rows = Rows(*map(of_rows, complete_information(gradient, products), freedom_of(gradient)))
    found = from_rows(rows, slopes(gradient))
    # Fields are no bonds: they are not driven to zero.
    return found._replace(**{x.name: 0.0 * getattr(found, x.name) for x in TABLE if x.is_field})


def penalised_step(
    couplings: Couplings, gradient: Gradient, curvature: Curvature, penalty: Couplings
) -> Couplings:
    """From the couplings to the minimum of q + Σ λ |x|, row by row."""
    return step_by_rows(_descend_rows, couplings, gradient, curvature, penalty)


def _descend_rows(rows: Array, G: Array, C: Array, freedom: Array, penalty: Array) -> Array:
    return descend(rows, G, C, freedom, penalty, PASSES, SMALLEST_CHANGE) - rows


@kernel
def descend(
    x0: Array, G: Array, matrices: Array, f: Array, penalty: Array, passes: int, smallest_change: float
) -> Array:
    """The rows that minimise q + Σ λ |x|, by coordinate descent from x0: one coordinate at a time is set to its
    minimum given the others, less the threshold. `matrices` is C, one for all rows or one per row.
    """
    rows, n = x0.shape
    result = x0.copy()
    residual = np.empty(n)
    for i in range(rows):
        x = result[i]
        C = matrices[i if len(matrices) > 1 else 0]
        # What is left of the slope at x: G - f C (x - x0).
        residual[:] = G[i]
        for _ in range(passes):
            largest = 0.0
            for j in range(n):
                curvature = f[i] * C[j, j]
                whole = curvature * x[j] + residual[j]
                cut = abs(whole) - penalty[i, j]
                new = np.copysign(cut, whole) / curvature if cut > 0.0 else 0.0
                change = new - x[j]
                if change != 0.0:
                    x[j] = new
                    for k in range(n):
                        residual[k] -= f[i] * C[k, j] * change
                    largest = max(largest, abs(change))
            if largest < smallest_change:
                break
    return result


def soft_threshold(couplings: Couplings, penalty: Couplings, rate: float) -> Couplings:
    """Every coupling nearer to zero by rate λ, and no further than zero."""
    return Couplings(
        *(
            np.sign(x) * np.maximum(np.abs(x) - rate * cost, 0.0)
            for x, cost in zip(couplings, penalty, strict=True)
        )
    )
