"""Values to spins: ±1, 0/1 and booleans become ±1, NaN becomes 0, and anything else is refused with its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kising.errors import InputError
from kising.recordings.wording import spin_named

Spins = npt.NDArray[np.int8]
Place = Callable[[int, int], str]
"""(piece, step) -> where that is, for a message"""

#: Entries examined at a time: the masks of a long recording would take more memory than the recording.
EXAMINED = 1 << 16


class Signs(NamedTuple):
    """The spins of one piece."""

    spins: Spins
    """(T, Nv): ±1; 0 where an entry is missing"""
    gaps: npt.NDArray[np.int64] | None
    """(Nv,): missing entries of each spin; None if there are none"""
    whole: npt.NDArray[np.bool_] | None
    """(T,): steps without gaps; None if all are"""


def as_signs(pieces: Sequence[npt.NDArray[Any]], names: Sequence[str], place: Place) -> list[Signs]:
    """Every piece as ±1. Whether 0 or -1 stands for "down" is one decision for the whole recording."""
    firsts: dict[int, str] = {}
    signs = [_signs_of(k, piece, names, place, firsts) for k, piece in enumerate(pieces)]
    if {-1, 0} <= firsts.keys():
        raise InputError(
            f"the recording holds both -1 ({firsts[-1]}) and 0 ({firsts[0]}): spins are either ±1 or 0/1. Where 0 "
            "means a missing value, replace it: np.where(data == 0, np.nan, data)"
        )
    return signs


def _signs_of(
    k: int, piece: npt.NDArray[Any], names: Sequence[str], place: Place, firsts: dict[int, str]
) -> Signs:
    """One piece as ±1; `firsts` collects where -1 and 0 were seen first."""
    # Spins that are already int8 are not copied, because long recordings take much of the memory.
    ready = piece.dtype == np.int8 and piece.flags.c_contiguous and piece.flags.writeable
    spins: Spins = piece if ready else np.empty(piece.shape, np.int8)
    gaps = whole = None
    rows_at_once = max(1, EXAMINED // piece.shape[1])
    for start in range(0, len(piece), rows_at_once):
        rows = piece[start : start + rows_at_once]
        chunk = slice(start, start + len(rows))
        up, down, zero = rows == 1, rows == -1, rows == 0

        def where(hits: npt.NDArray[np.bool_], start: int = start) -> str:
            t, i = divmod(int(np.argmax(hits)), hits.shape[1])
            return f"{place(k, start + t)}, {spin_named(names[i], i)}"

        strange = ~(up | down | zero)
        if strange.any():
            absent = np.isnan(rows) if rows.dtype.kind == "f" else np.zeros_like(strange)
            wrong = strange & ~absent
            if wrong.any():
                culprit = rows[tuple(np.argwhere(wrong)[0])]
                raise InputError(f"{where(wrong)} is {_shown(culprit)}: {_cure(culprit)}")
            if gaps is None or whole is None:
                gaps, whole = np.zeros(piece.shape[1], np.int64), np.ones(len(piece), np.bool_)
            gaps += absent.sum(axis=0)
            whole[chunk] = ~absent.any(axis=1)
        for value, hits in ((-1, down), (0, zero)):
            if value not in firsts and hits.any():
                firsts[value] = where(hits)
        if spins is piece and zero.any():
            spins = np.empty(piece.shape, np.int8)
            spins[:start] = piece[:start]
        if spins is not piece:
            np.multiply(up.view(np.int8), 2, out=spins[chunk])
            spins[chunk] -= 1
            if strange.any():
                spins[chunk][strange] = 0
    return Signs(spins, gaps, whole)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (float, np.floating)) else str(value)


def _cure(value: Any) -> str:
    if value > 1 and float(value).is_integer():
        return "spins are ±1 or 0/1. If these are spike counts, binarise with data > 0"
    if not np.isfinite(value):
        return "spins are ±1 or 0/1; write NaN where a value is missing"
    return "spins are ±1 or 0/1; threshold the data, for example data > 0"
