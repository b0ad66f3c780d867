"""Axes: keys that take several values, read from the ``axes`` of a sweep file and checked value by value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kising.messages import did_you_mean, listing, nearest, show
from kising.options import LEAVES, POINT_SECTIONS, Header
from kising.sweep.spec.documents import Document, KeyPath, Problem
from kising.sweep.spec.spacing import SHAPES, Spacing, read_spacing
from kising.values import RefusedError, Scalar, Whole

MAX_POINTS = 10**6
#: Of one axis this many values are refused one by one; the rest are counted.
MAX_REFUSED = 5

_EXAMPLE = "{data.length: [1e3, 1e4]}"
#: Keys that can vary, and keys that exist but never vary: no other key was meant.
_AXES = tuple(key for key, leaf in LEAVES.items() if leaf.option.varies)
_FIXED = frozenset(Header.model_fields) | (LEAVES.keys() - set(_AXES))
_FORMS = listing(["a list of values", *(f"{{{form}: {shape}}}" for form, shape in SHAPES.items())])


@dataclass(frozen=True)
class Axis:
    """Keys that vary together: the i-th value of the axis gives every key the i-th entry of its column."""

    keys: tuple[str, ...]
    columns: tuple[tuple[Scalar, ...], ...]
    #: The columns as they were written (``{"logspace": [1e3, 1e6, 7]}``), to write them again.
    written: tuple[Any, ...] = field(compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.columns[0])


@dataclass(frozen=True)
class Axes:
    """What was read: the axes that are right, the keys that were named, how many points, and the mistakes."""

    axes: tuple[Axis, ...]
    #: Every known key that was named, with its path in the document, also where its values are wrong.
    named: Mapping[str, KeyPath]
    points: int
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class _Column:
    """What is written for one key, and where; counted, not yet expanded."""

    key: str
    path: KeyPath
    written: list[Any] | Spacing

    @property
    def count(self) -> int:
        return len(self.written) if isinstance(self.written, list) else self.written.count


@dataclass(frozen=True)
class _Group:
    """The keys of one axis that could be read, where the axis is, and whether all its keys could be read."""

    columns: list[_Column]
    path: KeyPath
    complete: bool

    @property
    def count(self) -> int:
        return max((column.count for column in self.columns), default=1)


def read_axes(document: Document) -> Axes:
    """Read the ``axes`` of a document; nothing is expanded where there would be too many points."""
    return _Reader(document).read(document.value.get("axes"))


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self.named: dict[str, KeyPath] = {}

    def read(self, raw: Any) -> Axes:
        groups = self._groups(raw)
        points = math.prod(group.count for group in groups)
        axes: list[Axis] = []
        if points > MAX_POINTS:
            factors = " x ".join(_many(group.count) for group in groups if group.count > 1)
            many = f"{factors} = {_many(points)} points" if " x " in factors else f"{factors} points"
            self._refuse(("axes",), f"{many}; allowed: at most {MAX_POINTS}")
        else:
            read = [self._axis(group) for group in groups]
            axes = [axis for axis in read if axis is not None]
        return Axes(tuple(axes), self.named, points, tuple(self.problems))

    def _refuse(self, path: KeyPath, message: str) -> None:
        self.problems.append(self.document.problem(path, message))

    def _groups(self, raw: Any) -> list[_Group]:
        """Return a group for each key of a mapping, or for each item of a list."""
        if raw is None:
            return []
        if isinstance(raw, dict):
            return [self._group({key: value}, ("axes",)) for key, value in raw.items()]
        if not isinstance(raw, list):
            self._refuse(("axes",), f"{show(raw)} is not a mapping of keys to values; allowed: {_EXAMPLE}")
            return []
        groups = []
        for number, item in enumerate(raw):
            if isinstance(item, dict) and item:
                groups.append(self._group(item, ("axes", number)))
            else:
                shown = "an empty mapping" if item == {} else show(item)
                self._refuse(("axes", number), f"{shown} is not an axis; allowed: {_EXAMPLE}")
        return groups

    def _group(self, item: dict[str, Any], path: KeyPath) -> _Group:
        columns = []
        for key, value in item.items():
            try:
                columns.append(self._column(key, value, (*path, key)))
            except RefusedError as refusal:
                inside = isinstance(value, dict) and len(value) == 1 and value.keys() <= SHAPES.keys()
                spot = (*path, key, *value) if inside and key in LEAVES else (*path, key)
                self._refuse(spot, str(refusal))
        here = (*path, *item) if len(item) == 1 else path
        return _Group(columns, here, complete=len(columns) == len(item))

    def _column(self, key: str, value: Any, path: KeyPath) -> _Column:
        if key not in _AXES:
            raise RefusedError(_not_an_axis(key, value))
        if key in self.named:
            first = self.document.place(self.named[key])
            where = first.key if first.line is None else f"line {first.line}"
            raise RefusedError(f"is an axis twice, first at {where}; keep one")
        self.named[key] = path
        if isinstance(value, list):
            if not value:
                raise RefusedError("an empty list is no axis; allowed: at least one value")
            return _Column(key, path, value)
        if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= SHAPES.keys():
            raise RefusedError(_not_a_form(value))
        ((form, args),) = value.items()
        if not LEAVES[key].kind.numeric:
            allowed = f"a list of {LEAVES[key].kind.allowed}"
            raise RefusedError(f"makes numbers, which {key} does not take; allowed: {allowed}")
        return _Column(key, (*path, form), read_spacing(form, args))

    def _axis(self, group: _Group) -> Axis | None:
        """Expand and check the columns of a group; None where it has mistakes."""
        before = len(self.problems)
        if len({column.count for column in group.columns}) > 1:
            lengths = listing(f"{column.key} has {column.count}" for column in group.columns)
            self._refuse(group.path, f"keys that vary together need equally many values, but {lengths}")
        columns = [self._values(column) for column in group.columns]
        if len(self.problems) == before and group.columns:
            self._refuse_repeat(group, columns)
        if len(self.problems) > before or not group.complete:
            return None
        written = (c.written if isinstance(c.written, list) else c.written.written() for c in group.columns)
        return Axis(tuple(column.key for column in group.columns), tuple(columns), tuple(written))

    def _values(self, column: _Column) -> tuple[Scalar, ...]:
        kind, listed = LEAVES[column.key].kind, isinstance(column.written, list)
        entries: list[Any]
        if isinstance(column.written, list):
            entries = column.written
        else:
            entries = column.written.numbers(whole=isinstance(kind, Whole))
        values: list[Scalar] = []
        refused = 0
        for number, entry in enumerate(entries):
            try:
                values.append(kind.parse(entry))
            except RefusedError as refusal:
                refused += 1
                if refused <= MAX_REFUSED:
                    self._refuse((*column.path, number) if listed else column.path, str(refusal))
        if refused > MAX_REFUSED:
            more = refused - MAX_REFUSED
            self._refuse(column.path, f"{more} more value{'s are' if more > 1 else ' is'} refused like these")
        return tuple(values)

    def _refuse_repeat(self, group: _Group, columns: list[tuple[Scalar, ...]]) -> None:
        seen: dict[tuple[Scalar, ...], int] = {}
        for number, values in enumerate(zip(*columns, strict=True)):
            first = seen.setdefault(values, number)
            if first == number:
                continue
            shown, column = listing(show(value) for value in values), group.columns[0]
            if len(columns) > 1:
                places = f"places {first + 1} and {number + 1}"
                self._refuse(group.path, f"{shown} are given together twice, at {places}; keep one")
            elif isinstance(column.written, list):
                self._refuse((*column.path, number), f"{shown} is given twice; keep one")
            else:
                self._refuse(column.path, f"{shown} comes twice; give fewer values, or ends further apart")
            return


def _many(count: int) -> str:
    # Python refuses to print whole numbers of thousands of digits, which a range can have.
    return str(count) if count < 10**18 else "over 10^18"


def _not_a_form(value: Any) -> str:
    if isinstance(value, dict):
        if len(value) != 1:
            return f"a mapping of {len(value)} keys is not a form; allowed: {_FORMS}"
        (form,) = value
        return f"{show(form)} is not a form; allowed: {_FORMS}{did_you_mean(nearest(form, SHAPES))}"
    meant = "" if value is None else f"; did you mean [{show(value)}]?"
    return f"{show(value)} is not a list of values; allowed: {_FORMS}{meant}"


def _not_an_axis(key: str, value: Any) -> str:
    inside = [leaf for leaf in _AXES if leaf.startswith(key + ".")]
    if inside:
        named = [f"{key}.{part}" for part in value] if isinstance(value, dict) else []
        meant = next((leaf for leaf in named if leaf in _AXES), None)
        return f"is a section, not a key; allowed: {listing(inside)}{did_you_mean(meant)}"
    inner = {
        name: listing(leaf.removeprefix(name + ".") for leaf in _AXES if leaf.startswith(name + "."))
        for name in POINT_SECTIONS
    }
    allowed = listing(f"{name} ({keys})" for name, keys in inner.items())
    message = f"cannot be an axis; allowed: section.key of {allowed}"
    if key in _FIXED:
        return message
    last_parts = {leaf.rpartition(".")[2]: leaf for leaf in reversed(_AXES)}
    near = nearest(key.rpartition(".")[2], last_parts)
    meant = last_parts[near] if near and near == key.rpartition(".")[2] else nearest(key, _AXES)
    return message + did_you_mean(meant or (last_parts[near] if near else None))
