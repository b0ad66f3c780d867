"""Which runs of a plan are finished, and which `kising run` would make now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from kising.messages import agree, listing, plural
from kising.sweep.store.artifacts import lacking_artifacts

if TYPE_CHECKING:
    from kising.sweep.plan import Plan
    from kising.sweep.store.index import Scan
    from kising.sweep.store.run_store import Store

Stale = Literal["keep", "redo"]
_Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How the runs of a plan stand, as masks in its order."""

    known: _Mask
    """there is a row"""
    failed: _Mask
    """that row is of a failed run"""
    stale: _Mask
    """it is of a run that was done by other numerics"""
    lacking: _Mask
    """an artifact that the sweep asks for is not there"""
    versions: tuple[int, ...] = ()
    """the numerics of stale rows"""

    @classmethod
    def of(cls, plan: Plan, store: Store, scan: Scan, *, numerics: int) -> Standing:
        """How they stand for this version of the numerics."""
        if not len(scan.ids):
            none = np.zeros(plan.n_runs, dtype=bool)
            return cls(known=none, failed=none, stale=none, lacking=none)
        place = scan.find(plan.ids)
        known = place >= 0
        failed = known & scan.failed[place]
        stale = known & ~failed & (scan.numerics[place] != numerics)
        return cls(
            known=known,
            failed=failed,
            stale=stale,
            lacking=lacking_artifacts(plan, store),
            versions=tuple(sorted({int(number) for number in scan.numerics[place[stale]]})),
        )

    def to_do(self, *, stale: Stale | None = None, retry_failed: bool = False) -> _Mask:
        """The runs that a session makes. Failed and stale ones are repeated only where that is asked for; runs that
        lack an artifact are: their rows do not change.
        """
        todo = ~self.known | (self.lacking & ~self.failed & ~self.stale)
        if stale == "redo":
            todo |= self.stale
        if retry_failed:
            todo |= self.failed
        return todo

    def done(self, *, stale: Stale | None = None) -> _Mask:
        """The runs that are done, for a session that keeps stale ones or does not."""
        done = ~self.to_do() & ~self.failed
        return done if stale == "keep" else done & ~self.stale

    def stale_note(self, numerics: int) -> str:
        """That there are stale rows, in words."""
        count = int(self.stale.sum())
        return (
            f"{plural(count, 'finished run')} {agree(count, 'was', 'were')} made by numerics version "
            f"{listing(map(str, self.versions))}, this is version {numerics}"
        )
