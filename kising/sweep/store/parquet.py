"""Finished runs on disk: parquet parts, and the tables made from them.

Nothing but parts is trusted: every table is made from them. A damaged part is set aside and its runs count as
never done. A run may stand in several parts (a retry, a compaction cut short): a done row then beats a failed
one, and of equals the later wins. A part whose checksum is right but whose schema is alien is set aside too;
one of a *newer* schema is refused: the runs in it are good, this kising is too old to read them.

Writing wants the directory's lock (`SweepDirectory.lock`), and makes sure of it every time; reading does not,
and may go on beside a driver.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kising.errors import StoreError
from kising.sweep.store.artifacts import Kept
from kising.sweep.store.atomic import AtomicFile, make_directory
from kising.sweep.store.columns import (
    COLUMNS,
    ID_DIGITS,
    KEPT,
    PARAMETERS,
    PART_COLUMNS,
    SCHEMA_VERSION,
    Column,
    Row,
    check_words,
    columns_of,
    ids_from_bytes,
)
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.index import PartIndex, PartRows, Scan, find, winners
from kising.sweep.store.parts import (
    Damaged,
    Listing,
    NotDataError,
    PartFiles,
    PartsChangedError,
    parts_to_merge,
)
from kising.version import __version__

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Damaged", "PartRows", "Scan", "Store", "StoreError"]

BLOCK: Final = 65_536
"""Rows of a table that are held at a time, and of a row group of runs.parquet."""

_TYPES: Final = {
    **{"string": pa.string(), "int": pa.int64(), "float": pa.float64()},
    **{"bool": pa.bool_(), "bytes": pa.binary()},
}
_INDEX: Final = tuple(c for c in PART_COLUMNS if c.name in {"run_id", "status", "numerics", "committed"})
_KEPT: Final = (*(c for c in COLUMNS if c.name == "run_id"), *KEPT)
_IDENTITY: Final = (*(c for c in COLUMNS if c.name in {"run_id", "point_id", "realization"}), *PARAMETERS)
_ATTEMPTS: Final = 10
_Result = TypeVar("_Result")


class Store:
    """The parts of one sweep."""

    def __init__(self, directory: SweepDirectory, *, writable: bool) -> None:
        self.directory = directory
        self.writable = writable
        self._files = PartFiles(directory)
        self._rows: dict[str, int] = {}  # of each part that was committed or scanned
        self._scanned = False
        self._refused: dict[str, str] = {}  # parts found not to be data, with the reason

    @classmethod
    def open(cls, directory: SweepDirectory, *, writable: bool = True) -> Store:
        """Open the store; a writable one sets damaged parts aside, and its owner holds the lock."""
        if writable:
            make_directory(directory.parts)
        return cls(directory, writable=writable)

    def commit(self, rows: Sequence[Row]) -> Path:
        """Write finished runs as one part; when this returns they survive anything.

        When it raises, all of them or none are found later, so committing them again is right. ValueError for
        rows that do not fit the schema, StoreError when the disk refuses.
        """
        stamp = self._files.next_stamp()
        return self._publish(_table_of(rows, committed=stamp), stamp)

    def scan(self) -> Scan:
        """Read which runs the parts hold; damaged parts are named, and set aside if the store is writable."""
        return _persist(self._scan)

    def compact(self) -> int:
        """Merge small parts where there are many; return how many parts fewer there are.

        A merged part is durable before the first of its inputs goes: a crash leaves rows twice, never lost.
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

    def table(self, order: NDArray[np.uint64]) -> pa.Table:
        """Return the rows of the runs in `order`, in that order; runs without a row are left out."""
        blocks = _persist(lambda: list(self._blocks(order)))
        return pa.concat_tables([_schema(COLUMNS).empty_table(), *blocks])

    def read_runs(self, order: NDArray[np.uint64]) -> pd.DataFrame:
        """Return the rows of the runs in `order` as a data frame, made from the parts.

        Types never depend on the values: columns that may be null are Int64, boolean or string; a null float
        reads as NaN.
        """
        return _frame(self.table(order))

    def kept(self, order: NDArray[np.uint64]) -> list[Kept]:
        """Return what is kept of the runs in `order`, in that order; runs of which nothing is are left out."""
        found = []
        for block in _persist(lambda: list(self._blocks(order, _KEPT))):
            some = pc.or_(pc.is_valid(block["couplings"]), pc.is_valid(block["trace"]))
            kept = block.filter(some)
            columns = (kept[name].to_pylist() for name in ("couplings", "trace"))
            found += [
                Kept(*values) for values in zip(_ids_of(kept["run_id"]).tolist(), *columns, strict=True)
            ]
        return found

    def write_runs(self, order: NDArray[np.uint64]) -> Path:
        """Write runs.parquet, a block at a time; the same rows in the same order give the same bytes."""
        return _persist(lambda: self._write_runs(order))

    def runs_file_is_current(self, order: NDArray[np.uint64]) -> bool:
        """Tell whether runs.parquet holds, bit for bit, the values that `write_runs` would write now."""
        return _persist(lambda: self._runs_file_is_current(order))

    def write_table(self, name: str, frame: pd.DataFrame) -> Path:
        """Write a derived table as <name>.parquet beside runs.parquet."""
        if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
            raise ValueError(f"{name!r} does not name a table: lower-case letters, digits, - and _ only")
        self.directory.check_locked()
        table = pa.Table.from_pandas(frame, preserve_index=False)
        with AtomicFile(self.directory.path) as file:
            pq.write_table(table, file.handle, compression="zstd")
            return file.publish(f"{name}.parquet")

    def identities(self) -> Iterator[PartRows]:
        """Yield the identities in every readable part, for verification; parts that are not are left out."""
        keys = ["point_id", *(column.name for column in PARAMETERS)]
        for name in self._listing().parts:
            with suppress(NotDataError, PartsChangedError):
                table = self._read(name, _IDENTITY)
                distinct = table.group_by(keys).aggregate([]).select(keys).to_pylist()
                yield PartRows(
                    name=name,
                    ids=_ids_of(table["run_id"]),
                    point_ids=table["point_id"].to_pylist(),
                    realizations=table["realization"].to_numpy(),
                    points=[(point.pop("point_id"), point) for point in distinct],
                )

    def _listing(self) -> Listing:
        return self._files.list() if self.writable else self._files.list_settled()

    def _publish(self, table: pa.Table, stamp: int) -> Path:
        sink = pa.BufferOutputStream()
        with _writer(sink, PART_COLUMNS) as writer:
            writer.write_table(table)
        self.directory.check_locked()
        path = self._files.publish(memoryview(sink.getvalue()), stamp)
        self._rows[path.name] = table.num_rows
        return path

    def _read(self, name: str, columns: Sequence[Column]) -> pa.Table:
        """Read columns of a part: its bytes once, their checksum, and only then what they say."""
        if name in self._refused:
            raise NotDataError(self._refused[name])
        try:
            return _decode(self._files.read(name), columns, self._files.folder / name)
        except NotDataError as error:
            self._refused[name] = str(error)
            raise

    def _scan(self) -> Scan:
        listing = self._listing()
        parts, damaged = self._indexes(listing.parts)
        self._rows = {listing.parts[number]: len(index.ids) for number, index in parts.items()}
        self._scanned = True
        found = winners(parts)
        return Scan(
            ids=found.ids,
            failed=found.failed,
            numerics=found.numerics,
            rows=sum(self._rows.values()),
            parts=len(self._rows),
            damaged=tuple(damaged),
            strays=tuple(listing.strays),
        )

    def _indexes(self, names: Sequence[str]) -> tuple[dict[int, PartIndex], list[Damaged]]:
        """Read the index of each readable part, by its number in `names`; the others are set aside."""
        parts: dict[int, PartIndex] = {}
        damaged: list[Damaged] = []
        for number, name in enumerate(names):
            try:
                parts[number] = _index_of(self._read(name, _INDEX))
            except NotDataError as error:
                damaged.append(Damaged(name, str(error)))
        if self.writable and damaged:
            self.directory.check_locked()
            for part in damaged:
                self._files.set_aside(part)
        return parts, damaged

    def _blocks(self, order: NDArray[np.uint64], columns: Sequence[Column] = COLUMNS) -> Iterator[pa.Table]:
        """Yield the rows in this order, BLOCK at a time, a part read once for each block it has a row in."""
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
            # One chunk a column: where pages end in a file must not depend on which parts rows came from.
            yield pa.concat_tables(pieces).combine_chunks().take(np.argsort(grouped))

    def _merge(self, names: Sequence[str]) -> None:
        try:
            table = pa.concat_tables([self._read(name, PART_COLUMNS) for name in names])
        except NotDataError as error:
            raise PartsChangedError(str(error)) from error
        keep = np.sort(winners({0: _index_of(table)}).row)
        path = self._publish(table.take(keep), self._files.next_stamp())
        try:
            self._files.read(path.name)
        except NotDataError as error:
            raise StoreError(
                f"{path}: the disk gives back other bytes than were written: check it"
            ) from error
        self.directory.check_locked()
        self._files.remove(names)
        for name in names:
            del self._rows[name]

    def _write_runs(self, order: NDArray[np.uint64]) -> Path:
        self.directory.check_locked()
        with AtomicFile(self.directory.path) as file:
            with _writer(file.handle, COLUMNS) as writer:
                for block in self._blocks(order):
                    writer.write_table(block)
            return file.publish(self.directory.runs_file.name)

    def _runs_file_is_current(self, order: NDArray[np.uint64]) -> bool:
        try:
            with self.directory.runs_file.open("rb") as handle:
                file = pq.ParquetFile(handle)
                groups = iter(range(file.num_row_groups))
                for block in self._blocks(order):
                    if not _same(file.read_row_group(next(groups)), block):
                        return False
                return next(groups, None) is None
        except (OSError, pa.ArrowException, StopIteration, ValueError, KeyError):
            return False


