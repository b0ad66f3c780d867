"""A Gaussian prior of every coupling: of a width given in bond scales, or of one that each block sets for itself.

`prior: auto` takes the width of block X from the couplings themselves, at every iteration:

    width² = Σ X²/(n - 2) + mean of 1/(slices x freedom)        freedom: mean of 1 - tanh² of a row's field

the square of a usual coupling, plus that of its error if the hidden spins were observed, so that a block of zeros has a
width of its errors and not of zero. It needs no scale: the width follows the strength of a network and its sparsity.
Where `l1` or `decimate` asks for sparse couplings there is no such prior.

A width that is estimated from the n couplings of its block is too narrow about half of the time. It then pulls them
too hard, and makes their errors too small. James and Stein divide by n - 2: on average over networks 1/width², and with
it the pull, is then that of a known width. Of b and G there may be very few, such as two biases of two hidden spins.
They borrow: to their own couplings, up to BORROWED are added that have the mean square of the block of visible spins
with the same origin, which is h or F.

M is divided by n, and borrows nothing. A wider prior lets sampled fits of small networks with gaps settle far out,
where hidden spins keep their states for long.

The prior moves a coupling with standard error ε by a fraction of about (ε / width)²: next to nothing where the
recording determines it. Where it does not, because bonds saturate, the likelihood is largest anywhere out to infinity,
and with the prior it is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kising.blocks import BLOCKS, TABLE
from kising.estimators.gradient import Gradient
from kising.learning.layout import Rows, rows_of, slopes
from kising.learning.state import Problem
from kising.model import Array, BondScales, Couplings
from kising.options import Learner

# Keeps a row that never varies from setting the width of its block.
LEAST_FREEDOM = 1e-2
# Enough that two biases do not decide, few enough that fifty do.
BORROWED = 10
# The block that lends, by the block that borrows.
LENDERS = {
    hidden.name: visible.name
    for hidden in TABLE
    for visible in TABLE
    if hidden.is_field
    and (hidden.rows, visible.rows, visible.columns) == ("hidden", "visible", hidden.columns)
}


@dataclass(frozen=True)
class Prior:
    """The prior of a problem."""

    width: float | None
    """in bond scales; None: each block sets its own"""
    scales: BondScales
    n_slices: int

    @classmethod
    def of(cls, problem: Problem, learner: Learner) -> Prior | None:
        """The prior that is asked for, or None. Plain ascent, the paper's rule, has none."""
        sparse = learner.l1 > 0 or learner.decimate != "none"
        if learner.step == "gradient" or learner.prior == "none" or (learner.prior == "auto" and sparse):
            return None
        width = None if learner.prior == "auto" else float(learner.prior)
        return cls(width, problem.scales, problem.n_slices)

    def widths(self, couplings: Couplings, freedom: Rows) -> dict[str, float]:
        """The width of every block, in units of its couplings; `freedom` is the mean of 1 - tanh² of every row."""
        if self.width is not None:
            return {name: self.width * sd for name, sd in zip(BLOCKS, self.scales, strict=True)}
        errors = {
            spins: float(np.mean(1.0 / (self.n_slices * np.maximum(x, LEAST_FREEDOM)))) if x.size else 0.0
            for spins, x in freedom._asdict().items()
        }
        return {
            block.name: float(np.sqrt(_mean_square(block.name, couplings) + errors[block.rows]))
            if x.size
            else 1.0
            for block, x in zip(TABLE, couplings, strict=True)
        }

    def precision(self, couplings: Couplings, freedom: Rows) -> Rows:
        """1/(width² slices) of every coupling, row by row: what the prior adds to the information per slice."""
        return rows_of(precisions(self.widths(couplings, freedom), couplings, self.n_slices))

    def pulled(self, gradient: Gradient, couplings: Couplings) -> Gradient:
        """The gradient plus that of the prior N(0, width²) for each coupling, as a mean over slices."""
        freedom = Rows(gradient.freedom_visible, gradient.freedom_hidden)
        precision = precisions(self.widths(couplings, freedom), couplings, self.n_slices)
        triples = zip(slopes(gradient), couplings, precision, strict=True)
        return gradient._replace(**Couplings(*(slope - x * p for slope, x, p in triples))._asdict())


def _mean_square(name: str, couplings: Couplings) -> float:
    """Σ X²/(n - 2) of a block that is not empty, with what it borrows; of M the plain mean."""
    own: Array = getattr(couplings, name)
    if name == "M":
        return float(np.mean(own**2))
    total, n = float(np.sum(own**2)), own.size
    if name in LENDERS:
        lender: Array = getattr(couplings, LENDERS[name])
        borrowed = min(BORROWED, lender.size)
        total, n = total + borrowed * float(np.mean(lender**2)), n + borrowed
    return total / max(n - 2, 1)


def precisions(widths: dict[str, float], like: Couplings, n_slices: int) -> Couplings:
    """1/(width² slices) for each coupling."""
    return Couplings(
        *(np.full_like(x, 1.0 / (widths[name] ** 2 * n_slices)) for name, x in like._asdict().items())
    )
