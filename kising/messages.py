"""Parts of error messages: how a wrong value is shown, and what was probably meant."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable

#: A culprit is quoted up to this many characters: enough to recognise it, never a screenful.
SHOWN = 60
#: difflib is quadratic in length; no key or word of a sweep file is near this long.
LONGEST_WORD = 80


def show(value: object) -> str:
    """Return ``value`` as a sweep file would say it, shortened: ``'bpp'``, ``2.5``, ``true``, ``a list``."""
    if value is None:
        return "an empty value"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and value.bit_length() > 200:  # Python itself refuses to print very long ones
        return f"a whole number of about {int(value.bit_length() * math.log10(2)) + 1} digits"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    text = repr(value[: SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN else text[: SHOWN - 4] + "..." + text[-1]


def show_key(key: str) -> str:
    """Return a key for the place of a message: itself where printable, else escaped; shortened."""
    plain = key[:SHOWN] + ("..." if len(key) > SHOWN else "")
    return plain if plain.isprintable() and plain.strip() else repr(plain)


def listing(words: Iterable[str]) -> str:
    """Return the allowed words as they stand in a message."""
    return ", ".join(words)


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that ``word`` most probably meant, or None where nothing is near.

    Case, spaces, underscores and hyphens are forgiven first; then letters are compared, and of equally
    near candidates the one that comes first wins.
    """
    if len(word) > LONGEST_WORD:
        return None
    folded: dict[str, str] = {}
    for candidate in candidates:
        folded.setdefault(_fold(candidate), candidate)
    near = difflib.get_close_matches(_fold(word), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else None


def did_you_mean(suggestion: str | None) -> str:
    """Return the end of a message that offers ``suggestion``, or nothing where there is none."""
    return f"; did you mean {suggestion!r}?" if suggestion is not None else ""


def _fold(word: str) -> str:
    return word.strip().lower().replace("_", "-").replace(" ", "-")


def plural(count: int, noun: str) -> str:
    """A number with its noun: 1 run, 2 runs."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def agree(count: int, one: str, several: str) -> str:
    """The form of a verb that goes with a number."""
    return one if count == 1 else several
