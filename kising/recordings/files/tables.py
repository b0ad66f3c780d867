"""Tables in files: which columns are spins, and which give the time or the trial of a row."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from kising.errors import InputError
from kising.messages import show, show_key
from kising.recordings.forms import JUMP, TRIAL_NAMES, Piece, Pieces, by_trial
from kising.recordings.numbers import PLAIN
from kising.recordings.segments import SHORTEST
from kising.recordings.wording import counted

_INDEX_NAME = re.compile(
    r"(unnamed\W.*|(index|idx|time|times|t|step|bin|frame|sample|row|timestamp|date|datetime)?([ _(\[].*)?)",
    re.IGNORECASE,
)
_MISSING = {"", "na", "nan", "n/a", "null", "none", "<na>", "#n/a"}
_WORDS = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True)
class Table:
    """Columns of a file."""

    names: tuple[str, ...] | None
    columns: list[npt.NDArray[Any]]
    """numbers, or objects where some cell is text"""
    lines: npt.NDArray[np.int64] | None
    """the line of each row in a text file"""

    def named(self, k: int) -> str:
        """A column in a message."""
        return f"column {k + 1}" + (f" ({show_key(self.names[k])})" if self.names else "")

    def row(self, k: int) -> str:
        """A row in a message."""
        return f"row {k}" if self.lines is None else f"line {self.lines[k]}"


def number_in(cell: str, delimiter: str = ",") -> float | None:
    """The number in a cell, NaN if it is empty, None if it is text."""
    folded = cell.strip().lower()
    if folded in _MISSING:
        return math.nan
    if folded in _WORDS:
        return _WORDS[folded]
    try:
        return float(folded if delimiter == "," else folded.replace(",", ".", 1))
    except ValueError:
        return None


def numbers_of(table: Table, k: int) -> npt.NDArray[Any]:
    """Column k as numbers; an InputError names the first cell that is text."""
    column = table.columns[k]
    if column.dtype.kind in PLAIN:
        return column
    values = np.empty(len(column))
    for row, cell in enumerate(column.tolist()):
        number = number_in(cell, ";") if isinstance(cell, str) else _plain(cell)
        if number is None:
            raise InputError(
                f"{table.row(row)}, {table.named(k)}: {show(cell if isinstance(cell, str) else str(cell))} is not a "
                "number; write NA where a value is missing, and leave out columns that are not spins"
            )
        values[row] = number
    return values


def _plain(cell: Any) -> float | None:
    if cell is None or type(cell).__name__ == "NAType":
        return math.nan
    return float(cell) if isinstance(cell, (bool, int, float, np.bool_)) else None


def recording_of(table: Table, *, guess: bool = True) -> Pieces:
    """The spins of a table, one column each, split into trials where a column says so.

    `guess` says whether a column that increases all the time, or holds labels, is taken as an index.
    """
    index, trial, notes = _set_apart(table, guess)
    spins = [k for k in range(len(table.columns)) if k not in index and k != trial]
    if not spins:
        raise InputError("the table has no columns besides the index: write one column per spin")
    array = np.column_stack([_narrow(numbers_of(table, k)) for k in spins])
    names = tuple(table.names[k] or str(k) for k in spins) if table.names else None
    pieces: tuple[Piece, ...] = (Piece(array, 0, 0),)
    if trial is not None:
        pieces = by_trial(array, table.columns[trial].tolist())
    else:
        times = next((table.columns[k] for k in index if table.columns[k].dtype.kind in PLAIN), None)
        if times is not None and len(times) > 1:
            pieces, more = _by_time(array, times)
            notes += more
    starts = np.cumsum([0, *(len(piece.values) for piece in pieces)])

    def place(k: int, step: int) -> str:
        return table.row(int(starts[k]) + step)

    return Pieces(pieces, names, tuple(notes), place)


def _set_apart(table: Table, guess: bool) -> tuple[list[int], int | None, list[str]]:
    """The columns that are an index or a time, the column of trials, and notes."""
    names = table.names or ("-",) * len(table.columns)
    trial = next((k for k, name in enumerate(names) if name.strip().lower() in TRIAL_NAMES), None)
    named = [
        k
        for k, name in enumerate(names)
        if k != trial and _INDEX_NAME.fullmatch(name.strip()) and not _like_spins(table.columns[k])
    ]
    if named:
        return named, trial, []
    first = next((k for k in range(len(table.columns)) if k != trial), None)
    if first is None or not guess or not (_increasing(table.columns[first]) or _labels(table.columns[first])):
        return [], trial, []
    return [first], trial, [f"{table.named(first)} is taken as the time or label of rows, and is not a spin"]


def _like_spins(column: npt.NDArray[Any]) -> bool:
    return column.dtype.kind in PLAIN and bool((np.isin(column, (-1, 0, 1)) | (column != column)).all())


def _increasing(column: npt.NDArray[Any]) -> bool:
    """Spins cannot increase twice in a row."""
    return column.dtype.kind in PLAIN and len(column) > 2 and bool((column[1:] > column[:-1]).all())


def _labels(column: npt.NDArray[Any]) -> bool:
    """Text in every row. One cell of text among numbers is a mistake, not a label."""
    return column.dtype.kind == "O" and all(
        isinstance(x, str) and number_in(x, ";") is None for x in column.tolist()
    )


def _by_time(array: npt.NDArray[Any], times: npt.NDArray[Any]) -> tuple[tuple[Piece, ...], list[str]]:
    """Split where time starts again; note where it jumps."""
    steps = np.diff(times.astype(np.float64))
    cuts = [0, *(np.flatnonzero(steps <= 0) + 1).tolist(), len(array)]
    if SHORTEST * (len(cuts) - 1) > len(array):  # falling or shuffled; no trials look like this
        return (Piece(array, 0, 0),), [
            "times do not increase; rows are used in the order of the file: sort them if that is wrong"
        ]
    pieces = tuple(Piece(array[a:b], k, 0) for k, (a, b) in enumerate(pairwise(cuts)))
    if len(pieces) > 1:
        return pieces, [f"time goes back {counted(len(pieces) - 1, 'time')}, and a new trial begins at each"]
    jumps = int((steps > JUMP * np.median(steps)).sum())
    if not jumps:
        return pieces, []
    return pieces, [
        f"times jump at {counted(jumps, 'place')}, but rows are treated as consecutive; add a column 'trial' to split "
        "there"
    ]


def _narrow(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integers that fit in 8 bits: a table takes an eighth of the memory."""
    if column.dtype.kind in "iu" and len(column) and column.min() >= -128 and column.max() <= 127:
        return column.astype(np.int8)
    return column


def table_of(frame: Any) -> Table:
    """A pandas DataFrame as a table; index levels that have names become columns."""
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    columns = []
    for k in range(frame.shape[1]):
        series = frame.iloc[:, k]
        kind = getattr(series.dtype, "kind", "O")
        plain = kind in PLAIN
        if plain and not isinstance(series.dtype, np.dtype):
            columns.append(series.to_numpy(dtype=np.float64, na_value=np.nan))
        else:
            columns.append(series.to_numpy() if plain else series.astype(object).to_numpy())
    return Table(tuple(map(_named, frame.columns)), columns, None)


def _named(column: Any) -> str:
    return "/".join(map(str, column)) if isinstance(column, tuple) else str(column)


def column_called(names: Sequence[str] | None, wanted: Sequence[str]) -> int | None:
    """The column with one of these names, or one of them and a suffix (``time_ms``, ``Time [s]``)."""
    for word in wanted:
        for k, name in enumerate(names or ()):
            if re.fullmatch(rf"{word}s?([ _(\[].*)?", name.strip().lower()):
                return k
    return None
