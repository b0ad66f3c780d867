"""Steps towards couplings of which many are zero.

Both kinds work on the quadratic model that the scaled step climbs. For a row x of (J, K), or of L, with gradient G at
the present row x₀, it is

    q(x) = ½ f (x - x₀)ᵀ C (x - x₀) - G·(x - x₀),    f the freedom of the row (mean of 1 - m_i²), C as in `scaled`

Nothing is remembered between iterations but the couplings.
"""

from collections.abc import Callable

import numpy as np

from kising.estimators.gradient import Gradient
from kising.learning.layout import Rows, from_rows, rows_of, slopes
from kising.learning.state import EMState, SpinProducts
from kising.learning.steps.scaled import ScaledStep, complete_information, freedom_of
from kising.model import Array, Couplings

RowSteps = Callable[[Array, Array, Array, Array, Array], Array]
"""The steps of some rows, from rows, slopes, C, freedom and what the steps go by."""


class SparseStep(ScaledStep):
    """A scaled step that leads to zeros."""

    def landing(self, state: EMState, direction: Couplings, moved: Couplings) -> Couplings:
        """Acceleration moves no coupling away from zero where the step alone leads there."""
        return Couplings(
            *(
                np.where(x + dx == 0, 0.0, new)
                for new, x, dx in zip(moved, state.couplings, direction, strict=True)
            )
        )


def step_by_rows(
    row_steps: RowSteps, couplings: Couplings, gradient: Gradient, products: SpinProducts, by: Couplings
) -> Couplings:
    """The steps of all rows, those of (J, K) and those of L."""
    return from_rows(
        Rows(
            *map(
                row_steps,
                rows_of(couplings),
                rows_of(slopes(gradient)),
                complete_information(gradient, products),
                freedom_of(gradient),
                rows_of(by),
            )
        ),
        couplings,
    )
