"""The results of a sweep as data frames: what `run_sweep` and `load_results` return."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kising.sweep.plan import Plan
from kising.sweep.spec import read_spec
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.run_store import Store

if TYPE_CHECKING:
    import pandas as pd

    from kising.report.tables import Frames
    from kising.sweep.drive.counts import Outcome

_TABLES: Final = ("runs", "summary", "scaling")
_ARTIFACTS: Final = ("couplings", "traces")


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """The results of a sweep so far. Equal if all fields are; NaN equals NaN."""

    runs: pd.DataFrame
    """one row per run: parameters, status, scores"""
    summary: pd.DataFrame
    """one row per point: convergence fractions with intervals, RMSE mean, sd, sem"""
    scaling: pd.DataFrame
    """slopes of log RMSE on log T: one row per block and group of points that differ in length only"""
    couplings: pd.DataFrame
    """one row per coupling of the runs that kept them: true, at the start, learned; empty unless `keep` asks"""
    traces: pd.DataFrame
    """one row per EM iteration of the runs that kept them; empty unless `keep` asks"""
    directory: Path
    """where the files are"""
    outcome: Outcome | None = None
    """how this session went; None where nothing was run"""

    @classmethod
    def of(cls, frames: Frames, directory: Path, outcome: Outcome | None = None) -> Results:
        """The results that these tables hold."""
        return cls(*frames, directory=directory, outcome=outcome)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Results):
            return NotImplemented
        same = (self.directory, self.outcome) == (other.directory, other.outcome)
        return same and all(
            getattr(self, name).equals(getattr(other, name)) for name in (*_TABLES, *_ARTIFACTS)
        )

    # Data frames have no hash.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        status = ", ".join(f"{count} {name}" for name, count in self.runs["status"].value_counts().items())
        shown = [*_TABLES, *(name for name in _ARTIFACTS if len(getattr(self, name)))]
        shapes = (f".{name}: {' x '.join(map(str, getattr(self, name).shape))}" for name in shown)
        return (
            f"Results in {str(self.directory)!r}: {len(self.runs)} runs ({status or 'none yet'})\n"
            f"  data frames, rows x columns: {', '.join(shapes)}"
        )


def load_results(directory: str | Path) -> Results:
    """Read the results in a sweep's directory so far. Runs nothing, and may be called while the sweep runs.

    They are read from the committed parts, so they include the last commit; published tables are read as
    they are.
    """
    from kising.report.tables import Tables, published_tables

    path = Path(directory)
    opened = SweepDirectory.open(path)
    if opened.is_published:
        return Results.of(published_tables(opened), path)
    plan = Plan.of(read_spec(opened.sweep_file))
    return Results.of(Tables(Store.open(opened, writable=False), plan).compute(), path)
