"""Sizes and names: every trial has the same columns, rows are steps, and each spin has its own name."""

from __future__ import annotations

from collections.abc import Sequence

from kising.errors import InputError
from kising.recordings.forms import Pieces
from kising.recordings.segments import SHORTEST
from kising.recordings.wording import counted, spins_listed

#: With fewer steps than this, and fewer steps than spins, a recording is assumed to be transposed.
SURELY_TOO_SHORT = 50


def common_width(source: Pieces) -> int:
    """The number of columns, which is the same in every trial."""
    if not source.pieces:
        raise InputError("the recording is empty: give at least 3 steps of at least 1 spin")
    width: int = source.pieces[0].values.shape[1]
    for piece in source.pieces:
        if piece.values.shape[1] != width:
            raise InputError(
                f"trial {piece.trial} has {counted(piece.values.shape[1], 'spin')}, trial {source.pieces[0].trial} "
                f"has {width}: trials may differ in steps, never in spins"
            )
    steps = sum(len(piece.values) for piece in source.pieces)
    if not steps or not width:
        raise InputError(
            f"the recording is empty ({counted(steps, 'step')} of {counted(width, 'spin')}): give at least 3 steps "
            "of at least 1 spin"
        )
    if source.names is not None and len(source.names) != width:
        raise InputError(f"there are {len(source.names)} names for {counted(width, 'spin')}")
    return width


def check_width(found: int, expected: int | None, lengths: Sequence[int]) -> None:
    """Refuse a recording of another number of spins than expected."""
    if expected is None or found == expected:
        return
    cure = "; transpose it: data.T" if set(lengths) == {expected} else ""
    raise InputError(f"the recording has {counted(found, 'spin')}; expected {expected}{cure}")


def distinct_names(names: tuple[str, ...]) -> tuple[tuple[str, ...], list[str]]:
    """Names that differ: a repeated one gets a number, with a note."""
    if len(set(names)) == len(names):
        return names, []
    taken = set(names)
    seen: set[str] = set()
    changed = []
    repeated = []
    for name in names:
        new, k = name, 2
        while new in seen or (new != name and new in taken):
            new, k = f"{name} ({k})", k + 1
        if new != name:
            repeated.append(name)
        seen.add(new)
        changed.append(new)
    listed = spins_listed(sorted(set(repeated)))
    return tuple(changed), [
        f"several columns have the same name, and are numbered as in {repeated[0]} (2): {listed}"
    ]


def transposition_notes(lengths: Sequence[int], width: int) -> list[str]:
    """Refuse or note a recording with fewer steps than spins, which probably has rows and columns exchanged."""
    steps = sum(lengths)
    several = len(lengths) > 1
    found = f"{counted(steps, 'step')} of {counted(width, 'spin')}"
    cure = "[trial.T for trial in data]" if several else "data.T"
    if steps >= width:
        if several and max(lengths) < width:
            return [
                f"no trial has as many steps ({max(lengths)}) as there are spins ({width}); if rows are spins, "
                f"transpose: {cure}"
            ]
        return []
    if width < SHORTEST:
        return []  # too short either way, which is refused elsewhere
    if steps < SURELY_TOO_SHORT:
        raise InputError(f"the recording has {found}: rows are steps; if it is transposed, give {cure}")
    return [f"{found}: fewer steps than spins; if rows are spins, transpose: {cure}"]
