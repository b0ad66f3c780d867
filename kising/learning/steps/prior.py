"""A Gaussian prior of every coupling, of a width given in bond scales."""

from kising.estimators.gradient import Gradient
from kising.learning.layout import slopes
from kising.learning.state import Problem
from kising.model import Couplings
from kising.options import Learner


def with_prior(gradient: Gradient, couplings: Couplings, problem: Problem, learner: Learner) -> Gradient:
    """The gradient that learning climbs: that of the likelihood, or of its product with the prior where one is asked
    for. Plain ascent is the paper's, and has none.
    """
    if learner.step == "gradient" or learner.prior == "none":
        return gradient
    return pulled(gradient, couplings, problem, float(learner.prior))


def pulled(gradient: Gradient, couplings: Couplings, problem: Problem, width: float) -> Gradient:
    """The gradient plus that of the prior N(0, (width sd_X)²) for each coupling X, as a mean over slices.

    The prior moves a coupling with standard error ε by a fraction of about (ε / width sd_X)²: next to nothing where
    the recording determines it. Where it does not, because bonds saturate, the likelihood is largest anywhere out to
    infinity, and with the prior it is not.
    """
    blocks = (
        slope - x / ((width * sd) ** 2 * problem.n_slices)
        for slope, x, sd in zip(slopes(gradient), couplings, problem.scales, strict=True)
    )
    return gradient._replace(**Couplings(*blocks)._asdict())
