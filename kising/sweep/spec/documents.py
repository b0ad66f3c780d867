"""Plain data with the place where each value was written, and mistakes by place."""

from __future__ import annotations

import numbers
from collections import ChainMap
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from kising.errors import SpecError
from kising.messages import show, show_key

#: A sweep needs eight levels; the bound keeps hostile nesting from exhausting the stack.
MAX_DEPTH = 20
#: No list of a sweep is longer: there are never more points.
MAX_LENGTH = 10**6

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Place:
    """Where a value was written: a source (path of a file, ``--set``, or nothing), its line, and its key."""

    source: str | None = None
    line: int | None = None
    key: str = ""

    def __str__(self) -> str:
        spot = self.source if self.line is None else f"{self.source}:{self.line}"
        return ": ".join(part for part in (spot, self.key) if part)


@dataclass(frozen=True)
class Problem:
    """One mistake: its place, what is wrong, and what would be right."""

    place: Place
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.place), self.message) if part)


@dataclass(frozen=True)
class Document:
    """Plain data (dict with str keys, list, str, int, float, bool, None) with the place of each value."""

    value: Any
    root: Place = Place()
    places: MutableMapping[KeyPath, Place] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def place(self, path: KeyPath) -> Place:
        """Return the place of the value at ``path``; a missing one has its key and its section's line."""
        known = self.places.get(path)
        if known is not None:
            return known
        if not path:
            return self.root
        above = self.place(path[:-1])
        return Place(above.source, above.line, joined(above.key, path[-1]))

    def problem(self, path: KeyPath, message: str) -> Problem:
        """Return the problem ``message`` at ``path``."""
        return Problem(self.place(path), message)

    def replaced(self, value: Any, places: Mapping[KeyPath, Place]) -> Document:
        """Return this document with another value, and ``places`` replacing those known."""
        return Document(value, self.root, ChainMap(dict(places), self.places), self.problems)


def joined(parent: str, part: str | int) -> str:
    """Return the dotted key of ``part`` inside ``parent``: ``axes[0].model.visible[2]``."""
    if isinstance(part, int):
        return f"{parent}[{part}]"
    return f"{parent}.{show_key(part)}" if parent else show_key(part)


def path_of(key: str) -> KeyPath:
    """Return the path of a dotted key."""
    return tuple(key.split("."))


def lookup(value: Any, path: KeyPath) -> tuple[bool, Any]:
    """Return whether anything is written at ``path``, and what."""
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return False, None
        value = value[part]
    return True, value


def plain_document(mapping: object) -> Document:
    """Return a Python mapping as a document: tuples and arrays become lists, numbers Python's own."""
    if not isinstance(mapping, Mapping):
        message = (
            f"a sweep is a mapping ({{'name': ..., 'seed': ...}}), this is of type {type(mapping).__name__}"
        )
        raise SpecError((Problem(Place(), message),))
    problems: list[Problem] = []
    value = _plain(mapping, (), problems)
    return Document(value, problems=tuple(problems))


def _plain(value: Any, path: KeyPath, problems: list[Problem]) -> Any:
    def refuse(message: str) -> None:
        problems.append(Document(None).problem(path, message))

    if hasattr(value, "tolist"):  # an array, or one of its numbers
        value = value.tolist()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, (Mapping, list, tuple, range)):
        if len(path) >= MAX_DEPTH:
            return refuse(f"is nested deeper than {MAX_DEPTH} levels")
        if len(value) > MAX_LENGTH:
            return refuse(f"is {len(value)} values long; allowed: at most {MAX_LENGTH}")
        if not isinstance(value, Mapping):
            return [_plain(entry, (*path, number), problems) for number, entry in enumerate(value)]
        for key in value:
            if not isinstance(key, str):
                refuse(f"the key {show(key)} is not text; allowed: keys such as 'data.length'")
        return {
            str.__str__(key): _plain(entry, (*path, key), problems)
            for key, entry in value.items()
            if isinstance(key, str)
        }
    allowed = "text, numbers, true, false, lists, mappings"
    return refuse(f"a value of type {type(value).__name__} is not plain data; allowed: {allowed}")
