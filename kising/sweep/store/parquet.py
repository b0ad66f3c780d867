"""Tables as parquet: rows to bytes, bytes to tables, tables to data frames. The only file that imports pyarrow.

Types come from the declared columns, never from the values. A part carries the version of its schema: one whose
columns are not ours is refused as data, one of a *newer* schema is refused with StoreError, because its runs are
good and this kising is too old to read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kising.errors import StoreError
from kising.regular_files import read_regular
from kising.sweep.store.artifacts import RunArtifacts
from kising.sweep.store.column_types import Column
from kising.sweep.store.columns import (
    ARTIFACTS,
    COLUMNS,
    COMMITTED,
    PARAMETERS,
    PART_COLUMNS,
    ROW_COLUMNS,
    SCHEMA_VERSION,
    TABLES,
    Row,
)
from kising.sweep.store.index import ID_DIGITS, PartIndex, PartRows, ids_from_bytes
from kising.sweep.store.parts import NotDataError
from kising.version import __version__

if TYPE_CHECKING:
    import pandas as pd

Table: TypeAlias = pa.Table


class Finished(NamedTuple):
    """Finished runs."""

    rows: Table
    """their rows, as runs.parquet has them"""
    ids: NDArray[np.uint64]
    """their ids"""
    numerics: NDArray[np.int64]
    """the version of the numerics that made each"""

    def only(self, which: NDArray[np.bool_]) -> Finished:
        """Some of them, by a mask."""
        return Finished(self.rows.take(np.flatnonzero(which)), self.ids[which], self.numerics[which])


LONGEST_TEXT: Final = 8_000
"""Characters stored of an error or a traceback: a million failed runs must not fill the disk with them."""

_FROM_OUTSIDE: Final = ("error", "traceback", "host")
_TYPES: Final = {
    **{"string": pa.string(), "int": pa.int64(), "float": pa.float64()},
    **{"bool": pa.bool_(), "bytes": pa.binary()},
}


def table_of_rows(rows: Sequence[Row], *, committed: int) -> Table:
    """Lay rows out as a part's table; ValueError names the column that does not fit."""
    if not rows:
        raise ValueError("a part needs at least one row")
    values = _values_by_column(rows) | {"committed": [committed] * len(rows)}
    arrays = []
    for column in PART_COLUMNS:
        try:
            arrays.append(pa.array(values[column.name], _TYPES[column.kind]))
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise ValueError(f"column {column.name!r} needs {column.kind} values: {error}") from error
    table = pa.Table.from_arrays(arrays, schema=_schema(PART_COLUMNS))
    _ids_of(table["run_id"])  # raises if one is not a run id
    return table


def part_of_runs(runs: Table, *, committed: int) -> Table:
    """Lay rows of runs.parquet out as a part's table; it has no artifacts."""
    numbers = pa.array(np.full(runs.num_rows, committed), _TYPES[COMMITTED.kind])
    artifacts = [pa.nulls(runs.num_rows, _TYPES[column.kind]) for column in ARTIFACTS]
    return pa.Table.from_arrays([*runs.columns, *artifacts, numbers], schema=_schema(PART_COLUMNS))


def encode_part(table: Table) -> memoryview:
    """Return a part's table as bytes."""
    sink = pa.BufferOutputStream()
    with _writer(sink, PART_COLUMNS) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def decode_part(
    data: bytes, columns: Sequence[Column], path: Path, stored: Sequence[Column] = PART_COLUMNS
) -> Table:
    """Read columns from a part's bytes, or from those of a file that stores other columns; NotDataError if they are not
    kising's, StoreError if of a newer kising.
    """
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
        _check_columns(found, stored, older=schema < SCHEMA_VERSION)
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
        for column in columns:
            if column.allowed:
                column.check(table[column.name].unique().to_pylist())
    except StoreError:
        raise
    except MemoryError as error:
        raise StoreError(f"{path}: not enough memory to read this part") from error
    except Exception as error:
        # The checksum is right, so the disk is not to blame: whatever this is, kising did not write it.
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise NotDataError(f"its checksum is right but it is not a part of kising's: {reason}") from error
    return table


def index_of(table: Table) -> PartIndex:
    """Return the index columns of a part's table."""
    return PartIndex(
        ids=_ids_of(table["run_id"]),
        failed=_failed(table),
        numerics=_array(table["numerics"]),
        committed=_array(table["committed"]),
    )


