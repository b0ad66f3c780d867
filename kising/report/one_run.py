"""`kising show DIR RUN`: everything that is known about one run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from kising.errors import InputError
from kising.report.artifacts import couplings_of, traces_of
from kising.report.repeating import python_lines
from kising.report.tables import published_tables
from kising.sweep.labels import label_run, varied_keys
from kising.sweep.plan import Plan, Run
from kising.sweep.spec import read_spec
from kising.sweep.store.columns import COLUMNS, PARAMETERS
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.index import ID_DIGITS, id_text
from kising.sweep.store.run_store import Store

#: Most rows of a trace: the first ones, and the last.
FIRST_ROWS: Final = 5
LAST_ROWS: Final = 15
MOST_LISTED: Final = 10
_TOLD_APART: Final = (
    "run_id",
    "point_id",
    "realization",
    "status",
    "error",
    "traceback",
    "seconds",
    "cpu_seconds",
    "host",
)


def describe_run(path: Path, asked: str) -> Iterator[str]:
    """Parameters, outcome, errors, where it ran, trace and couplings where they were kept, and how to repeat it.

    `asked` is the id of a run, or the beginning of one.
    """
    directory = SweepDirectory.open(path)
    plan = Plan.of(read_spec(directory.sweep_file))
    run = find_run(plan, asked, path)
    runs, couplings, trace = _found(directory, run)
    keys = varied_keys(plan.spec)
    yield f"run {run.run_id} of {path}: {label_run(run, keys)}"
    row: dict[str, Any] = {str(key): value for key, value in runs.iloc[0].items()} if len(runs) else {}
    yield from _outcome(row)
    yield from ("", "Parameters (* varies in this sweep)")
    yield from _pairs(
        [("* " if key in keys else "  ") + key for key in _parameters(run)], _parameters(run).values()
    )
    results = {
        c.name: row[c.name] for c in COLUMNS if row and _is_result(c.name) and not pd.isna(row[c.name])
    }
    if results:
        yield from ("", "Results")
        yield from _pairs([f"  {key}" for key in results], results.values())
    if row and not pd.isna(row["traceback"]):
        yield from ("", "Traceback", *(f"  {line}" for line in str(row["traceback"]).rstrip().splitlines()))
    yield from _artifacts(couplings, trace)
    yield from ("", "To repeat it in Python")
    yield from (f"  {line}" for line in python_lines(run))


def _found(directory: SweepDirectory, run: Run) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The row of a run, its couplings and its trace, in the parts or in published tables; each may be empty."""
    if directory.is_published:
        tables = published_tables(directory)
        runs, couplings, trace = (
            frame[frame["run_id"] == run.run_id] for frame in (tables.runs, tables.couplings, tables.traces)
        )
        return runs, couplings, trace
    if not directory.parts.is_dir():
        return pd.DataFrame(), pd.DataFrame(), pd.DataFrame()
    ids = np.array([int(run.run_id, 16)], dtype=np.uint64)
    store = Store.open(directory, writable=False)
    runs, artifacts = store.read_runs(ids), store.artifacts(ids)
    return runs, couplings_of(artifacts, runs), traces_of(artifacts, runs)


def find_run(plan: Plan, asked: str, path: Path) -> Run:
    """The run of the plan whose id begins as asked; InputError where there is none, or more than one."""
    wanted = asked.strip().lower()
    digits = set("0123456789abcdef")
    cure = f"`kising status {path}` names failed runs and those in flight; the column run_id of runs.parquet has all"
    if not wanted or len(wanted) > ID_DIGITS or not set(wanted) <= digits:
        raise InputError(
            f"{asked!r} is not the id of a run, which has {ID_DIGITS} hexadecimal digits: {cure}"
        )
    free = 4 * (ID_DIGITS - len(wanted))
    found = (
        np.flatnonzero(plan.ids >> np.uint64(free) == np.uint64(int(wanted, 16)))
        if free
        else plan.order([wanted])
    )
    found = found[found >= 0]
    if not len(found):
        raise InputError(f"no run of {path} has the id {asked}: {cure}")
    if len(found) > 1:
        some = ", ".join(id_text(plan.ids[index]) for index in found[:MOST_LISTED])
        raise InputError(f"{len(found)} runs have ids that begin with {asked}: {some}; give more digits")
    return plan.run(int(found[0]))


def _outcome(row: dict[str, Any]) -> Iterator[str]:
    if not row:
        yield "pending: it has not run yet, or it is running now"
        return
    if row["status"] == "failed":
        yield f"failed: {row['error']}"
    else:
        iterations = "" if pd.isna(row["iterations"]) else f" after {row['iterations']} iterations"
        yield f"done: {row['outcome']}{iterations}"
    # Published tables do not name hosts.
    host = "on an unknown host" if pd.isna(row["host"]) or not row["host"] else f"on {row['host']}"
    seconds = "" if pd.isna(row["seconds"]) else f", in {row['seconds']:.3g} s"
    yield f"ran {host}{seconds}; made by kising {row['version']}, numerics {row['numerics']}"


def _parameters(run: Run) -> dict[str, Any]:
    values = run.point.values()
    named = {column.name: values[column.name] for column in PARAMETERS if values[column.name] is not None}
    return named | {"realization": run.realization}


def _is_result(name: str) -> bool:
    parameters = {column.name for column in PARAMETERS}
    return name not in parameters and name not in (
        *_TOLD_APART,
        "numerics",
        "version",
        "iterations",
        "outcome",
    )


def _pairs(names: list[str], values: Any) -> Iterator[str]:
    width = max(map(len, names), default=0)
    for name, value in zip(names, values, strict=True):
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        yield f"{name:{width}}  {text}"


def _artifacts(couplings: pd.DataFrame, trace: pd.DataFrame) -> Iterator[str]:
    if len(trace):
        yield from ("", f"Trace: {len(trace)} iterations")
        shown = trace.drop(columns=["run_id", "point_id", "realization"]).dropna(axis="columns", how="all")
        yield from _table(shown)
    if len(couplings):
        rows = []
        for block, part in couplings.groupby("block", sort=False):
            true, learned = (part[name].to_numpy(dtype=float) for name in ("true", "learned"))
            varies = np.ptp(true) > 0 and np.ptp(learned) > 0
            rows.append({
                "block": block, "couplings": len(part), "rms true": np.sqrt(np.mean(true**2)),
                "rms learned": np.sqrt(np.mean(learned**2)),
                "rms difference": np.sqrt(np.mean((learned - true) ** 2)),
                "correlation": np.corrcoef(true, learned)[0, 1] if varies else np.nan,
            })  # fmt: skip
        yield from ("", "Couplings (all of them: kising.load_results(DIR).couplings)")
        yield from _table(pd.DataFrame(rows))


def _table(frame: pd.DataFrame) -> Iterator[str]:
    cells = [[str(name) for name in frame.columns]]
    skipped = len(frame) - FIRST_ROWS - LAST_ROWS
    for number, row in enumerate(frame.itertuples(index=False)):
        if skipped > 0 and FIRST_ROWS <= number < FIRST_ROWS + skipped:
            if number == FIRST_ROWS:
                cells.append(["..."] + [""] * (len(frame.columns) - 1))
            continue
        cells.append([f"{value:.4g}" if isinstance(value, float) else str(value) for value in row])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        yield "  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
