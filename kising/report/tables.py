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
from kising.sweep.status import REPORT
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.parquet import read_frame, read_runs
from kising.sweep.store.run_store import Store

if TYPE_CHECKING:
    import pandas as pd

# While a sweep runs, its tables are rewritten after this many seconds, and for at most a fiftieth of the time.
TABLES_SECONDS = 60.0
TABLES_SHARE = 50


class Frames(NamedTuple):
    """The tables as data frames; the last two are empty unless the sweep file asks for artifacts."""

    runs: pd.DataFrame
    """one row per run"""
    summary: pd.DataFrame
    """one row per point"""
    scaling: pd.DataFrame
    """one row per slope"""
    couplings: pd.DataFrame
    """one row per coupling"""
    traces: pd.DataFrame
    """one row per EM iteration"""


class Tables:
    """runs.parquet, summary.parquet, scaling.parquet and artifacts: always complete, rewritten as often as is cheap."""

    def __init__(self, store: Store, plan: Plan) -> None:
        self._store, self._plan = store, plan
        self._written = time.monotonic()
        self._took = 0.0

    def write(self) -> Frames:
        """Write all of them from the parts."""
        start = time.monotonic()
        self._store.write_runs(self._plan.ids)
        frames = self.compute()
        derived = _derived(frames)
        for name, frame in derived.items():
            self._store.write_table(name, frame)
        self._store.note_tables(["runs", *derived])
        self._written = time.monotonic()
        self._took = self._written - start
        return frames

    def compute(self) -> Frames:
        """Compute the tables from the parts."""
        runs = self._store.read_runs(self._plan.ids)
        artifacts = self._store.artifacts(self._plan.ids) if self._plan.spec.keep.asks else []
        return Frames(
            runs, summarise(runs), scaling(runs), couplings_of(artifacts, runs), traces_of(artifacts, runs)
        )

    def refresh(self) -> None:
        """Write the tables if that is due."""
        age = time.monotonic() - self._written
        if age >= max(TABLES_SECONDS, TABLES_SHARE * self._took):
            self.write()


def derived(store: Store, plan: Plan) -> dict[str, pd.DataFrame]:
    """The tables besides runs.parquet that a sweep should have on disk, by name."""
    return _derived(Tables(store, plan).compute())


def _derived(frames: Frames) -> dict[str, pd.DataFrame]:
    artifacts = {"couplings": frames.couplings, "traces": frames.traces}
    kept = {name: frame for name, frame in artifacts.items() if len(frame)}
    return {"summary": frames.summary, "scaling": frames.scaling, **kept}


def published_tables(directory: SweepDirectory) -> Frames:
    """The tables of a directory that has no parts: runs and artifacts as they were published, the others from these."""
    runs = read_runs(directory.runs_file)
    empty = {"couplings": couplings_of([], runs), "traces": traces_of([], runs)}
    files = {name: directory.path / f"{name}.parquet" for name in empty}
    kept = {name: read_frame(file, name) if file.exists() else empty[name] for name, file in files.items()}
    return Frames(runs, summarise(runs), scaling(runs), kept["couplings"], kept["traces"])


def refresh_tables(path: Path) -> Frames:
    """Rewrite a directory's tables from its parts; if a driver is at work there, only compute them. Published tables
    are read as they are.
    """
    directory = SweepDirectory.open(path)
    if directory.is_published:
        return published_tables(directory)
    plan = Plan.of(read_spec(directory.sweep_file))
    try:
        with directory.lock(REPORT):
            store = Store.open(directory)
            store.check_whole()
            return Tables(store, plan).write()
    except LockedError:
        return Tables(Store.open(directory, writable=False), plan).compute()
