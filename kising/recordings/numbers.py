"""Arrays of plain numbers from all kinds of arrays, including masked, sparse, nullable and object arrays."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from kising.errors import InputError
from kising.messages import show

#: Booleans, integers and floats.
PLAIN = "biuf"


def as_numbers(data: Any, what: str) -> npt.NDArray[Any]:
    """An array of booleans, integers or floats, with NaN for what is missing, or an InputError that names the culprit.

    `what` names the data in messages: the recording, trial 3, the covariates.
    """
    if hasattr(data, "toarray"):  # a sparse matrix
        data = data.toarray()
    if isinstance(data, np.ma.MaskedArray):
        mask, data = np.ma.getmaskarray(data), data.data
        if mask.any():
            data = data.astype(np.float64 if data.dtype.kind in PLAIN else object)
            data[mask] = np.nan
    try:
        array = np.asarray(data)
    except Exception as error:
        # Rows of different lengths, and whatever a foreign object raises when asked for an array.
        raise InputError(
            f"{what}: this cannot be made into an array ({' '.join(str(error).split())[:120]}): all rows need the same "
            "number of columns"
        ) from error
    kind = array.dtype.kind
    if kind in PLAIN:
        return array
    if kind == "O":
        return _plain(array, what)
    raise InputError(f"{what}: {_REFUSED.get(kind, f'{array.dtype} values')}")


_REFUSED = {
    "c": "complex numbers; give data.real if that is what you mean",
    "U": "text; convert it with data.astype(float)",
    "S": "text; convert it with data.astype(float)",
    "M": "dates; leave the date column out",
    "m": "time differences; leave that column out",
    "V": "a structured array; give one column per spin: "
    "numpy.lib.recfunctions.structured_to_unstructured(data)",
}


def _plain(array: npt.NDArray[Any], what: str) -> npt.NDArray[np.float64]:
    """An object array as floats; None and pandas' NA are NaN."""
    values = np.empty(array.size)
    for k, entry in enumerate(array.ravel().tolist()):
        number = _number(entry)
        if number is None:
            place = ", ".join(str(int(i)) for i in np.unravel_index(k, array.shape))
            raise InputError(f"{what}: entry [{place}] is {_shown(entry)}, which is not a number")
        values[k] = number
    return values.reshape(array.shape)


def _number(entry: Any) -> float | None:
    if entry is None or type(entry).__name__ == "NAType":
        return math.nan
    if isinstance(entry, (Real, np.bool_)):
        try:
            return float(entry)
        except OverflowError:
            return math.inf
    return None


def _shown(entry: Any) -> str:
    if isinstance(entry, (str, complex)):
        return show(entry)
    return f"of type {type(entry).__name__}"
