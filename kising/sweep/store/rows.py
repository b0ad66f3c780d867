"""Rows of finished runs, checked and laid out by column before they are stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from kising.sweep.store.column_types import Kind
from kising.sweep.store.columns import ROW_COLUMNS, Row

LONGEST_TEXT: Final = 8_000
"""Characters stored of an error or a traceback: a million failed runs must not fill the disk with them."""

_TYPES: Final[Mapping[Kind, tuple[type, ...]]] = {
    "string": (str,),
    "int": (int, np.integer),
    "float": (float, int, np.floating, np.integer),
    "bool": (bool, np.bool_),
    "bytes": (bytes,),
}
_FROM_OUTSIDE: Final = ("error", "traceback", "host")
_ALLOWED: Final = {column.name: column.allowed for column in ROW_COLUMNS if column.allowed}


def values_by_column(rows: Sequence[Row]) -> dict[str, list[object]]:
    """Lay rows out by column; ValueError for an unknown column, a value of the wrong type or one not allowed.

    Texts from outside kising are made storable: long ones lose their middle, and characters that UTF-8 cannot
    encode are escaped.
    """
    unknown = set().union(*rows) - {column.name for column in ROW_COLUMNS}
    if unknown:
        raise ValueError(f"no column is called {min(unknown)!r}")
    columns = {column.name: [row.get(column.name) for row in rows] for column in ROW_COLUMNS}
    for column in ROW_COLUMNS:
        for found in set(map(type, columns[column.name])):
            if found is type(None):
                if not column.nullable:
                    raise ValueError(f"column {column.name!r} must have a value in every row")
            # A bool is an int to Python, and a float would silently be cut to an int.
            elif not issubclass(found, _TYPES[column.kind]) or (found is bool and column.kind != "bool"):
                raise ValueError(f"column {column.name!r} wants {column.kind} values, not {found.__name__}")
    for name in _FROM_OUTSIDE:
        columns[name] = [_storable(value) if isinstance(value, str) else value for value in columns[name]]
    for name in _ALLOWED:
        check_allowed(name, columns[name])
    return columns


def check_allowed(name: str, values: Iterable[object]) -> None:
    """Raise ValueError if a column of few allowed values has another."""
    allowed = _ALLOWED[name]
    for value in values:
        if value is not None and value not in allowed:
            raise ValueError(f"{name} {value!r} is none of {', '.join(allowed)}")


def _storable(text: str) -> str:
    if len(text) > LONGEST_TEXT:
        head, tail = LONGEST_TEXT // 4, LONGEST_TEXT - LONGEST_TEXT // 4
        text = f"{text[:head]}\n... {len(text) - LONGEST_TEXT} characters left out ...\n{text[-tail:]}"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
