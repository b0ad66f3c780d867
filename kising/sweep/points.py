"""The points of a sweep: combinations of values, made when asked for, with ids that depend on content alone.

An id is the beginning of the SHA-256 of the canonical JSON of the values that define a point. Values without effect
at a point (the learning rate where no gradient step is taken) are null there, so that they neither split a point in
two nor change its id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import product
from typing import Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from kising.option_types import Gate, Section
from kising.options import GATE_KEYS, LEAVES, POINT_SECTIONS, Data, Learner, Model, Score, unused_keys
from kising.sweep.spec import Axis, SweepSpec
from kising.values import Scalar

#: Points are made this many at a time, so that a million of them never exist at once.
_CHUNK = 4096
_CACHED_SECTIONS = 1024

Digits = tuple[int, ...]


def canonical_json(value: object) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, floats in their shortest exact form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def short_digest(text: str) -> str:
    """Return the first 16 hex digits of the SHA-256 of a text: an id."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def point_id_of(values: Mapping[str, object]) -> str:
    """Return the id of the point with these ``values()``, which are also the columns of its rows."""
    return short_digest(canonical_json({k: v for k, v in values.items() if _tells(k, v)}))


def _tells(key: str, value: object) -> bool:
    """Whether a value is part of an id: task, seed, and options as `Leaf.in_id` says."""
    return key not in LEAVES or LEAVES[key].in_id(value)


@dataclass(frozen=True)
class Point:
    """One combination of values. Values without effect are at their defaults."""

    point_id: str
    task: str
    seed: int
    model: Model
    data: Data
    learner: Learner
    score: Score

    def values(self) -> dict[str, Scalar | None]:
        """Return every value by dotted key, as its column holds it; None where it has no effect."""
        return self._values.copy()

    @cached_property
    def model_json(self) -> str:
        """The model as canonical JSON: the seeds of all its runs are made from it."""
        values = self.model.model_dump()
        return canonical_json({key: value for key, value in values.items() if _tells(f"model.{key}", value)})

    @cached_property
    def _values(self) -> dict[str, Scalar | None]:
        # Kept: thousands of short runs share a point, and every row holds its values.
        unused = unused_keys(Gate(self.task, *(_look_up(self, key) for key in GATE_KEYS)))
        flat: dict[str, Scalar | None] = {"task": self.task, "seed": self.seed}
        for key in LEAVES:
            flat[key] = None if key in unused else _column_value(key, _look_up(self, key))
        return flat


