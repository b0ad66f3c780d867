"""A Gaussian prior of every coupling: of a width given in bond scales, or of one that each block sets for itself.

`prior: auto` takes the width of block X from the couplings themselves, at every iteration:

    width² = mean of X² + mean of 1/(slices x freedom)        freedom: mean of 1 - tanh² of a row's field

the square of a usual coupling, plus that of its error if the hidden spins were seen, so that a block of zeros has a
width of its errors and not of zero. It needs no scale: the width follows the strength of a network and its sparsity.
"""

import numpy as np

from kising.blocks import BLOCKS, TABLE
from kising.estimators.gradient import Gradient
from kising.learning.layout import slopes
from kising.learning.state import Problem
from kising.model import Couplings
from kising.options import Learner

# Keeps a row that never varies from setting the width of its block.
LEAST_FREEDOM = 1e-2


def with_prior(gradient: Gradient, couplings: Couplings, problem: Problem, learner: Learner) -> Gradient:
    """The gradient that learning climbs: that of the likelihood, or of its product with the prior where one is asked
    for. Plain ascent is the paper's, and has none.
    """
    widths = widths_of(gradient, couplings, problem, learner)
    return gradient if widths is None else pulled(gradient, couplings, problem.n_slices, widths)


def widths_of(
    gradient: Gradient, couplings: Couplings, problem: Problem, learner: Learner
) -> dict[str, float] | None:
    """The width of the prior of every block, in units of its couplings; None without a prior."""
    if learner.step == "gradient" or learner.prior == "none":
        return None
    if learner.prior == "auto":
        return own_widths(gradient, couplings, problem.n_slices)
    pairs = zip(BLOCKS, problem.scales, strict=True)
    return {name: float(learner.prior) * sd for name, sd in pairs}


def own_widths(gradient: Gradient, couplings: Couplings, n_slices: int) -> dict[str, float]:
    """The width that each block sets for itself; 1 for a block that is not learned."""
    freedoms = {"visible": gradient.freedom_visible, "hidden": gradient.freedom_hidden}
    errors = {
        spins: float(np.mean(1.0 / (n_slices * np.maximum(freedom, LEAST_FREEDOM)))) if freedom.size else 0.0
        for spins, freedom in freedoms.items()
    }
    return {
        block.name: float(np.sqrt(np.mean(x**2) + errors[block.rows])) if x.size else 1.0
        for block, x in zip(TABLE, couplings, strict=True)
    }


def pulled(gradient: Gradient, couplings: Couplings, n_slices: int, widths: dict[str, float]) -> Gradient:
    """The gradient plus that of the prior N(0, width²) for each coupling, as a mean over slices.

    The prior moves a coupling with standard error ε by a fraction of about (ε / width)²: next to nothing where the
    recording determines it. Where it does not, because bonds saturate, the likelihood is largest anywhere out to
    infinity, and with the prior it is not.
    """
    slope = slopes(gradient)._asdict()
    blocks = {
        name: slope[name] - x / (widths[name] ** 2 * n_slices) for name, x in couplings._asdict().items()
    }
    return gradient._replace(**blocks)