def outcomes_in(runs: Table) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Return the ids of a table of runs, and which of them failed."""
    return _ids_of(runs["run_id"]), _failed(runs)


def failed_rows(runs: Table, most: int) -> list[dict[str, object]]:
    """Return the first failed rows of a table of runs."""
    some = runs.filter(pc.starts_with(runs["status"], pattern="failed")).slice(0, most)
    rows: list[dict[str, object]] = some.to_pylist()
    return rows


def finished_in(runs: Table, wanted: NDArray[np.uint64]) -> Finished:
    """Return the rows of the wanted runs that are done."""
    ids = _ids_of(runs["run_id"])
    keep = np.flatnonzero(np.isin(ids, wanted) & ~_failed(runs))
    rows = runs.take(keep)
    return Finished(rows, ids[keep], _array(rows["numerics"]))


def _failed(table: Table) -> NDArray[np.bool_]:
    return _array(pc.starts_with(table["status"], pattern="failed").cast(pa.uint8())).astype(bool)


def identities_of(table: Table, name: str) -> PartRows:
    """Return the identities of the rows of the part called `name`."""
    keys = ["point_id", *(column.name for column in PARAMETERS)]
    distinct = table.group_by(keys).aggregate([]).select(keys).to_pylist()
    return PartRows(
        name=name,
        ids=_ids_of(table["run_id"]),
        point_ids=table["point_id"].to_pylist(),
        realizations=table["realization"].to_numpy(),
        points=[(point.pop("point_id"), point) for point in distinct],
    )


def artifacts_of(table: Table) -> list[RunArtifacts]:
    """Return the artifacts in a table, in its order; rows without any are left out."""
    some = table.filter(pc.or_(pc.is_valid(table["couplings"]), pc.is_valid(table["trace"])))
    columns = (some[name].to_pylist() for name in ("couplings", "trace"))
    return [RunArtifacts(*values) for values in zip(_ids_of(some["run_id"]).tolist(), *columns, strict=True)]


def concatenate(tables: Iterable[Table], columns: Sequence[Column]) -> Table:
    """Return tables of the same columns as one; there may be none."""
    return pa.concat_tables([_schema(columns).empty_table(), *tables])


def gather(pieces: Sequence[Table], order: NDArray[np.intp]) -> Table:
    """Return the rows of several tables in this order.

    Each column has one chunk: where pages end in a file must not depend on which parts the rows came from.
    """
    return pa.concat_tables(pieces).combine_chunks().take(order)


@contextmanager
def runs_writer(handle: IO[bytes]) -> Iterator[Any]:
    """Write runs.parquet: each table given to `write_table` becomes a row group."""
    with _writer(handle, COLUMNS) as writer:
        yield writer


def holds(handle: IO[bytes], tables: Iterable[Table]) -> bool:
    """Tell whether a parquet file has these tables as its row groups, bit for bit."""
    try:
        file = pq.ParquetFile(handle)
        groups = iter(range(file.num_row_groups))
        for table in tables:
            if not same_bits(file.read_row_group(next(groups)), table):
                return False
        return next(groups, None) is None
    except (OSError, pa.ArrowException, StopIteration, ValueError, KeyError):
        return False


def run_ids_in(path: Path) -> NDArray[np.uint64]:
    """Return the run ids in runs.parquet as integers; none where it cannot be read."""
    try:
        return _ids_of(pq.ParquetFile(path).read(["run_id"])["run_id"])
    except (OSError, pa.ArrowException, KeyError, ValueError):
        return np.empty(0, np.uint64)


def write_frame(handle: IO[bytes], name: str, frame: pd.DataFrame) -> None:
    """Write a derived table with the types of its declared columns."""
    pq.write_table(_derived(name, frame), handle, compression="zstd")


def write_runs_frame(handle: IO[bytes], runs: pd.DataFrame) -> None:
    """Write a data frame of runs as runs.parquet has them."""
    with runs_writer(handle) as writer:
        writer.write_table(pa.Table.from_pandas(runs, schema=_schema(COLUMNS), preserve_index=False))


def read_runs(path: Path) -> pd.DataFrame:
    """Read runs.parquet, of this schema or of an older one, as a data frame; StoreError if it is not one."""
    return frame_of_runs(read_runs_table(path))


def read_runs_table(path: Path) -> Table:
    """Read runs.parquet, of this schema or of an older one; StoreError if it is not one."""
    try:
        return decode_part(read_regular(path), COLUMNS, path, COLUMNS)
    except (OSError, NotDataError) as error:
        raise StoreError(f"{path}: not a table of runs of kising's: {error}") from error


def read_frame(path: Path, name: str) -> pd.DataFrame:
    """Read a derived table; StoreError if it is not one."""
    try:
        found: pd.DataFrame = pq.ParquetFile(path).read().to_pandas()
        dtypes: Any = {column.name: column.dtype for column in TABLES[name]}
        return found[list(dtypes)].astype(dtypes)
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise StoreError(f"{path}: not a table of {name} of kising's: {reason}") from error


def holds_frame(handle: IO[bytes], name: str, frame: pd.DataFrame) -> bool:
    """Tell whether a parquet file has the values of a derived table; floats may differ by rounding."""
    try:
        found, wanted = pq.ParquetFile(handle).read(), _derived(name, frame)
    except (OSError, pa.ArrowException, ValueError, KeyError):
        return False
    if found.schema.names != wanted.schema.names or found.schema.types != wanted.schema.types:
        return False
    return found.num_rows == wanted.num_rows and all(
        _close(found[column], wanted[column]) for column in wanted.column_names
    )


def _derived(name: str, frame: pd.DataFrame) -> Table:
    return pa.Table.from_pandas(frame, schema=_schema(TABLES[name]), preserve_index=False)


def _close(found: pa.ChunkedArray, wanted: pa.ChunkedArray) -> bool:
    if found.type != pa.float64():
        return bool(found.equals(wanted))
    ours, theirs = (np.asarray(column.to_numpy()) for column in (found, wanted))
    return found.null_count == wanted.null_count and np.allclose(
        ours, theirs, rtol=1e-9, atol=0, equal_nan=True
    )


def frame_of_runs(table: Table) -> pd.DataFrame:
    """Return a table of runs as a data frame; a null float becomes NaN."""
    import pandas as pd

    text = {pa.string(): pd.StringDtype("pyarrow")}
    nullable = {**text, pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    # Converted together: a call per column costs a millisecond each, more than most tables hold.
    halves = [
        table.select([column.name for column in COLUMNS if column.nullable is kind]).to_pandas(
            types_mapper=types.get
        )
        for kind, types in ((True, nullable), (False, text))
    ]
    frame: pd.DataFrame = pd.concat(halves, axis="columns")[[column.name for column in COLUMNS]]
    return frame


def _values_by_column(rows: Sequence[Row]) -> dict[str, list[object]]:
    """Lay rows out by column and check them.

    Texts from outside kising are made storable: long ones lose their middle, and characters that UTF-8 cannot
    encode are escaped.
    """
    unknown = set().union(*rows) - {column.name for column in ROW_COLUMNS}
    if unknown:
        raise ValueError(f"no column is called {min(unknown)!r}")
    columns = {column.name: [row.get(column.name) for row in rows] for column in ROW_COLUMNS}
    for column in ROW_COLUMNS:
        column.check(columns[column.name])
    for name in _FROM_OUTSIDE:
        columns[name] = [_storable(value) if isinstance(value, str) else value for value in columns[name]]
    return columns


def _storable(text: str) -> str:
    if len(text) > LONGEST_TEXT:
        head, tail = LONGEST_TEXT // 4, LONGEST_TEXT - LONGEST_TEXT // 4
        text = f"{text[:head]}\n... {len(text) - LONGEST_TEXT} characters left out ...\n{text[-tail:]}"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


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


def _check_columns(found: Mapping[str, pa.DataType], stored: Sequence[Column], *, older: bool) -> None:
    known = {column.name: _TYPES[column.kind] for column in stored}
    for name, kind in found.items():
        if known.get(name) != kind:
            raise ValueError(f"unknown column {name!r} of type {kind}")
    for column in stored:
        if column.name not in found and not (older and column.nullable):
            raise ValueError(f"no column {column.name!r}")


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


def _array(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column of integers without nulls as an array.

    pyarrow's own to_numpy, and every conversion of a Python value, would load pandas, and `plan` must not wait for it.
    """
    return np.from_dlpack(column.combine_chunks())


def same_bits(found: Table, wanted: Table) -> bool:
    """Compare tables bit for bit, so that NaN equals itself."""
    if found.column_names != wanted.column_names:
        return False
    return all(_bits(found[name]).equals(_bits(wanted[name])) for name in wanted.column_names)


def _bits(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array.view(pa.int64()) if array.type == pa.float64() else array