class Points(Sequence[Point]):
    """The product of a sweep's axes, the first axis slowest, made when asked for.

    Combinations that differ only in values that change nothing are one point, at the place of the first.
    """

    def __init__(self, spec: SweepSpec) -> None:
        self._task, self._seed, self._axes = spec.task, spec.seed, spec.axes
        self._shape = tuple(len(axis) for axis in spec.axes) or (1,)
        self._base = {key: _look_up(spec, key) for key in LEAVES}
        # These decide which other keys have an effect. One that has none itself decides nothing.
        first = unused_keys(Gate(spec.task, *(self._base[key] for key in GATE_KEYS)))
        self._gates = [
            (-1, (self._base[key],)) if key in first else self._gate_column(key) for key in GATE_KEYS
        ]
        self._unused = {gate: unused_keys(gate) for gate in self._all_gates()}
        self._kept = self._different()
        values = {"task": spec.task, "seed": spec.seed, **self._base}
        self._templates = {gate: _Template(values, gone, spec.axes) for gate, gone in self._unused.items()}
        self._axes_of = {
            name: [
                i for i, axis in enumerate(spec.axes) if any(key.startswith(name + ".") for key in axis.keys)
            ]
            for name in POINT_SECTIONS
        }
        self._section = lru_cache(maxsize=_CACHED_SECTIONS)(self._make_section)

    def __len__(self) -> int:
        return int(np.prod(self._shape, dtype=np.int64)) if self._kept is None else len(self._kept)

    @overload
    def __getitem__(self, index: int) -> Point: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Point]: ...

    def __getitem__(self, index: int | slice) -> Point | Sequence[Point]:
        numbers = range(len(self))[index]
        if isinstance(numbers, range):
            return [self[number] for number in numbers]
        (digits,) = self._digits(numbers, numbers + 1)
        return self._point(digits)

    def __iter__(self) -> Iterator[Point]:
        return (self._point(digits) for digits in self._all_digits())

    def ids(self) -> Iterator[str]:
        """Yield the ids of the points in order, without making the points."""
        return (self._templates[self._gate(digits)].point_id(digits) for digits in self._all_digits())

    def _all_digits(self) -> Iterator[Digits]:
        for start in range(0, len(self), _CHUNK):
            yield from self._digits(start, min(start + _CHUNK, len(self)))

    def _digits(self, start: int, stop: int) -> Iterator[Digits]:
        """Yield, for the points from ``start`` to ``stop``, the place on every axis."""
        flat = np.arange(start, stop) if self._kept is None else self._kept[start:stop]
        return zip(*(digit.tolist() for digit in np.unravel_index(flat, self._shape)), strict=True)

    def _gate_column(self, key: str) -> tuple[int, tuple[Any, ...]]:
        """Return the axis that varies a key, and its column; of a key that is fixed, -1 and its one value."""
        for number, axis in enumerate(self._axes):
            if key in axis.keys:
                return number, axis.columns[axis.keys.index(key)]
        return -1, (self._base[key],)

    def _gate(self, digits: Digits) -> Gate:
        return Gate(self._task, *(column[digits[i] if i >= 0 else 0] for i, column in self._gates))

    def _all_gates(self) -> list[Gate]:
        return [Gate(self._task, *g) for g in product(*(dict.fromkeys(column) for _, column in self._gates))]

    def _different(self) -> NDArray[np.int64] | None:
        """Return the combinations that are first of their point, or None where all are.

        Given estimator and step, it is settled which keys are used; a combination is first of its point if on
        every axis its place is the first with the same used values.
        """
        varied = {key for axis in self._axes for key in axis.keys}
        if not any(varied & unused.keys() for unused in self._unused.values()):
            return None
        kept = np.zeros(self._shape, dtype=bool)
        for gate, unused in self._unused.items():
            firsts = []
            for number, axis in enumerate(self._axes):
                used = [column for key, column in _by_key(axis) if key not in unused]
                rows = zip(*used, strict=True) if used else [()] * len(axis)
                seen: dict[tuple[Scalar, ...], int] = {}
                first = [seen.setdefault(row, place) == place for place, row in enumerate(rows)]
                for value, (gate_axis, column) in zip(gate[1:], self._gates, strict=True):
                    if gate_axis == number:
                        first = [is_first and column[place] == value for place, is_first in enumerate(first)]
                firsts.append(np.array(first))
            kept |= reduce(np.logical_and.outer, firsts)
        return np.flatnonzero(kept)

    def _point(self, digits: Digits) -> Point:
        gate = self._gate(digits)
        model, data, learner, score = (
            self._section(name, tuple([digits[i] for i in axes]), gate)
            for name, axes in self._axes_of.items()
        )
        point_id = self._templates[gate].point_id(digits)
        return Point(point_id, self._task, self._seed, model, data, learner, score)

    def _make_section(self, name: str, digits: Digits, gate: Gate) -> Any:
        """Return the section at these places on the axes that reach into it; values are checked already."""
        values = {key: value for key, value in self._base.items() if key.startswith(name + ".")}
        for number, digit in zip(self._axes_of[name], digits, strict=True):
            for key, column in _by_key(self._axes[number]):
                if key in values:
                    values[key] = column[digit]
        values |= {key: LEAVES[key].default for key in self._unused[gate] if key in values}
        return _section(POINT_SECTIONS[name], f"{name}.", values)


def _section(section: type[Section], prefix: str, values: Mapping[str, Any]) -> Section:
    """Return a section, and those inside it, of checked values by dotted key."""
    inner: dict[str, Any] = {}
    for key, field in section.model_fields.items():
        known = f"{prefix}{key}"
        below = cast(type[Section], field.annotation)
        inner[key] = values[known] if known in values else _section(below, f"{known}.", values)
    return section.model_construct(None, **inner)


class _Template:
    """The canonical JSON of all points with one estimator and step, open where the axes put their values."""

    def __init__(self, values: Mapping[str, Any], unused: Mapping[str, str], axes: Sequence[Axis]) -> None:
        keys = sorted(values)
        self._parts = [_part(key, None if key in unused else values[key]) for key in keys]
        self._columns = [
            (number, keys.index(key), key, column)
            for number, axis in enumerate(axes)
            for key, column in _by_key(axis)
            if key not in unused
        ]

    def point_id(self, digits: Digits) -> str:
        parts = self._parts.copy()
        for number, spot, key, column in self._columns:
            parts[spot] = _part(key, column[digits[number]])
        return short_digest("{" + ",".join(filter(None, parts)) + "}")


def _part(key: str, value: Any) -> str:
    """Return the canonical JSON of a key and its value, empty where they are not part of an id; numbers take a
    short cut, for there can be millions.
    """
    if not _tells(key, value):
        return ""
    value = _column_value(key, value)
    return f'"{key}":{repr(value) if type(value) in (int, float) else canonical_json(value)}'


def _by_key(axis: Axis) -> Iterator[tuple[str, tuple[Scalar, ...]]]:
    return zip(axis.keys, axis.columns, strict=True)


def _look_up(root: Any, key: str) -> Any:
    return reduce(getattr, key.split("."), root)


def _column_value(key: str, value: Any) -> Any:
    """Return a value as its column holds it."""
    return LEAVES[key].kind.in_column(value) if key in LEAVES else value
