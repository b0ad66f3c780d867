"""What to do about a fit that has not converged: the advice of summaries and pages alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kising.estimators import registry
from kising.options import Learner

if TYPE_CHECKING:
    from kising.learning.fit import Fit


@dataclass(frozen=True)
class Spelling:
    """How advice is written, so that it can be copied."""

    option: Callable[[str, object], str]
    """from the name of an option and its value"""
    errors: str
    """how to get standard errors"""
    continued: str
    """how to go on from where learning stopped; empty where there is no way"""


PYTHON: Final = Spelling(
    lambda name, value: f"{name}={value}", "see with_errors", ", or continue with start=fit.couplings"
)
FLAGS: Final = Spelling(lambda name, value: f"--{name.replace('_', '-')} {value}", "fit with --errors", "")


def cure(fit: Fit, spelling: Spelling) -> str:
    """How to fit again, for a fit that stalled or diverged."""
    if fit.outcome == "diverged":
        return f"{_tamer(fit, spelling)}, with fewer hidden spins, or with more data"
    limit = _limit(fit)
    if fit.iterations < limit:
        # It crawled: the averages of the estimator are what keeps it from arriving.
        return f"{spelling.option('estimator', registry.AUTO)}; more iterations would not help"
    return f"{spelling.option('max_iterations', 2 * limit)}{spelling.continued}"


def tighter_prior(learner: Learner) -> str:
    """A prior that bounds couplings more than the one that a fit had."""
    return "auto" if learner.prior == "none" else "1"


def _tamer(fit: Fit, spelling: Spelling) -> str:
    if fit.learner.step == "gradient":
        return f"a smaller {spelling.option('rate', '').rstrip(' =')}"
    return spelling.option("prior", tighter_prior(fit.learner))


def _limit(fit: Fit) -> int:
    """The largest number of iterations that the fit could make."""
    asked = fit.learner.max_iterations
    return registry.entry(fit.estimator).iteration_limit(fit.hidden) if asked is None else asked
