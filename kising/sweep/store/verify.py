"""Check a sweep's directory: parts against their checksums and the log, rows against their ids, all of it against the
plan, and the tables against the parts.

Nothing is changed and no lock is needed, so a running sweep can be verified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from kising.messages import plural
from kising.sweep.plan import Plan
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.identities import misfits
from kising.sweep.store.inventory import Inventory
from kising.sweep.store.parquet import identities_of, outcomes_in, read_runs_table
from kising.sweep.store.parts import Damaged, PartFiles
from kising.sweep.store.records import TableDigests
from kising.sweep.store.run_store import Store

if TYPE_CHECKING:
    import pandas as pd

TableState = Literal["current", "stale", "missing"]
Derive = Callable[[Store, Plan], "Mapping[str, pd.DataFrame]"]
"""Makes the tables that follow from the runs, by name."""

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
    inventory: Inventory  # parts that have vanished, or that the log does not hold
    tables: Mapping[str, TableState]  # whether each table agrees with the parts
    records: tuple[str, ...]  # manifest.json and tables.json, where they are not as they were written

    @property
    def sound(self) -> bool:
        """No part is damaged, wrong, or gone, and the log is whole."""
        log_is_fine = self.inventory.log.state not in ("damaged", "torn") and not self.inventory.log_was_lost
        return log_is_fine and not (self.damaged or self.wrong or self.inventory.vanished)

    @property
    def in_order(self) -> bool:
        """Nothing at all is missing, damaged or forged: no run, no part, no line of the log, no table, no record."""
        current = all(state == "current" for state in self.tables.values())
        return self.sound and current and not self.records and not self.missing and not self._unexplained

    @property
    def _unexplained(self) -> tuple[str, ...]:
        """Parts that are not in the log though there is one."""
        return () if self.inventory.log.state == "missing" else self.inventory.unlogged

    @property
    def complete(self) -> bool:
        """Every planned run is done."""
        return self.done == self.planned

    def lines(self) -> list[str]:
        """Describe the findings, one per line."""
        return list(_sentences(self))


def verify(directory: SweepDirectory, plan: Plan, derive: Derive = lambda store, plan: {}) -> VerifyReport:
    """Check everything; StoreError only if the directory cannot be read or was written by a newer kising.

    `derive` makes the tables to compare besides runs.parquet.
    """
    store = Store.open(directory, writable=False)
    scan = store.scan()
    place = scan.find(plan.ids)
    here = place[place >= 0]
    failed = int(scan.failed[here].sum())
    wrong, examples = 0, []
    for part in store.identities():
        for reason in misfits(part).values():
            wrong += 1
            if wrong <= SHOWN:
                examples.append(f"{part.name}: {reason}")
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
        quarantined=PartFiles(directory).quarantined(),
        inventory=scan.inventory,
        tables=dict(_tables(directory, store, plan, derive)),
        records=tuple(_damaged_records(directory)),
    )


def verify_published(directory: SweepDirectory, plan: Plan) -> tuple[bool, str]:
    """Whether all is in order with published tables, and what there is, in a sentence; StoreError if runs.parquet is no
    table of runs. There are no parts to compare it with, only the plan.
    """
    table = read_runs_table(directory.runs_file)
    ids, failures = outcomes_in(table)
    done, failed = (int(np.isin(plan.ids, ids[which]).sum()) for which in (~failures, failures))
    wrong = len(misfits(identities_of(table, directory.runs_file.name)))
    missing = plan.n_runs - done - failed
    ids_are = "every id follows from the values of its row"
    if wrong:
        ids_are = f"{plural(wrong, 'row')} with an id that does not follow from its values"
    return not (missing or wrong), (
        f"{directory.path} holds published tables, which have no parts to be checked against: "
        f"{plural(plan.n_runs, 'run')} planned, {done} done, {failed} failed, {missing} missing; "
        f"{ids_are}"
    )


def _tables(
    directory: SweepDirectory, store: Store, plan: Plan, derive: Derive
) -> Iterator[tuple[str, TableState]]:
    altered = store.altered_tables()

    def state(name: str, current: Callable[[], bool]) -> tuple[str, TableState]:
        if name in altered and (directory.path / f"{name}.parquet").exists():
            return name, "stale"
        if not (directory.path / f"{name}.parquet").exists():
            return name, "missing"
        return name, "current" if current() else "stale"

    yield state("runs", lambda: store.runs_file_is_current(plan.ids))
    for name, frame in derive(store, plan).items():
        yield state(name, lambda name=name, frame=frame: store.table_is_current(name, frame))  # type: ignore[misc]


def _damaged_records(directory: SweepDirectory) -> Iterator[str]:
    if directory.read_manifest() is None:
        yield directory.manifest_file.name
    # Older versions of kising wrote no tables.json.
    if directory.tables_file.exists() and TableDigests.read(directory.tables_file) is None:
        yield directory.tables_file.name


def _sentences(report: VerifyReport) -> Iterator[str]:
    yield (
        f"{report.planned} runs planned: {report.done} done, {report.failed} failed, "
        f"{report.missing} missing; {report.rows} rows in {report.parts} parts"
    )
    for part in report.damaged:
        yield f"damaged: {part.name}: {part.reason}; the next `kising run` sets it aside and repeats its runs"
    for name, rows in report.inventory.vanished.items():
        yield f"vanished: {name}, with {plural(rows, 'row')}; the next `kising run` repeats those that are nowhere else"
    if report.inventory.log.state == "damaged":
        yield "damaged: parts.log has lines without their checksum; the next `kising run` rebuilds it from the parts"
    elif report.inventory.log.state == "torn":
        yield "damaged: parts.log ends in the middle of a line, as after a kill; the next `kising run` repairs it"
    elif report.inventory.log_was_lost:
        yield "missing: parts.log, which shows whether a part has vanished; the next `kising run` rebuilds it"
    for name in report._unexplained:
        yield (
            f"not in parts.log: {name}: a driver was killed right after it wrote this part, or another program put it "
            "there; the next `kising run` adds it"
        )
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
    for name, state in report.tables.items():
        if state == "stale":
            yield f"{name}.parquet differs from the parts, which count: `kising run` on this directory rewrites it"
        elif state == "missing":
            yield f"{name}.parquet is missing: `kising run` on this directory writes it"

    for name in report.records:
        yield f"{name} is missing or damaged: the next `kising run` writes it anew"


def _first(names: Iterable[str], count: int) -> Iterator[str]:
    shown = list(names)[:SHOWN]
    yield from (f"  {name}" for name in shown)
    if count > len(shown):
        yield f"  and {count - len(shown)} more"
