"""Which array of a file is the recording, and which arrays are trials."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from kising.errors import InputError
from kising.messages import did_you_mean, nearest, show_key

COVARIATES = "covariates"
COVARIATE_NAMES = "covariate_names"
NAMES = ("names", "units", "unit_names", "columns")
_NUMBERED = re.compile(r"(.*?)(\d+)")


class Chosen(NamedTuple):
    """The parts of a file."""

    data: Any
    """an array, or a list of trials"""
    names: tuple[str, ...] | None
    notes: tuple[str, ...]


def choose(arrays: Mapping[str, Any], key: str | None) -> Chosen:
    """Choose by `key` or, without one, if there is only one way to read the file."""
    names = next((_strings(arrays[x]) for x in NAMES if x in arrays and _is_text(arrays[x])), None)
    if key is not None:
        if key not in arrays:
            meant = did_you_mean(nearest(key, arrays))
            raise InputError(f"key={key!r}: there is no such array; there are {_listed(arrays)}{meant}")
        return Chosen(arrays[key], names, ())
    others = {x: a for x, a in arrays.items() if x != COVARIATES and not _is_text(a)}
    usable = {x: a for x, a in others.items() if isinstance(a, list) or getattr(a, "ndim", 0) in (2, 3)}
    # MATLAB keeps numbers and vectors as matrices of one row or column.
    usable = {x: a for x, a in usable.items() if min(getattr(a, "shape", (2,))) > 1} or usable
    notes: tuple[str, ...] = ()
    if len(usable) == 1:
        ((name, data),) = usable.items()
        if len(others) > 1:
            rest = ", ".join(show_key(x) for x in others if x != name)
            notes = (f"array {show_key(name)} is the recording; not used: {rest}",)
        return Chosen(data, names, notes)
    if not usable:
        if len(others) == 1:  # let its own form be refused
            return Chosen(next(iter(others.values())), names, ())
        raise InputError(f"no array is a (steps, spins) recording; there are {_listed(arrays)}")
    if len({getattr(a, "shape", (0, 0))[1] for a in usable.values()}) > 1 or any(
        getattr(a, "ndim", 0) != 2 for a in usable.values()
    ):
        raise InputError(
            f"several arrays could be the recording: choose one with key=; there are {_listed(arrays)}"
        )
    order = sorted(usable, key=_number) if _are_numbered(usable) else list(usable)
    if not _are_numbered(usable):
        notes = (
            f"arrays {', '.join(map(show_key, order[:5]))} are taken as {len(order)} trials; choose one with key= if "
            "they are not",
        )
    return Chosen([usable[x] for x in order], names, notes)


def choose_inputs(arrays: Mapping[str, Any]) -> Chosen:
    """Inputs: arrays of one number per step are columns, named by their keys; otherwise as `choose` does."""
    columns = {x: a for x, a in arrays.items() if x and not _is_text(a)}
    if columns and all(map(_is_column, columns.values())) and len({len(a) for a in columns.values()}) == 1:
        return Chosen(np.column_stack(list(columns.values())), tuple(columns), ())
    chosen = choose(arrays, None)
    return chosen._replace(names=input_names(arrays) or chosen.names)


def input_names(arrays: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The names of the inputs that a file holds together with its recording."""
    found = arrays.get(COVARIATE_NAMES)
    return _strings(found) if found is not None and _is_text(found) else None


def _is_column(array: Any) -> bool:
    shape: tuple[int, ...] = getattr(array, "shape", ())
    return len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)


def _are_numbered(names: Mapping[str, Any]) -> bool:
    """trial_0, trial_1, ..., or the arr_0, arr_1, ... of np.savez."""
    matches = [_NUMBERED.fullmatch(name) for name in names]
    return all(matches) and len({match[1] for match in matches if match}) == 1


def _number(name: str) -> int:
    match = _NUMBERED.fullmatch(name)
    return int(match[2]) if match else -1


def _is_text(array: Any) -> bool:
    return getattr(getattr(array, "dtype", None), "kind", "") == "U"


def _strings(array: Any) -> tuple[str, ...]:
    return tuple(str(x).strip() for x in np.ravel(array))


def _listed(arrays: Mapping[str, Any]) -> str:
    shapes = (f"{show_key(x)} {tuple(getattr(a, 'shape', (len(a),)))}" for x, a in list(arrays.items())[:10])
    return ", ".join(shapes) + ", ..." * (len(arrays) > 10)
