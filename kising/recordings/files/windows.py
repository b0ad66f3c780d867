"""When trials begin and end: (start, stop) pairs, or onsets with a duration."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kising.errors import InputError
from kising.recordings.files.durations import seconds, unit_in
from kising.recordings.files.tables import Table, column_called, numbers_of
from kising.recordings.numbers import as_numbers

Array = npt.NDArray[np.float64]


def windows_of(trials: Any) -> Array:
    """(K, 2): start and stop of every trial, in seconds.

    `trials` is a (K, 2) array, a pair (onsets, duration), or a table with the columns start and stop, or onset and
    duration. Numbers are seconds, unless the name of a column says otherwise.
    """
    if isinstance(trials, Table):
        return _checked(_of_table(trials))
    if isinstance(trials, tuple) and len(trials) == 2 and np.ndim(trials[1]) == 0:
        onsets = np.ravel(np.asarray(as_numbers(trials[0], "trials"), np.float64))
        return _checked(np.column_stack([onsets, onsets + seconds(trials[1], "duration of trials")]))
    array = np.asarray(as_numbers(trials, "trials"), np.float64)
    if array.ndim != 2 or array.shape[1] != 2:
        raise InputError(
            f"trials of shape {array.shape}: give (start, stop) pairs, shape (trials, 2), or onsets with their "
            "duration, (onsets, '1s')"
        )
    return _checked(array)


def _of_table(table: Table) -> Array:
    columns = range(len(table.columns))
    if len(columns) < 2:
        raise InputError(
            "trials have one column: write start and stop, or name two columns onset and duration"
        )
    start = column_called(table.names, ("start", "onset", "begin"))
    stop = column_called(table.names, ("stop", "end"))
    length = column_called(table.names, ("duration", "length"))
    if start is None and stop is None and length is None and len(columns) == 2:
        start, stop = 0, 1
    if start is None or (stop is None and length is None):
        raise InputError("trials need two columns, named start and stop or onset and duration")
    begins = _scaled(table, start)
    ends = _scaled(table, stop) if stop is not None else begins + _scaled(table, int(length or 0))
    return np.column_stack([begins, ends])


def _scaled(table: Table, k: int) -> Array:
    return np.asarray(numbers_of(table, k), np.float64) * (unit_in(table.names[k]) if table.names else 1.0)


def _checked(windows: Array) -> Array:
    if not len(windows):
        raise InputError("there are no trials")
    if not np.isfinite(windows).all():
        raise InputError("trials hold NaN or infinity; every trial needs a start and a stop")
    wrong = np.flatnonzero(windows[:, 1] <= windows[:, 0])
    if len(wrong):
        k = int(wrong[0])
        raise InputError(
            f"trial {k} stops at {windows[k, 1]:g}, not after its start at {windows[k, 0]:g}; if the second column is "
            "a duration, name the columns onset and duration"
        )
    return windows