def _persist(read: Callable[[], _Result]) -> _Result:
    """Read, and start over as long as another process changes the parts meanwhile."""
    for _ in range(_ATTEMPTS):
        with suppress(PartsChangedError):
            return read()
    raise StoreError("the parts change faster than they can be read: try again")


def _ids_of(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return run ids as integers; ValueError for one that is not 16 hexadecimal digits."""
    try:
        digits = column.cast(pa.binary()).cast(pa.binary(ID_DIGITS)).combine_chunks()
    except pa.ArrowInvalid as error:
        raise ValueError(f"a run_id is not {ID_DIGITS} lower-case hexadecimal digits") from error
    if not len(digits):
        return np.empty(0, np.uint64)
    start = digits.offset * ID_DIGITS
    data = np.frombuffer(digits.buffers()[1], dtype=np.uint8)[start : start + len(digits) * ID_DIGITS]
    return ids_from_bytes(data.reshape(-1, ID_DIGITS))


def _index_of(table: pa.Table) -> PartIndex:
    return PartIndex(
        ids=_ids_of(table["run_id"]),
        failed=_array(pc.starts_with(table["status"], pattern="failed").cast(pa.uint8())).astype(bool),
        numerics=_array(table["numerics"]),
        committed=_array(table["committed"]),
    )


def _array(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column of integers without nulls as an array.

    pyarrow's own to_numpy, and every conversion of a Python value, would load pandas, and `plan` waits for none.
    """
    return np.from_dlpack(column.combine_chunks())


def _schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(column.name, _TYPES[column.kind], column.nullable) for column in columns])


