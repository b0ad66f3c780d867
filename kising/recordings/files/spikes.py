"""Spike times to spins: a unit is +1 in the bins in which it fired, and -1 in all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kising.errors import InputError
from kising.recordings.files.durations import unit_in
from kising.recordings.files.tables import Table, column_called, numbers_of
from kising.recordings.forms import Piece, Pieces
from kising.recordings.wording import counted

Array = npt.NDArray[np.float64]

UNIT_NAMES = ("unit", "neuron", "cell", "cluster", "id", "unit_id", "neuron_id", "cell_id", "cluster_id")
TIME_NAMES = ("time", "t", "spike_time", "timestamp")
#: Entries of a binned recording, in bytes: beyond this, the bins or the unit of time are wrong.
LARGEST = 4e9
#: With fewer spikes per bin than one in this many, almost every step is empty.
SPARSEST = 100
#: More than this share of bins with several spikes of one unit is worth a note.
CROWDED = 0.05


class Spikes(NamedTuple):
    """Spikes of all units."""

    units: npt.NDArray[Any]
    """(n,): labels"""
    times: Array
    """(n,): seconds"""
    notes: tuple[str, ...]


def spikes_of_table(table: Table) -> Spikes:
    """Spikes from the columns of a table: by their names, or else unit first and time second."""
    unit, time = (column_called(table.names, x) for x in (UNIT_NAMES, TIME_NAMES))
    if unit is None or time is None:
        if len(table.columns) != 2:
            raise InputError(
                f"spike times are two columns, unit and time; this table has {len(table.columns)}: name two of them "
                "'unit' and 'time'"
            )
        if unit is None and time is None:
            unit = int(_looks_swapped(*table.columns))
        unit = 1 - time if unit is None and time is not None else unit
        time = 1 - unit if unit is not None else None
    assert unit is not None
    assert time is not None
    scale = unit_in(table.names[time]) if table.names else 1.0
    labels = table.columns[unit]
    notes = []
    times = np.asarray(numbers_of(table, time), np.float64) * scale
    if not table.names and unit == 1:
        notes.append("the second column is taken as the unit and the first as the time; name them to be sure")
    return Spikes(labels, times, tuple(notes))


def _looks_swapped(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> bool:
    """Whether only the second of two columns holds whole numbers or labels."""
    return not _whole(first) and _whole(second)


def _whole(column: npt.NDArray[Any]) -> bool:
    return column.dtype.kind != "f" or bool((column == np.floor(column)).all())


def binned(spikes: Spikes, width: float, trials: Array | None) -> Pieces:
    """Spins in bins of `width` seconds; `trials` are (start, stop) in seconds, None for the whole recording."""
    labels, unit_of = _labelled(spikes.units)
    times = spikes.times
    if not np.isfinite(times).all():
        raise InputError(f"spike {int(np.argmin(np.isfinite(times)))} has no finite time; leave it out")
    if trials is None:
        # Bins are aligned to time 0, whenever the first spike comes.
        first = float(np.floor(times.min() / width)) * width
        last = _bin_of(times.max(), first, width)
        trials = np.array([[first, first + (float(last) + 1) * width]])
    counts = _whole_bins(trials, width)
    _check_size(counts, len(labels), len(times), width)
    order = np.argsort(times, kind="stable")
    times, unit_of = times[order], unit_of[order]
    used = np.zeros(len(times), np.int64)
    pieces, crowded, filled = [], 0, 0
    for k, (start, steps) in enumerate(
        zip(trials[:, 0].tolist(), counts.astype(np.int64).tolist(), strict=True)
    ):
        # A bin too many on either side: which spikes are inside is for _bin_of to say.
        near = slice(*np.searchsorted(times, [start - width, start + (steps + 1) * width]).tolist())
        bins = _bin_of(times[near], start, width)
        inside = (bins >= 0) & (bins < steps)
        used[near] += inside
        cells = bins[inside].astype(np.int64) * len(labels) + unit_of[near][inside]
        cells, several = np.unique(cells, return_counts=True)
        crowded, filled = crowded + int((several > 1).sum()), filled + len(cells)
        spins = np.full((steps, len(labels)), -1, np.int8)
        spins.ravel()[cells] = 1
        pieces.append(Piece(spins, k, 0))
    notes = [*spikes.notes, *_notes(used, crowded, filled)]
    return Pieces(tuple(pieces), labels, tuple(notes), oriented=True)


def _labelled(units: npt.NDArray[Any]) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """Names of units in order, and the number of each spike's unit."""
    if not len(units):
        raise InputError("there are no spikes; write one row per spike: unit, time")
    if units.dtype.kind == "f":
        if not _whole(units) or not np.isfinite(units).all():
            raise InputError("units are whole numbers or labels; is the column of times named 'time'?")
        units = units.astype(np.int64) if np.abs(units).max() < 2**53 else units
    if units.dtype.kind == "O":
        units = np.array([str(x) for x in units.tolist()])
    labels, number = np.unique(units, return_inverse=True)
    return tuple(map(str, labels.tolist())), np.asarray(number, np.int64).reshape(-1)


def _bin_of(times: Any, start: float, width: float) -> Any:
    """The bin of each time; a time on a border, up to rounding, belongs to the later bin."""
    rounding = 4 * np.finfo(np.float64).eps * (np.abs(times) + abs(start)) / width
    return np.floor((times - start) / width + rounding)


def _whole_bins(trials: Array, width: float) -> Array:
    counts: Array = np.array([max(_bin_of(stop, start, width), 0.0) for start, stop in trials])
    return counts


def _check_size(counts: Array, units: int, spikes: int, width: float) -> None:
    steps = float(counts.sum())
    if steps * units > LARGEST or steps > SPARSEST * spikes + 1e6:
        raise InputError(
            f"bins of {width:g} s make {steps:.3g} steps of {units} units for {counted(spikes, 'spike')}: are times in "
            "another unit? Name the column, for example time_ms, or choose wider bins"
        )
    if not steps:
        raise InputError(f"no trial is as long as one bin of {width:g} s: choose narrower bins")


def _notes(used: npt.NDArray[np.int64], crowded: int, filled: int) -> Sequence[str]:
    notes = []
    outside, twice = int((used == 0).sum()), int((used > 1).sum())
    if outside:
        notes.append(f"{counted(outside, 'spike')} of {len(used):,} fall outside the trials and are dropped")
    if twice:
        notes.append(
            f"{counted(twice, 'spike')} of {len(used):,} belong to several trials: trials overlap, and should not"
        )
    if crowded > CROWDED * filled:
        notes.append(
            f"{crowded / filled:.0%} of the bins with spikes hold more than one of the same unit, and count as one: "
            "narrower bins lose less"
        )
    return notes
