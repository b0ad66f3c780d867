"""Results that hold arrays: a repr that fits a line or two, and a comparison that does not raise."""

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

C = TypeVar("C", bound=type)


def holds_arrays(cls: C) -> C:
    """Give a NamedTuple or dataclass of arrays a short repr, and equality entry by entry (NaN equals NaN)."""

    def equal(self: Any, other: object) -> bool:
        return type(self) is type(other) and all(map(_same, _values(self), _values(other)))

    def unequal(self: Any, other: object) -> bool:
        return not equal(self, other)

    for name, method in {"__repr__": _short, "__eq__": equal, "__ne__": unequal, "__hash__": None}.items():
        setattr(cls, name, method)
    return cls


def _names(result: Any) -> Iterable[str]:
    names: Iterable[str] = getattr(result, "_fields", None) or result.__dataclass_fields__
    return names


def _values(result: Any) -> list[Any]:
    return [getattr(result, name) for name in _names(result)]


def _short(result: Any) -> str:
    inside = ", ".join(f"{name}={shown(getattr(result, name))}" for name in _names(result))
    return f"{type(result).__name__}({inside})"


def shown(value: Any) -> str:
    """A value in a repr: an array or a table by its shape, anything else shortened."""
    shape = getattr(value, "shape", None)
    if shape:
        return f"<{'×'.join(map(str, shape))} {getattr(value, 'dtype', type(value).__name__)}>"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if hasattr(one, "equals"):  # a table
        return bool(type(one) is type(other) and one.equals(other))
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (one != one and other != other)
    return bool(one == other)