def _writer(sink: pa.NativeFile | IO[bytes], columns: Sequence[Column]) -> pq.ParquetWriter:
    # Dictionaries where values repeat. The Arrow schema and statistics would double the size of small parts.
    repeating = [column.name for column in columns if column.kind == "string" or column in PARAMETERS]
    repeating.remove("run_id")
    writer = pq.ParquetWriter(
        sink,
        _schema(columns),
        compression="zstd",
        use_dictionary=repeating,
        write_statistics=False,
        store_schema=False,
    )
    writer.add_key_value_metadata({"kising.schema": str(SCHEMA_VERSION), "kising.version": __version__})
    return writer


def _table_of(rows: Sequence[Row], *, committed: int) -> pa.Table:
    """Lay rows out as a part's table; ValueError names the column that does not fit."""
    if not rows:
        raise ValueError("a part needs at least one row")
    values = columns_of(rows) | {"committed": [committed] * len(rows)}
    arrays = []
    for column in PART_COLUMNS:
        try:
            arrays.append(pa.array(values[column.name], _TYPES[column.kind]))
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise ValueError(f"column {column.name!r} wants {column.kind} values: {error}") from error
    table = pa.Table.from_arrays(arrays, schema=_schema(PART_COLUMNS))
    _ids_of(table["run_id"])  # refuses what is no run id
    return table


