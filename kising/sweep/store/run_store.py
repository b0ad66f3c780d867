"""The finished runs of a sweep: parts on disk, and the tables made from them.

Only parts are trusted: every table is made from them. A damaged or alien part is set aside, and its runs count as
never done. The log of parts tells which of them have vanished. A run may be in several parts (a retry, an interrupted
compaction, other numerics): `winners` says which of its rows counts.

Writing needs the directory's lock (`SweepDirectory.lock`) and checks it every time. Reading does not, and may happen
beside a driver.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from kising.errors import StoreError
from kising.messages import agree, plural
from kising.regular_files import open_regular, read_regular
from kising.sweep.store.artifacts import RunArtifacts
from kising.sweep.store.atomic import AtomicFile, make_directory
from kising.sweep.store.column_types import Column
from kising.sweep.store.columns import ARTIFACTS, COLUMNS, PARAMETERS, PART_COLUMNS, TABLES, Row
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.identities import misfits
from kising.sweep.store.index import PartIndex, PartRows, Scan, find, winners
from kising.sweep.store.inventory import Inventory, compare, take_inventory
from kising.sweep.store.parquet import (
    Table,
    artifacts_of,
    concatenate,
    decode_part,
    encode_part,
    frame_of_runs,
    gather,
    holds,
    holds_frame,
    identities_of,
    index_of,
    part_of_runs,
    runs_writer,
    table_of_rows,
    write_frame,
)
from kising.sweep.store.part_log import Entry, PartLog
from kising.sweep.store.parts import (
    Damaged,
    Listing,
    NotDataError,
    PartFiles,
    PartsChangedError,
    next_number,
    number_of,
    parts_to_merge,
)
from kising.sweep.store.records import TableDigests

if TYPE_CHECKING:
    import pandas as pd

BLOCK: Final = 65_536
"""Rows of a table in memory at a time, and in a row group of runs.parquet."""

_INDEX: Final = tuple(c for c in PART_COLUMNS if c.name in {"run_id", "status", "numerics", "committed"})
_ARTIFACTS: Final = (*(c for c in COLUMNS if c.name == "run_id"), *ARTIFACTS)
_IDENTITY: Final = (*(c for c in COLUMNS if c.name in {"run_id", "point_id", "realization"}), *PARAMETERS)
_ATTEMPTS: Final = 10
LONGEST_REASON: Final = 2_000
"""Characters stored of the reason why a part was set aside."""
_Result = TypeVar("_Result")


class Store:
    """The parts of one sweep."""

    def __init__(self, directory: SweepDirectory, *, writable: bool) -> None:
        self.directory = directory
        self.writable = writable
        self._files = PartFiles(directory)
        self._log = PartLog(directory.parts_log)
        self._number: int | None = None  # of the next part
        self._rows: dict[str, int] = {}  # of each part committed or scanned
        self._scanned = False
        self._refused: dict[str, str] = {}  # parts found not to be data, with the reason

    @classmethod
    def open(cls, directory: SweepDirectory, *, writable: bool = True) -> Store:
        """Open the store; a writable one sets damaged parts aside and needs the lock."""
        if writable:
            make_directory(directory.parts)
        return cls(directory, writable=writable)

    def commit(self, rows: Sequence[Row]) -> Path:
        """Write finished runs as one part; when this returns they are durable.

        If it raises, either all of them or none are found later, so it is right to commit them again. ValueError
        for rows that do not fit the schema, StoreError when the disk refuses.
        """
        number = self._next_number()
        return self._commit(table_of_rows(rows, committed=number), number)

    def take_over(self, runs: Table) -> Path:
        """Write rows of another sweep's runs as one part, as `commit` does."""
        number = self._next_number()
        return self._commit(part_of_runs(runs, committed=number), number)

    def scan(self) -> Scan:
        """Read which runs the parts hold; damaged parts are named, and set aside if the store is writable."""
        return _retry_while_parts_change(self._scan)

    def check_whole(self) -> None:
        """Raise StoreError if a part has vanished: tables made without it would hide that."""
        vanished = self._inventory().vanished
        if vanished:
            rows, verb = plural(sum(vanished.values()), "row"), agree(len(vanished), "has", "have")
            raise StoreError(
                f"{self.directory.path}: {plural(len(vanished), 'part')} with {rows} {verb} vanished; "
                f"`kising run {self.directory.path}` repeats their runs"
            )

    def recover(self) -> tuple[Scan, list[str]]:
        """Scan, and set aside the rows whose ids do not follow from their values; also return what is wrong with each.

        A part that has such rows is replaced by one of its other rows.
        """
        first = self.scan()
        found: list[str] = []
        for part in list(self.identities()):
            wrong = misfits(part)
            if wrong:
                found += [f"{part.name}: {reason}" for reason in wrong.values()]
                self._drop_rows(part.name, wrong)
        if not found:
            return first, found
        return self.scan()._replace(damaged=first.damaged, inventory=first.inventory), found

    def compact(self) -> int:
        """Merge small parts where there are many; return by how many the number of parts fell.

        A merged part is durable before the first of its inputs is removed: a crash may leave rows twice, but loses
        none.
        """
        if not self._scanned:
            self.scan()
        before = len(self._rows)
        while chosen := parts_to_merge(self._rows):
            try:
                self._merge(chosen)
            except PartsChangedError:
                self.scan()
        return before - len(self._rows)

    def table(self, order: NDArray[np.uint64]) -> Table:
        """Return the rows of the runs in `order`, in that order; runs without a row are left out."""
        blocks = _retry_while_parts_change(lambda: list(self._blocks(order)))
        return concatenate(blocks, COLUMNS)

    def read_runs(self, order: NDArray[np.uint64]) -> pd.DataFrame:
        """Return the rows of the runs in `order` as a data frame, made from the parts.

        Types never depend on the values: columns that may be null are Int64, boolean or string; a null float
        reads as NaN.
        """
        return frame_of_runs(self.table(order))

    def artifacts(self, order: NDArray[np.uint64]) -> list[RunArtifacts]:
        """Return the artifacts of the runs in `order`, in that order; runs without any are left out."""
        blocks = _retry_while_parts_change(lambda: list(self._blocks(order, _ARTIFACTS)))
        return [found for block in blocks for found in artifacts_of(block)]

    def write_runs(self, order: NDArray[np.uint64]) -> Path:
        """Write runs.parquet block by block; the same rows in the same order give the same bytes."""
        return _retry_while_parts_change(lambda: self._write_runs(order))

    def runs_file_is_current(self, order: NDArray[np.uint64]) -> bool:
        """Tell whether runs.parquet holds, bit for bit, the values that `write_runs` would write now."""
        return _retry_while_parts_change(lambda: self._runs_file_is_current(order))

    def table_is_current(self, name: str, frame: pd.DataFrame) -> bool:
        """Tell whether <name>.parquet holds this frame, but for the last digits, which differ between machines."""
        try:
            data = read_regular(self.directory.path / f"{name}.parquet")
            return holds_frame(io.BytesIO(data), name, frame)
        except OSError:
            return False

    def write_table(self, name: str, frame: pd.DataFrame) -> Path:
        """Write a derived table as <name>.parquet; its types are those of its declared columns."""
        if name not in TABLES:
            raise ValueError(f"no table is called {name!r}; there are {', '.join(TABLES)}")
        self.directory.check_locked()
        with AtomicFile(self.directory.path) as file:
            write_frame(file.handle, name, frame)
            return file.publish(f"{name}.parquet")

    def note_tables(self, names: Iterable[str]) -> None:
        """Write tables.json: what these tables are now, so that `verify` knows any other byte in them."""
        found = {name: _digest_of(self.directory.path / f"{name}.parquet") for name in names}
        self.directory.check_locked()
        record = TableDigests(tables={name: digest for name, digest in found.items() if digest is not None})
        record.write(self.directory.tables_file, durable=True)

    def altered_tables(self) -> set[str]:
        """The tables that are not as they were written; of older versions of kising nothing is known."""
        record = TableDigests.read(self.directory.tables_file)
        known = {} if record is None else record.tables
        return {
            name
            for name, digest in known.items()
            if _digest_of(self.directory.path / f"{name}.parquet") != digest
        }

    def identities(self) -> Iterator[PartRows]:
        """Yield the identities in every readable part, for verification; unreadable parts are left out."""
        for name in self._listing().parts:
            with suppress(NotDataError, PartsChangedError):
                yield identities_of(self._read(name, _IDENTITY), name)

    def _listing(self) -> Listing:
        return self._files.list() if self.writable else self._files.list_settled()

    def _inventory(self) -> Inventory:
        if self.writable:
            return compare(self._files.list(), self._log.view(), self._files.quarantined())
        return take_inventory(self.directory)

    def _next_number(self) -> int:
        """Number the next part: after all parts that are there, or were."""
        if self._number is None:
            known = self._log.view().known
            self._number = next_number([*self._files.list().parts, *known])
        number, self._number = self._number, self._number + 1
        return number

    def _commit(self, table: Table, number: int) -> Path:
        path = self._publish(table, number)
        self._log.note([Entry("commit", path.name, table.num_rows)])
        return path

    def _publish(self, table: Table, number: int) -> Path:
        data = encode_part(table)
        self.directory.check_locked()
        path = self._files.publish(data, number)
        self._rows[path.name] = table.num_rows
        return path

    def _read(self, name: str, columns: Sequence[Column]) -> Table:
        """Read columns of a part; its bytes are read once, and decoded only if their checksum is right."""
        if name in self._refused:
            raise NotDataError(self._refused[name])
        try:
            return decode_part(self._files.read(name), columns, self._files.folder / name)
        except NotDataError as error:
            self._refused[name] = str(error)
            raise

    def _scan(self) -> Scan:
        inventory = self._inventory()
        listing = inventory.listing
        parts, damaged = self._indexes(listing.parts)
        self._rows = {listing.parts[number]: len(index.ids) for number, index in parts.items()}
        self._scanned = True
        found = winners(parts)
        if self.writable:
            self._mend_log(inventory)
        return Scan(
            ids=found.ids,
            failed=found.failed,
            numerics=found.numerics,
            rows=sum(self._rows.values()),
            parts=len(self._rows),
            damaged=tuple(damaged),
            strays=tuple(listing.strays),
            inventory=inventory,
        )

    def _mend_log(self, found: Inventory) -> None:
        """Let the log hold the parts that are there, and no others."""
        lost = [Entry("lost", name, rows) for name, rows in found.vanished.items()]
        new = [Entry("commit", name, self._rows[name]) for name in found.unlogged if name in self._rows]
        if lost or new or found.log.state in ("torn", "damaged"):
            self.directory.check_locked()
            self._log.note([*lost, *new])

    def _indexes(self, names: Sequence[str]) -> tuple[dict[int, PartIndex], list[Damaged]]:
        """Read the index of each readable part, by its number in `names`; a writable store sets the others aside."""
        parts: dict[int, PartIndex] = {}
        damaged: list[Damaged] = []
        for number, name in enumerate(names):
            try:
                parts[number] = self._index(name)
            except NotDataError as error:
                damaged.append(Damaged(name, str(error)))
        if self.writable and damaged:
            self.directory.check_locked()
            for part in damaged:
                self._set_aside(part)
        return parts, damaged

    def _index(self, name: str) -> PartIndex:
        index = index_of(self._read(name, _INDEX))
        # A row that claims a later commit than its part would win over all rows to come.
        if index.committed.size and index.committed.max() > (number_of(name) or 0):
            self._refused[name] = (
                "it has rows that claim to be newer than the part itself: kising did not write it"
            )
            raise NotDataError(self._refused[name])
        return index

    def _set_aside(self, part: Damaged) -> None:
        with suppress(StoreError):  # the log learns it from quarantine/ next time
            self._log.note([Entry("aside", part.name, 0)])
        self._files.set_aside(part)

    def _blocks(self, order: NDArray[np.uint64], columns: Sequence[Column] = COLUMNS) -> Iterator[Table]:
        """Yield the rows in this order, BLOCK at a time; a part is read once for each block that has a row of it."""
        names = self._listing().parts
        found = winners(self._indexes(names)[0])
        places = find(found.ids, np.asarray(order, dtype=np.uint64))
        places = places[places >= 0]
        for start in range(0, places.size, BLOCK):
            chosen = places[start : start + BLOCK]
            part, row = found.part[chosen], found.row[chosen]
            pieces = []
            for number in np.unique(part):
                try:
                    whole = self._read(names[number], columns)
                except NotDataError as error:
                    raise PartsChangedError(names[number]) from error
                pieces.append(whole.take(row[part == number]))
            grouped = np.argsort(part, kind="stable")
            yield gather(pieces, np.argsort(grouped))

    def _merge(self, names: Sequence[str]) -> None:
        try:
            table = concatenate([self._read(name, PART_COLUMNS) for name in names], PART_COLUMNS)
        except NotDataError as error:
            raise PartsChangedError(str(error)) from error
        keep = np.sort(winners({0: index_of(table)}).row)
        path = self._publish(table.take(keep), self._next_number())
        try:
            self._files.read(path.name)
        except NotDataError as error:
            raise StoreError(f"{path}: the disk returns other bytes than were written: check it") from error
        merged = [Entry("merged", name, self._rows[name]) for name in names]
        self._log.note([Entry("commit", path.name, keep.size), *merged])
        self.directory.check_locked()
        self._files.remove(names)
        for name in names:
            del self._rows[name]

    def _drop_rows(self, name: str, wrong: Mapping[int, str]) -> None:
        """Replace a part by one without some of its rows, and set it aside."""
        whole = self._read(name, PART_COLUMNS)
        good = np.setdiff1d(np.arange(whole.num_rows), list(wrong))
        if good.size:
            self._commit(whole.take(good), self._next_number())
        self.directory.check_locked()
        self._set_aside(Damaged(name, "; ".join(wrong.values())[:LONGEST_REASON]))

    def _write_runs(self, order: NDArray[np.uint64]) -> Path:
        self.directory.check_locked()
        with AtomicFile(self.directory.path) as file:
            with runs_writer(file.handle) as writer:
                for block in self._blocks(order):
                    writer.write_table(block)
            return file.publish(self.directory.runs_file.name)

    def _runs_file_is_current(self, order: NDArray[np.uint64]) -> bool:
        try:
            with open_regular(self.directory.runs_file) as handle:
                return holds(handle, self._blocks(order))
        except OSError:
            return False


def _digest_of(path: Path) -> str | None:
    """The SHA-256 of a file; None where it cannot be read."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _retry_while_parts_change(read: Callable[[], _Result]) -> _Result:
    """Read, and start over if another process changes the parts meanwhile."""
    for _ in range(_ATTEMPTS):
        with suppress(PartsChangedError):
            return read()
    raise StoreError("the parts change faster than they can be read: try again")
