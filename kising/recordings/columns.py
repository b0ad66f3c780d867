"""What the columns of a recording look like: units that never change, hardly ever change, or repeat one another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kising.recordings.wording import spins_listed

Spins = npt.NDArray[np.int8]
Counts = npt.NDArray[np.int64]

#: A unit with fewer changes than this says very little about its couplings.
FEW_FLIPS = 5
#: Sums of this many ±1 fit in 8 bits; adding up in 8 bits is several times faster.
BLOCK = 127
#: More identical pairs than this are counted, not listed.
PAIRS = 5


def constant_after_start(spins: Sequence[Spins]) -> npt.NDArray[np.bool_]:
    """(Nv,): whether a unit has one value in all steps that a slice predicts, the third of a segment and later ones."""
    predicted = [bridged(segment)[2:] for segment in spins]
    constant: npt.NDArray[np.bool_] = np.abs(_sums(predicted)) == sum(map(len, predicted))
    return constant


def column_notes(spins: Sequence[Spins], names: Sequence[str]) -> list[str]:
    """Notes on constant, rarely changing and duplicate columns."""
    spins = [bridged(segment) for segment in spins]
    sums, flips = _sums(spins), _flips(spins)
    steps = sum(map(len, spins))
    silent, stuck = sums == -steps, sums == steps
    constant = constant_after_start(spins) & ~silent & ~stuck
    rare = (flips < FEW_FLIPS) & ~silent & ~stuck & ~constant
    cure = (
        "such spins cannot be fitted (their bias would run to infinity): fittable(segments) leaves them out"
    )
    found = [
        (silent, f"always -1 (silent); {cure}"),
        (stuck, f"always +1; {cure}"),
        (constant, f"constant after the first two steps; {cure}"),
        (
            rare,
            f"fewer than {FEW_FLIPS} changes of state; the couplings of such spins are mostly noise: leave them out "
            "with segments.without([...]), or use wider bins",
        ),
    ]
    notes = [
        f"{spins_listed([names[i] for i in np.flatnonzero(which).tolist()])}: {text}"
        for which, text in found
        if which.any()
    ]
    pairs = _duplicates(spins, sums, flips, skipped=silent | stuck)
    if pairs:
        shown = ", ".join(f"{names[i]} = {names[j]}" for i, j in pairs[:PAIRS])
        more = f" and {len(pairs) - PAIRS} more" if len(pairs) > PAIRS else ""
        notes.append(
            f"identical columns: {shown}{more}; couplings from either of a pair cannot be told apart: keep one, "
            f"segments.without([{names[pairs[0][1]]!r}])"
        )
    return notes


def bridged(segment: Spins) -> Spins:
    """The segment with missing entries filled in: by the last known value, at its beginning by the first known one, and
    by -1 where a unit has none.
    """
    if segment.all():
        return segment
    seen = np.where(segment != 0, np.arange(len(segment))[:, None], -1)
    last = np.maximum.accumulate(seen, axis=0)
    first = np.argmax(segment != 0, axis=0)
    found = np.take_along_axis(segment, np.where(last < 0, first, last), axis=0)
    return np.where(found == 0, -1, found).astype(np.int8)


def _sums(spins: Sequence[Spins]) -> Counts:
    total = np.zeros(spins[0].shape[1], np.int64)
    for segment in spins:
        for start in range(0, len(segment), BLOCK):
            total += np.add.reduce(segment[start : start + BLOCK], axis=0, dtype=np.int8)
    return total


def _flips(spins: Sequence[Spins]) -> Counts:
    """How often each unit changes from one step to the next."""
    total = np.zeros(spins[0].shape[1], np.int64)
    for segment in spins:
        for start in range(0, len(segment) - 1, BLOCK):
            rows = segment[start : start + BLOCK + 1]
            total += np.add.reduce((rows[1:] != rows[:-1]).view(np.int8), axis=0, dtype=np.int8)
    return total


def _duplicates(
    spins: Sequence[Spins], sums: Counts, flips: Counts, *, skipped: npt.NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """Pairs (first, later) of identical columns. Only columns with equal counts are compared entry by entry."""
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i in np.flatnonzero(~skipped).tolist():
        alike[int(sums[i]), int(flips[i])].append(i)
    pairs = []
    for group in alike.values():
        firsts: dict[bytes, int] = {}
        for i in group if len(group) > 1 else ():
            bits = b"".join(np.packbits(segment[:, i] > 0).tobytes() for segment in spins)
            first = firsts.setdefault(bits, i)
            if first != i:
                pairs.append((first, i))
    return sorted(pairs)