def _decode(data: bytes, columns: Sequence[Column], path: Path) -> pa.Table:
    """Read columns from a part's bytes; NotDataError if they are none, StoreError if of a newer kising."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        found = {field.name: field.type for field in file.schema_arrow}
        tags = file.metadata.metadata or {}
        if b"kising.schema" not in tags:
            raise ValueError("no version of a schema in it")
        schema = int(tags[b"kising.schema"])
        if schema > SCHEMA_VERSION:
            theirs = tags.get(b"kising.version", b"?").decode(errors="replace")
            raise StoreError(
                f"{path}: written by kising {theirs} (schema {schema}), which this kising {__version__} "
                f"(schema {SCHEMA_VERSION}) cannot read: upgrade kising"
            )
        _check_columns(found, older=schema < SCHEMA_VERSION)
        table = file.read([column.name for column in columns if column.name in found])
        arrays = [
            table[column.name] if column.name in found else pa.nulls(table.num_rows, _TYPES[column.kind])
            for column in columns
        ]
        for column, array in zip(columns, arrays, strict=True):
            if array.null_count and not column.nullable:
                raise ValueError(f"nulls in column {column.name!r}")
        table = pa.Table.from_arrays(arrays, schema=_schema(columns))
        _ids_of(table["run_id"])
        for name in {"status", "outcome"} & set(table.column_names):
            check_words(name, table[name].unique().to_pylist())
    except StoreError:
        raise
    except MemoryError as error:
        raise StoreError(f"{path}: not enough memory to read this part") from error
    except Exception as error:
        # The checksum holds, so this is no accident of the disk: whatever it is, it is not a part of ours.
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise NotDataError(f"its checksum is right but it is not a part of kising's: {reason}") from error
    return table


def _check_columns(found: Mapping[str, pa.DataType], *, older: bool) -> None:
    known = {column.name: _TYPES[column.kind] for column in PART_COLUMNS}
    for name, kind in found.items():
        if known.get(name) != kind:
            raise ValueError(f"unknown column {name!r} of type {kind}")
    for column in PART_COLUMNS:
        if column.name not in found and not (older and column.nullable):
            raise ValueError(f"no column {column.name!r}")


def _same(found: pa.Table, wanted: pa.Table) -> bool:
    """Compare tables bit for bit, so that NaN equals itself."""
    if found.column_names != wanted.column_names:
        return False
    return all(_bits(found[name]).equals(_bits(wanted[name])) for name in wanted.column_names)


def _bits(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array.view(pa.int64()) if array.type == pa.float64() else array


def _frame(table: pa.Table) -> pd.DataFrame:
    import pandas as pd

    text = {pa.string(): pd.StringDtype("pyarrow")}
    nullable = {**text, pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    columns = [
        table.select([column.name]).to_pandas(types_mapper=(nullable if column.nullable else text).get)
        for column in COLUMNS
    ]
    frame: pd.DataFrame = pd.concat(columns, axis="columns")
    return frame
