"""Check a sweep's directory: parts against their checksums, rows against their ids, both against the plan.

Nothing is changed and no lock is needed, so a running sweep can be verified.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from kising.sweep.plan import Plan, point_id_of, run_id_of
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.index import PartRows, id_text
from kising.sweep.store.parts import Damaged
from kising.sweep.store.run_store import Store

SHOWN: Final = 20
"""Most wrong rows, stray files and so on that are named; the others are only counted."""


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """What verification found; a run counts once, however many rows it has."""

    planned: int
    done: int  # planned runs with a done row
    failed: int  # planned runs with a failed row and no done one
    missing: int  # planned runs without a row
    orphans: int  # runs with a row that are not in the plan
    parts: int
    rows: int
    duplicates: int  # rows beyond the one that counts of each run
    numerics: dict[int, int]  # runs by the version of the numerics that made them
    damaged: tuple[Damaged, ...]  # parts that cannot be read: their runs count as missing
    wrong: int  # rows whose ids do not follow from their values
    examples: tuple[str, ...]  # the first of the wrong rows
    strays: tuple[str, ...]  # files in parts/ that are not parts
    temporaries: tuple[str, ...]  # unfinished files, removed by the next run
    quarantined: tuple[str, ...]  # parts set aside earlier
    runs_file: Literal["current", "stale", "missing"]  # whether runs.parquet agrees with the parts

    @property
    def sound(self) -> bool:
        """Nothing in the parts is damaged or wrong."""
        return not self.damaged and not self.wrong

    @property
    def complete(self) -> bool:
        """Every planned run is done."""
        return self.done == self.planned

    def lines(self) -> list[str]:
        """Describe the findings, one per line."""
        return list(_sentences(self))


def verify(directory: SweepDirectory, plan: Plan) -> VerifyReport:
    """Check everything; StoreError only if the directory cannot be read or was written by a newer kising."""
    store = Store.open(directory, writable=False)
    scan = store.scan()
    place = scan.find(plan.ids)
    here = place[place >= 0]
    failed = int(scan.failed[here].sum())
    wrong, examples = 0, []
    for part in store.identities():
        for sentence in _wrong_rows(part):
            wrong += 1
            if wrong <= SHOWN:
                examples.append(sentence)
    versions, counts = np.unique(scan.numerics, return_counts=True)
    return VerifyReport(
        planned=plan.n_runs,
        done=here.size - failed,
        failed=failed,
        missing=plan.n_runs - here.size,
        orphans=scan.ids.size - here.size,
        parts=scan.parts,
        rows=scan.rows,
        duplicates=scan.rows - scan.ids.size,
        numerics={int(version): int(count) for version, count in zip(versions, counts, strict=True)},
        damaged=scan.damaged,
        wrong=wrong,
        examples=tuple(examples),
        strays=scan.strays,
        temporaries=tuple(str(path.relative_to(directory.path)) for path in directory.temporaries()),
        quarantined=_quarantined(directory),
        runs_file=_runs_file(directory, store, plan),
    )


def _wrong_rows(part: PartRows) -> Iterator[str]:
    """Name the rows whose ids do not follow from their values."""
    misnamed = {point_id for point_id, values in part.points if not _follows(point_id, values)}
    for row, point_id in enumerate(part.point_ids):
        run_id = id_text(part.ids[row])
        if point_id in misnamed:
            yield f"{part.name}: run {run_id}: its parameters are not those of point {point_id}"
        elif run_id_of(point_id, int(part.realizations[row])) != run_id:
            yield f"{part.name}: run {run_id} is not realization {part.realizations[row]} of point {point_id}"


def _follows(point_id: str, values: dict[str, object]) -> bool:
    try:
        return point_id_of(values) == point_id
    except ValueError:  # no point has a parameter that is not finite
        return False


def _quarantined(directory: SweepDirectory) -> tuple[str, ...]:
    try:
        names = os.listdir(directory.quarantine)
    except OSError:
        return ()
    return tuple(sorted(name for name in names if not name.endswith(".reason.txt")))


def _runs_file(directory: SweepDirectory, store: Store, plan: Plan) -> Literal["current", "stale", "missing"]:
    if not directory.runs_file.exists():
        return "missing"
    return "current" if store.runs_file_is_current(plan.ids) else "stale"


def _sentences(report: VerifyReport) -> Iterator[str]:
    yield (
        f"{report.planned} runs planned: {report.done} done, {report.failed} failed, "
        f"{report.missing} missing; {report.rows} rows in {report.parts} parts"
    )
    for part in report.damaged:
        yield f"damaged: {part.name}: {part.reason}; the next `kising run` sets it aside and repeats its runs"
    if report.wrong:
        yield f"wrong: {report.wrong} rows whose ids do not follow from their values:"
        yield from _first(report.examples, report.wrong)
    if report.duplicates:
        yield f"{report.duplicates} rows are repeated or superseded: harmless, one row per run counts"
    if report.orphans:
        yield f"{report.orphans} finished runs are not in the plan: kept, in case an edit brings them back"
    if len(report.numerics) > 1:
        listed = ", ".join(f"{count} by version {version}" for version, count in report.numerics.items())
        yield f"several versions of the numerics made these runs: {listed}"
    for title, names in (
        ("not parts, left alone", report.strays),
        ("unfinished, removed by the next run", report.temporaries),
        ("set aside earlier", report.quarantined),
    ):
        if names:
            yield f"{len(names)} files {title}:"
            yield from _first(names, len(names))
    if report.runs_file == "stale":
        yield "runs.parquet differs from the parts, which count: `kising run` on this directory rewrites it"
    elif report.runs_file == "missing":
        yield "runs.parquet is missing: `kising run` on this directory writes it"


def _first(names: Iterable[str], count: int) -> Iterator[str]:
    shown = list(names)[:SHOWN]
    yield from (f"  {name}" for name in shown)
    if count > len(shown):
        yield f"  and {count - len(shown)} more"
