"""The forms that data come in: one array, trials, a table with column names, a time series with epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kising.errors import InputError
from kising.recordings.numbers import PLAIN, as_numbers
from kising.recordings.spins import Place
from kising.recordings.wording import counted

#: Names of the index level or column that separates trials.
TRIAL_NAMES = ("trial", "trials", "trial_id", "trial_number", "segment", "epoch", "session")
#: Times further apart than this many sampling steps have a gap between them.
JUMP = 1.5


@dataclass(frozen=True)
class Piece:
    """Consecutive steps."""

    values: npt.NDArray[Any]
    """(T, columns): plain numbers"""
    trial: int
    first: int
    """the step of the trial that it begins with"""


@dataclass(frozen=True)
class Pieces:
    """Data of any form, as arrays."""

    pieces: tuple[Piece, ...]
    names: tuple[str, ...] | None
    """names of the columns, if the data have them"""
    notes: tuple[str, ...] = ()
    place: Place | None = None
    """describes where a step is, if that is not a trial and a step"""
    oriented: bool = False
    """rows are known to be steps"""

    def where(self, k: int, step: int) -> str:
        """The place of a step of piece k in a message."""
        if self.place is not None:
            return self.place(k, step)
        several = len({piece.trial for piece in self.pieces}) > 1
        return f"trial {self.pieces[k].trial}, " * several + f"step {self.pieces[k].first + step}"


def pieces_of(data: Any, what: str = "the recording") -> Pieces:
    """Split data of any form into pieces. `what` names the data in messages."""
    if isinstance(data, (str, bytes, Path)):
        raise InputError(f"{what} is a path: read it first, with kising.read_recording(path)")
    if isinstance(data, tuple) and hasattr(data, "visible"):  # a simulation; its hidden spins are not data
        data = data.visible
    if isinstance(data, Mapping):
        cure = "group.count(0.02) > 0" if hasattr(data, "count") else "list(data.values())"
        raise InputError(f"{what} is a mapping: give an array or a list of trials, for example {cure}")
    if all(hasattr(data, name) for name in ("t", "time_support", "values")):
        return _of_time_series(data, what)
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        return _of_table(data, what)
    if isinstance(data, (list, tuple)) and len(data) and all(_dimensions(x) == 2 for x in data):
        return _of_trials(data, what)
    array = as_numbers(data, what)
    if array.ndim == 3:
        return Pieces(tuple(Piece(trial, k, 0) for k, trial in enumerate(array)), None)
    return Pieces((Piece(_matrix(array, what), 0, 0),), None)


def _matrix(array: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    if array.ndim == 2:
        return array
    cure = "; a single spin is data[:, None]" if array.ndim == 1 else ""
    raise InputError(
        f"{what} has {counted(array.ndim, 'dimension')}: give (steps, spins), (trials, steps, spins) or a list of "
        f"trials{cure}"
    )


def _dimensions(x: Any) -> int:
    if hasattr(x, "ndim"):
        return int(x.ndim)
    if isinstance(x, (list, tuple)):
        return 1 + (_dimensions(x[0]) if len(x) else 0)
    return 0


def _of_trials(data: Sequence[Any], what: str) -> Pieces:
    found = [pieces_of(trial, f"trial {k}") for k, trial in enumerate(data)]
    names = found[0].names
    for k, trial in enumerate(found):
        if trial.names != names:
            raise InputError(
                f"trial {k} of {what} has other column names than trial 0: give all trials the same columns in the "
                "same order, for example [trial[names] for trial in data]"
            )
    pieces = (Piece(piece.values, k, piece.first) for k, trial in enumerate(found) for piece in trial.pieces)
    return Pieces(tuple(pieces), names, tuple(note for trial in found for note in trial.notes))


def _of_table(data: Any, what: str) -> Pieces:
    """A DataFrame. Its index is ignored, unless one of several levels says which trial a row belongs to."""
    kinds = {getattr(dtype, "kind", "O") for dtype in data.dtypes}
    if kinds <= set(PLAIN) and not all(isinstance(dtype, np.dtype) for dtype in data.dtypes):
        array = data.to_numpy(dtype=np.float64, na_value=np.nan)  # pandas' nullable columns
    else:
        array = as_numbers(data.to_numpy(), what)
    names = tuple(map(_name, data.columns))
    levels = list(getattr(getattr(data, "index", None), "names", ()))
    if len(levels) < 2:
        return Pieces((Piece(_matrix(array, what), 0, 0),), names)
    level = next((x for x in levels if str(x).lower() in TRIAL_NAMES), None)
    if level is None:
        note = (
            f"{what}: the index levels {', '.join(map(str, levels))} are ignored, and all rows are taken as one "
            "stretch of time; call a level 'trial' to separate trials"
        )
        return Pieces((Piece(array, 0, 0),), names, (note,))
    return Pieces(by_trial(array, data.index.get_level_values(level).tolist()), names)


def by_trial(array: npt.NDArray[Any], labels: Sequence[Any]) -> tuple[Piece, ...]:
    """The rows of each trial: neighbouring rows with the same label."""
    starts = [k for k, label in enumerate(labels) if k == 0 or label != labels[k - 1]]
    seen: set[Any] = set()
    for start in starts:
        if labels[start] in seen:
            raise InputError(
                f"trial {labels[start]} continues at row {start}, after other trials: sort the rows by trial, or give "
                "every trial its own label"
            )
        seen.add(labels[start])
    stops = [*starts[1:], len(array)]
    return tuple(Piece(array[a:b], k, 0) for k, (a, b) in enumerate(zip(starts, stops, strict=True)))


def _name(column: Any) -> str:
    return "/".join(map(str, column)) if isinstance(column, tuple) else str(column)


def _of_time_series(data: Any, what: str) -> Pieces:
    """Anything like pynapple's TsdFrame: `t`, `values`, `columns`, and epochs in `time_support`."""
    array = _matrix(as_numbers(data.values, what), what)
    times = np.asarray(data.t, np.float64)
    columns = getattr(data, "columns", None)
    names = None if columns is None else tuple(map(_name, columns))
    if times.shape != (len(array),):
        raise InputError(f"{what} has {len(array)} rows and {times.size} times: give one time per row")
    borders = np.zeros(max(len(times) - 1, 0), np.bool_)
    if len(times) > 1:
        steps = np.diff(times)
        if not (steps > 0).all():
            raise InputError(f"{what}: times must increase; sort the rows by time")
        epoch = np.searchsorted(np.asarray(data.time_support.start, np.float64), times, side="right")
        borders = (np.diff(epoch) != 0) | (steps > JUMP * np.median(steps))
    cuts = [0, *(np.flatnonzero(borders) + 1).tolist(), len(array)]
    pieces = tuple(Piece(array[start:stop], 0, start) for start, stop in pairwise(cuts))
    note = f"{what}: {counted(len(pieces), 'segment')}, split where an epoch of time_support begins or times jump"
    return Pieces(pieces, names, (note,) if len(pieces) > 1 else ())
