"""Tables from text: comma, semicolon, tab or blanks; with or without a header, comments and a byte-order mark."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kising.errors import InputError
from kising.recordings.files.tables import Table, number_in
from kising.recordings.wording import counted

_BLANKS = r"\s+"
_DELIMITERS = (";", "\t", ",")
_COMMENT = "#"


def read_text(path: Path, delimiter: str | None) -> Table:
    """The table of a .csv, .tsv or .txt file."""
    text = _decoded(path.read_bytes())
    numbered = [(k, line) for k, line in enumerate(text.split("\n"), start=1) if line.strip()]
    rows = [(k, _without_comment(line)) for k, line in numbered if not line.lstrip().startswith(_COMMENT)]
    if not rows:
        raise InputError("the file holds no rows; write one row per time step")
    delimiter = _checked(delimiter) or _delimiter_of(rows[min(1, len(rows) - 1)][1])
    if delimiter != _BLANKS and len(rows) > 1 and all(line.rstrip().endswith(delimiter) for _, line in rows):
        rows = [(k, line.rstrip().removesuffix(delimiter)) for k, line in rows]
    names = None
    if _is_header(rows, delimiter):
        names = tuple(_cells(rows.pop(0)[1], delimiter))
        if not rows:
            raise InputError("the file holds a header and no rows; write one row per time step")
    width = len(_cells(rows[0][1], delimiter))
    if names is None:
        names = _commented_names(numbered, rows[0][0], delimiter, width)
    elif len(names) == width - 1:  # R writes no name for the column of row names
        names = ("", *names)
    _check_ragged(rows, delimiter, width if names is None else len(names))
    return Table(names, _columns(rows, delimiter, width), np.array([k for k, _ in rows]))


def _decoded(content: bytes) -> str:
    encoding = "utf-16" if content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start:,} is not {encoding.removesuffix('-sig')} text: save the table as UTF-8, or give the "
            "file the ending of its kind"
        ) from error
    if "\0" in text:
        raise InputError("the file holds null bytes and is not text; give it the ending of its kind")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _without_comment(line: str) -> str:
    return line.partition(f" {_COMMENT}")[0] if _COMMENT in line else line


def _checked(delimiter: str | None) -> str | None:
    if delimiter is None:
        return None
    known = {"tab": "\t", "\\t": "\t", "blank": _BLANKS, "blanks": _BLANKS, " ": _BLANKS}
    delimiter = known.get(delimiter, delimiter)
    if delimiter != _BLANKS and (len(delimiter) != 1 or delimiter in '"\n\r' or delimiter.isalnum()):
        raise InputError(f"delimiter={delimiter!r}: give one character, 'tab' or 'blanks'")
    return delimiter


def _delimiter_of(line: str) -> str:
    return next((x for x in _DELIMITERS if x in line.strip(" ")), _BLANKS)


def _cells(line: str, delimiter: str) -> list[str]:
    if delimiter == _BLANKS:
        return line.split()
    if '"' not in line:
        return [cell.strip() for cell in line.split(delimiter)]
    return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))]


def _is_header(rows: Sequence[tuple[int, str]], delimiter: str) -> bool:
    """Whether the first row holds names."""
    first = _cells(rows[0][1], delimiter)
    second = _cells(rows[1][1], delimiter) if len(rows) > 1 else []
    texts = [number_in(cell, delimiter) is None for cell in first]
    if any(texts[1:]):
        return True
    if texts[0]:
        # Only the first cell is text: a label of rows, or the name above a column of numbers.
        return len(first) == 1 or (bool(second) and number_in(second[0], delimiter) is not None)
    # Names that are numbers count up from 0 or 1, and no spin is 2; an unnamed index column may stand before them.
    counting = first[1:] if first[0] == "" else first
    if counting not in ([str(k + start) for k in range(len(counting))] for start in (0, 1)):
        return False
    return len(counting) > 2 or (first[0] == "" and bool(second) and second[0] != "")


def _commented_names(
    numbered: Sequence[tuple[int, str]], first: int, delimiter: str, width: int
) -> tuple[str, ...] | None:
    """Names in the last comment before the first row, where np.savetxt puts them."""
    comments = [line.strip().lstrip(_COMMENT + " ") for k, line in numbered if k < first]
    cells = _cells(comments[-1], delimiter) if comments else []
    return tuple(cells) if len(cells) == width > 1 and all(cells) else None


def _check_ragged(rows: Sequence[tuple[int, str]], delimiter: str, width: int) -> None:
    for k, line in rows:
        plain = delimiter != _BLANKS and '"' not in line
        found = line.count(delimiter) + 1 if plain else len(_cells(line, delimiter))
        if found != width:
            raise InputError(
                f"line {k} has {counted(found, 'cell')} where others have {width}: write one cell per column in every "
                "row, NA where a value is missing"
            )


def _columns(rows: Sequence[tuple[int, str]], delimiter: str, width: int) -> list[np.ndarray]:
    import pandas as pd

    lines = [line for _, line in rows]
    comma = delimiter != "," and any("," in line for line in lines[:100])
    frame = pd.read_csv(
        io.StringIO("\n".join(lines)),
        header=None,
        names=list(range(width)),
        index_col=False,
        sep=delimiter,
        decimal="," if comma else ".",
        skipinitialspace=True,
        skip_blank_lines=False,
        low_memory=False,
    )
    return [frame[k].to_numpy() for k in range(width)]
