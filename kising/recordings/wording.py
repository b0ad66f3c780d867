"""How places and units are named in messages about recordings."""

from __future__ import annotations

from collections.abc import Sequence

from kising.messages import show_key

#: More names than this are counted, not listed.
LISTED = 5


def spin_named(name: str, position: int) -> str:
    """A unit in a message: its position, and its name if it has one of its own."""
    return f"spin {position}" if name == str(position) else f"spin {position} ({show_key(name)!r})"


def spins_listed(names: Sequence[str]) -> str:
    """The first few of some units, and how many there are."""
    shown = ", ".join(map(show_key, names[:LISTED]))
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"spin{'s' * (len(names) > 1)} {shown}{more}"


def counted(number: int, word: str) -> str:
    """``1 step``, ``12 steps``."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
