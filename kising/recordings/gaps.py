"""Missing entries: kept as gaps, or left out with their time step, which splits the recording into segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kising.errors import InputError
from kising.recordings.segments import SHORTEST
from kising.recordings.spins import Signs
from kising.recordings.wording import counted, spin_named

Stretch = tuple[int, int]

#: How missing entries are treated.
SAMPLE, DROP = "sample", "drop"
#: Steps in a row without a single entry that end a segment: what was known of the hidden spins is then forgotten.
LONGEST_SILENCE = 20


def stretches_of(signs: Signs, missing: str) -> list[Stretch]:
    """(start, stop) of every run of steps without gaps; where gaps are kept, of steps that are not all gaps."""
    if signs.whole is None:
        return [(0, len(signs.spins))]
    if missing == DROP:
        return _runs(signs.whole)
    joined: list[Stretch] = []
    for start, stop in _runs(np.any(signs.spins != 0, axis=1)):
        if joined and start - joined[-1][1] <= LONGEST_SILENCE:
            start = joined.pop()[0]
        joined.append((start, stop))
    return joined


def _runs(true: Any) -> list[Stretch]:
    edges = np.flatnonzero(np.diff(true.astype(np.int8), prepend=0, append=0)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def gap_notes(
    signs: Sequence[Signs], stretches: Sequence[Sequence[Stretch]], names: Sequence[str], missing: str
) -> list[str]:
    """Notes on the steps that are left out; an InputError if nothing remains."""
    steps = sum(len(piece.spins) for piece in signs)
    lengths = [b - a for found in stretches for a, b in found]
    gaps = steps - sum(lengths)
    short = [length for length in lengths if length < SHORTEST]
    absent = "have missing entries" if missing == DROP else "have no entry"
    worst = _most_gaps(signs, names, steps) if gaps else ""
    if len(short) == len(lengths):
        where = (
            f"{counted(gaps, 'step')} of {steps:,} {absent}{worst}"
            if gaps
            else (f"the longest has {max(lengths, default=0)}")
        )
        raise InputError(
            f"no segment has {SHORTEST} steps in a row, which is the least that can be used: {where}"
        )
    notes = []
    if gaps:
        notes.append(
            f"{counted(gaps, 'step')} of {steps:,} {absent} and are left out, which leaves "
            f"{counted(len(lengths) - len(short), 'segment')}{worst}"
        )
    if short:
        notes.append(
            f"dropped: {counted(len(short), 'segment')} with fewer than {SHORTEST} steps, "
            f"{counted(sum(short), 'step')} in all; if trials were cut too finely, join them"
        )
    return notes


def _most_gaps(signs: Sequence[Signs], names: Sequence[str], steps: int) -> str:
    gaps = np.sum([piece.gaps for piece in signs if piece.gaps is not None], axis=0)
    i = int(np.argmax(gaps))
    name = spin_named(names[i], i)
    return f"; {name} has most gaps ({gaps[i] / steps:.0%} of steps): leave it out to keep more"
