"""How much work learning takes: how many iterations, and how many slices they go through.

Learning obeys these limits, and planning prices them. Nothing here loads numba or pandas.
"""

from __future__ import annotations

from typing import Final

from kising.estimators import registry
from kising.options import Learner

LARGEST_METRIC: Final = 30_000_000
"""most numbers in the metric of all rows together; larger networks use an average over rows"""
PILOT_SLICES: Final = 5_000
PILOT_ITERATIONS: Final = 60
"""how many slices each of several starts learns from, and for how many iterations, before the likeliest is chosen"""
EARLY_ITERATIONS: Final = 20
"""most iterations of estimators that are not exact on part of a long recording before the first on all of it: far from
the end, a few slices are enough to show the way"""
ROUND: Final = 6
"""most such iterations between two that go through all slices (`learning.steps.rounds`)"""
USUALLY_EARLY: Final = 12
USUALLY_WHOLE: Final = 1 / 3
"""for estimates of cost, measured: how many of the first iterations there are, and the share of the later ones that go
through all slices. It is one in ROUND + 1 while rounds lead somewhere; in the end, and where they do not, it is all."""
LEAST_PART: Final = 10_000
LARGEST_PART: Final = 40_000
"""how many slices they use at least and at most; between that, an eighth of the recording"""


def takes_rounds(learner: Learner, estimator: registry.Estimator, n_slices: int) -> bool:
    """Whether most iterations are made on part of the slices."""
    # Exact averages converge in few iterations anyway, plain ascent has a history of its own, and which couplings are
    # zero is for all slices to say.
    apt = (
        not estimator.unbiased and learner.step == "scaled" and not learner.l1 and learner.decimate == "none"
    )
    enough = learner.max_iterations is None or learner.max_iterations >= 3 * EARLY_ITERATIONS
    return apt and enough and is_long(n_slices)


def is_long(n_slices: int) -> bool:
    """Whether a recording is so long that part of it says much, and float32 saves more time than compiling takes."""
    return n_slices >= 2 * LEAST_PART


def slices_of_part(n_slices: int) -> int:
    """How many slices the iterations on part of a recording go through."""
    return min(max(LEAST_PART, n_slices // 8), LARGEST_PART) if is_long(n_slices) else n_slices


def passes(learner: Learner, estimator: registry.Estimator, n_slices: int, iterations: float) -> float:
    """How many times this number of iterations goes through the whole recording, on average."""
    if not takes_rounds(learner, estimator, n_slices):
        return iterations
    share, early = slices_of_part(n_slices) / n_slices, min(USUALLY_EARLY, iterations)
    later = USUALLY_WHOLE + (1 - USUALLY_WHOLE) * share
    return early * share + (iterations - early) * later


def iteration_limit(learner: Learner, hidden: int, *, gaps: bool = False) -> int:
    """Largest number of EM iterations: the one asked for, or the default of the estimator. `gaps` says whether entries
    of the recording are missing.
    """
    if learner.max_iterations is not None:
        return learner.max_iterations
    estimator = registry.resolve(learner.estimator, hidden, coupled=learner.hidden_couplings, gaps=gaps)
    return estimator.iteration_limit(hidden)
