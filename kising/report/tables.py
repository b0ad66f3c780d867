"""The tables of a sweep on disk: runs, summary and scaling, made from its parts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kising.errors import LockedError
from kising.report.artifacts import couplings_of, traces_of
from kising.report.summary import scaling, summarise
from kising.sweep.plan import Plan
from kising.sweep.spec import read_spec
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.parquet import Store

if TYPE_CHECKING:
    import pandas as pd

# While a sweep runs its tables are written anew after this long, and never for more than a fiftieth of the
# time.
TABLES_SECONDS = 60.0
TABLES_SHARE = 50


class Frames(NamedTuple):
    """The tables; the last two are empty where nothing was kept."""

    runs: pd.DataFrame
    """a row a run"""
    summary: pd.DataFrame
    """a row a point"""
    scaling: pd.DataFrame
    """a row a slope"""
    couplings: pd.DataFrame
    """a row a coupling that was kept"""
    traces: pd.DataFrame
    """a row an iteration that was kept"""


class Tables:
    """runs.parquet, summary.parquet and scaling.parquet, and what was kept: always whole, and as fresh as is cheap."""

    def __init__(self, store: Store, plan: Plan) -> None:
        self._store, self._plan = store, plan
        self._written = time.monotonic()
        self._took = 0.0

    def write(self) -> Frames:
        """Write all of them from the parts."""
        start = time.monotonic()
        self._store.write_runs(self._plan.ids)
        frames = self.compute()
        self._store.write_table("summary", frames.summary)
        self._store.write_table("scaling", frames.scaling)
        for name, kept in (("couplings", frames.couplings), ("traces", frames.traces)):
            if len(kept):
                self._store.write_table(name, kept)
        self._written = time.monotonic()
        self._took = self._written - start
        return frames

    def compute(self) -> Frames:
        """The tables, from the parts."""
        runs = self._store.read_runs(self._plan.ids)
        kept = self._store.kept(self._plan.ids) if self._plan.spec.keep.asks else []
        return Frames(runs, summarise(runs), scaling(runs), couplings_of(kept, runs), traces_of(kept, runs))

    def refresh(self) -> None:
        """Write them if that is due."""
        age = time.monotonic() - self._written
        if age >= max(TABLES_SECONDS, TABLES_SHARE * self._took):
            self.write()


def refresh_tables(path: Path) -> Frames:
    """Write a directory's tables anew from its parts; where a driver is at work, only compute them."""
    directory = SweepDirectory.open(path)
    plan = Plan.of(read_spec(directory.sweep_file))
    try:
        with directory.lock("kising report"):
            return Tables(Store.open(directory), plan).write()
    except LockedError:
        return Tables(Store.open(directory, writable=False), plan).compute()
