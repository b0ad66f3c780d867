"""The estimators: one entry for each, which states what it can do and where its code is.

To add an estimator, write a module (or a subpackage) with a function

    estimate(couplings, chunk, out, *, estep, first) -> Errors | None

that fills an `Estimate` (see `chunks.py`), and add one entry here. Everything else follows from the entry: the names
that sweep files, keyword arguments and flags accept, which options have an effect, limits, the planned cost, and the
tests that all estimators must pass. This module loads no compiler: the code of an estimator is imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kising.messages import listing

if TYPE_CHECKING:
    from kising.options import Learner

AUTO = "auto"
#: Largest Nh for which learning with exact averages is no slower than with samples; `auto` uses this limit.
AUTO_LARGEST_EXACT = 8
#: The same for networks whose hidden spins are coupled to each other: exact averages then cost 4^Nh per step.
AUTO_LARGEST_COUPLED = 6

Operations = Callable[[int, int, "Learner"], float]


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """What one estimator can do."""

    name: str
    code: str
    """module:function, inside kising.estimators; imported on first use"""
    summary: str
    """one line for the documentation"""
    operations: Operations = lambda nv, nh, _: 7.0 * nv * (20 + nh)
    """elementary operations per slice of one E-step, from (Nv, Nh, learner); weights fitted to measured kernels"""
    path_operations: Operations | None = None
    """the same for networks with M"""
    likelihood: str = "free energy of an expansion"
    """what its log-likelihood is"""
    path_likelihood: str | None = None
    """the same for networks with M and for recordings with missing entries, where it is something else"""
    largest_hidden: int | None = None
    """the largest Nh it takes; None: any"""
    paths: str | None = None
    """module, inside kising.estimators, with `gradient`, `moments`, `log_likelihood` and `sample` for networks with
    couplings M among hidden spins, whose slices are coupled in time (`steps.py`); None: it cannot treat M"""
    gaps: str | None = None
    """the same for recordings with missing entries, with or without M; None: it cannot treat them"""
    largest_coupled: int | None = None
    """the largest Nh of such networks that it takes; None: any"""
    unbiased: bool = False
    """whether its averages converge to the exact ones, so that its gradient is that of the likelihood"""
    samples: bool = False
    """whether averages are noisy; the subpackage then has `first_chains` and `sweep` beside `estimate`"""
    iterates: bool = False
    """whether every slice is iterated to a tolerance"""
    reads: tuple[str, ...] = ()
    """options that have an effect with this estimator but not with all of them"""
    iterations: int | None = None
    """number of EM iterations that learning usually takes, if that depends on the estimator alone"""
    most_iterations: int = 300
    """default limit on the number of EM iterations"""
    most_per_hidden: int = 0
    """the same per hidden spin, where that is more"""

    @property
    def knows_M(self) -> bool:
        """Whether it treats networks with couplings M among hidden spins."""
        return self.paths is not None

    def iteration_limit(self, hidden: int) -> int:
        """Default limit on the number of EM iterations for a network with this many hidden spins."""
        return max(self.most_iterations, self.most_per_hidden * hidden)

    def path_code(self, *, gaps: bool) -> ModuleType:
        """The module for slices that depend on each other, in a recording with or without missing entries."""
        return import_module(f"kising.estimators.{self.gaps if gaps else self.paths}")

    def operations_of(self, nv: int, nh: int, learner: Learner, *, coupled: bool) -> float:
        """Elementary operations per slice of one E-step; `coupled` says whether the network has M."""
        operations = self.path_operations if coupled and self.path_operations else self.operations
        return operations(nv, nh, learner)

    @property
    def estimate(self) -> Callable[..., Any]:
        """The function that fills in the averages of a chunk of slices."""
        module, _, name = self.code.partition(":")
        function: Callable[..., Any] = getattr(import_module(f"kising.estimators.{module}"), name)
        return function


def _bp_operations(nv: int, nh: int, learner: Learner) -> float:
    messages = 8.0 * nv * (2 + nh)
    if "iterated" in learner.correlations:
        return messages + nv * (10 + 1.2 * nh**2)
    return messages + (0.0 if learner.correlations == "pair" else 0.25 * nv * nh * (nh + 8))


ESTIMATORS = (
    Estimator(
        name="exact",
        code="exact.enumeration:estimate",
        summary="enumeration of the 2^Nh hidden states of every slice",
        operations=lambda nv, nh, _: 0.35 * (2.0**nh * (nv + 10) + 40 * nv),
        likelihood="exact",
        # 2^20 states take about 0.1 s per slice with a hundred visible spins: more would take too long.
        largest_hidden=20,
        paths="exact.paths",
        gaps="paths.enumerated",
        path_operations=lambda nv, nh, _: 2.0**nh * (4 * nv + 4 * nh) + 4.0**nh * 6 + 40 * nv,
        # 4^8 transitions take about 0.2 ms per step.
        largest_coupled=8,
        unbiased=True,
    ),
    Estimator(
        name="gibbs",
        code="gibbs.chains:estimate",
        paths="paths.sampled",
        gaps="paths.sampled",
        path_operations=lambda nv, nh, _: 0.8 * (nv + nh) * (nh + 6),
        summary="Gibbs sampling, with one chain per slice; as accurate as exact up to noise, which it measures",
        operations=lambda nv, nh, _: 0.55 * nv * (nh + 20),
        likelihood="importance sampling",
        path_likelihood="annealed sampling",
        unbiased=True,
        samples=True,
        iterations=250,
        # Hidden spins of a large network take long to find their roles (with 50 of them, 1,083 to 4,203 iterations
        # from 20 random starts), and a verdict does not depend on the limit.
        most_iterations=4000,
        most_per_hidden=160,
    ),
    Estimator(
        name="bp",
        code="bp.propagation:estimate",
        summary="belief propagation on the replicated system; exact where no visible spin has two hidden inputs",
        operations=_bp_operations,
        likelihood="Bethe approximation",
        iterates=True,
        reads=("learner.correlations", "learner.estep.precision"),
    ),
    Estimator(
        name="tap",
        code="tap:estimate",
        summary="the TAP equations, an expansion to second order in K",
        iterates=True,
    ),
    Estimator(
        name="mean-field",
        code="tap:estimate_mean_field",
        summary="naive mean field, first order in K",
        iterates=True,
    ),
)
NAMES = (AUTO, *(entry.name for entry in ESTIMATORS))
"""What the option `estimator` accepts."""


@cache
def entry(name: str) -> Estimator:
    """The entry of an estimator, which is not `auto`."""
    return next(found for found in ESTIMATORS if found.name == name)


def auto_limit(*, coupled: bool) -> int:
    """The largest Nh for which `auto` is exact; `coupled` says whether hidden spins are coupled to each other."""
    return AUTO_LARGEST_COUPLED if coupled else AUTO_LARGEST_EXACT


def resolve(name: str, hidden: int, *, coupled: bool = False, gaps: bool = False) -> Estimator:
    """The estimator that runs on a network with this many hidden spins; `coupled` says whether it has M, `gaps` whether
    entries of the recording are missing. Learning from samples is then faster than from sums over all states.

    Without hidden spins and gaps there is nothing to average over, and every estimator is exact.
    """
    if not hidden and not gaps:
        return entry("exact")
    if name != AUTO:
        return entry(name)
    if gaps:
        return entry("gibbs")
    return entry("exact" if hidden <= auto_limit(coupled=coupled) else "gibbs")


def candidates(name: str) -> tuple[Estimator, ...]:
    """The estimators that a name may stand for: two for `auto`."""
    return (resolve(name, 0), resolve(name, AUTO_LARGEST_EXACT + 1)) if name == AUTO else (entry(name),)


def iteration_limits() -> str:
    """The default limits on EM iterations, in words."""
    groups: dict[tuple[int, int], list[str]] = {}
    for found in ESTIMATORS:
        groups.setdefault((found.most_iterations, found.most_per_hidden), []).append(found.name)
    return "; ".join(
        f"{least} with {listing(names)}" + (f", or {each} per hidden spin where that is more" if each else "")
        for (least, each), names in sorted(groups.items())
    )


def largest_iteration_limit(hidden: int) -> int:
    """As many EM iterations as some estimator may make by default."""
    return max(found.iteration_limit(hidden) for found in ESTIMATORS)


def why_sampled(name: str, hidden: object, *, coupled: bool = False, gaps: bool = False) -> str | None:
    """What to add to the name of the sampler in a message; None where the estimator does not sample."""
    if name == AUTO and gaps:
        return ", which auto uses where entries are missing"
    if name == AUTO and isinstance(hidden, int) and resolve(name, hidden, coupled=coupled).samples:
        kind = "hidden spins that are coupled" if coupled else "hidden spins"
        return f", which auto uses for more than {auto_limit(coupled=coupled)} {kind}"
    return "" if name != AUTO and entry(name).samples else None
