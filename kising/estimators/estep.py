"""How hidden spins are averaged over: the settings of an estimator, besides couplings and recording."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kising.errors import InputError
from kising.estimators.registry import ESTIMATORS, Estimator, resolve
from kising.estimators.sampling import Sampling
from kising.messages import listing
from kising.options import Learner

#: The damping of kernels where it is adaptive.
ADAPTIVE = -1.0


@dataclass(frozen=True, kw_only=True)
class EStep:
    """One way of averaging over hidden spins, decided for networks of one size."""

    estimator: Estimator
    """the one that runs: `auto` is decided"""
    options: Learner
    """what was asked for"""
    sampling: Sampling
    """how much is sampled at given couplings, and from which seed"""
    coarse: bool = False
    """whether precision auto means float32"""

    @classmethod
    def of(
        cls,
        options: Learner,
        hidden: int,
        sampling: Sampling | None = None,
        *,
        coupled: bool = False,
        gaps: bool = False,
    ) -> EStep:
        """The E-step of a network with this many hidden spins, coupled to each other or not, for options that were
        checked. `gaps` says whether entries of the recording are missing; an InputError where the estimator cannot
        treat them.
        """
        estimator = resolve(options.estimator, hidden, coupled=coupled, gaps=gaps)
        if gaps and estimator.gaps is None:
            able = listing(entry.name for entry in ESTIMATORS if entry.gaps)
            raise InputError(
                f"estimator {estimator.name} cannot treat missing entries; use auto, {able}, or "
                "missing='drop', which leaves out steps with gaps"
            )
        return cls(estimator=estimator, options=options, sampling=sampling or Sampling())

    def sampled(self, sampling: Sampling) -> EStep:
        """The same with another amount of sampling."""
        return replace(self, sampling=sampling)

    def coarser(self) -> EStep:
        """The same in float32, unless another precision was asked for."""
        return replace(self, coarse=True)

    @property
    def precision(self) -> str:
        """The type of messages."""
        asked = self.options.estep.precision
        return asked if asked != "auto" else "float32" if self.coarse else "float64"

    @property
    def tolerance(self) -> float:
        """A slice has converged when the mean square change of its messages is below this."""
        return self.options.estep.tolerance

    @property
    def damping(self) -> float:
        """Share of the old message kept at each iteration; ADAPTIVE for the schedule of `damping_at`."""
        damping = self.options.estep.damping
        return ADAPTIVE if damping == "adaptive" else float(damping)

    @property
    def max_iterations(self) -> int:
        """Iterations after which a slice counts as not converged."""
        return self.options.estep.max_iterations
