"""Steps towards couplings of which many are zero.

Both kinds work on the quadratic model that the scaled step climbs. For a row x of (J, K), or of L, with gradient G at
the present row x₀, it is

    q(x) = ½ f (x - x₀)ᵀ C (x - x₀) - G·(x - x₀),    f the freedom of the row (mean of 1 - m_i²), C as in `scaled`

Where biases or weights of inputs are learned, f C is the row's own matrix of `metric`, and f is 1.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kising.estimators.gradient import Gradient
from kising.learning.layout import Rows, from_rows, rows_of, slopes
from kising.learning.state import EMState, History, SpinProducts
from kising.learning.steps.metric import (
    LastAnchor,
    Metric,
    anchored,
    fits,
    has_fields,
    information_of,
    is_due,
)
from kising.learning.steps.scaled import ScaledStep, complete_information, freedom_of, ridged
from kising.model import Array, Couplings

RowSteps = Callable[[Array, Array, Array, Array, Array], Array]
"""The steps of some rows, from rows, slopes, C (one per row, or one for all), freedom and what the steps go by."""


class Curvature(NamedTuple):
    """f C of every row."""

    matrices: Rows
    """C, one for all rows, (1, n, n), or one per row"""
    freedom: Rows
    """f, one per row"""


@dataclass(frozen=True)
class SparseStep(ScaledStep):
    """A scaled step that leads to zeros."""

    information: LastAnchor[Metric] = field(default_factory=LastAnchor)

    def observe(self, state: EMState, *, threads: int) -> tuple[EMState, Gradient]:
        """The E-step; where fields are learned, the matrices of rows are recomputed at some iterations."""
        state, gradient = super().observe(state, threads=threads)
        own = has_fields(self.problem) and fits(self.problem.n_visible, self.problem.hidden)
        return anchored(state, self.problem, self.estep) if own else state, gradient

    def curvature(self, state: EMState, gradient: Gradient) -> Curvature:
        """f C of every row, as far as it is known."""
        if state.anchor is None:
            return averaged(gradient, self.problem.products)
        found = self.information.of(
            state.anchor, lambda x: information_of(x, self.problem.slices, self.prior)
        )
        return Curvature(found.matrices, found.weights)

    def comparable_history(self, state: EMState, direction: Couplings) -> History:
        """None where the matrices are new: earlier steps were measured by others."""
        new = state.anchor is not None and is_due(state.iteration, noisy=False)
        return state.history.without_steps() if new else state.history

    def landing(self, state: EMState, direction: Couplings, moved: Couplings) -> Couplings:
        """Acceleration moves no coupling away from zero where the step alone leads there."""
        return Couplings(
            *(
                np.where(x + dx == 0, 0.0, new)
                for new, x, dx in zip(moved, state.couplings, direction, strict=True)
            )
        )


def averaged(gradient: Gradient, products: SpinProducts) -> Curvature:
    """One C for all rows, and the mean weight of every row."""
    matrices = complete_information(gradient, products)
    return Curvature(Rows(*(ridged(C)[None] for C in matrices)), freedom_of(gradient))


def step_by_rows(
    row_steps: RowSteps, couplings: Couplings, gradient: Gradient, curvature: Curvature, by: Couplings
) -> Couplings:
    """The steps of all rows, those of (J, K) and those of L."""
    return from_rows(
        Rows(
            *map(
                row_steps,
                rows_of(couplings),
                rows_of(slopes(gradient)),
                *curvature,
                rows_of(by),
            )
        ),
        couplings,
    )
