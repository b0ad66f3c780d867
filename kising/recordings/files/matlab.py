"""Variables of MATLAB's .mat files of versions 5 to 7 (the public "MAT-File Format", level 5).

This reader replaces scipy.io.loadmat, because damaged files can make that read outside its memory and crash the
process. Here every size in a file is checked against the number of bytes left.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kising.errors import InputError
from kising.messages import show_key
from kising.recordings.files.npy import DEFLATE

_HDF5 = b"\x89HDF\r\n\x1a\n"
_HEADER = 128
#: A sparse matrix with fewer entries than one in this many is treated as damaged: its dense form may not fit in memory.
EMPTIEST = 100_000
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_CELL, _SPARSE = 1, 5
_NUMERIC = range(6, 16)
_KINDS = {1: "cell", 2: "struct", 3: "object", 4: "char", 5: "sparse", 16: "function", 17: "opaque"}
_COMPLEX = 0x0800
_SAVE = "save it again in MATLAB with save('file.mat', 'data', '-v7')"


class _Element(NamedTuple):
    kind: int
    data: memoryview


class _Variable(NamedTuple):
    name: str
    kind: int
    shape: tuple[int, ...]
    complex: bool
    parts: list[_Element]
    """of a numeric array: the real and perhaps the imaginary part; of a cell array: its cells"""


def read_mat(path: Path, key: str | None) -> dict[str, Any]:
    """The variables that can hold a recording, or the one called `key`; a cell array is a list of trials."""
    content = path.read_bytes()
    if content[:8] == _HDF5 or content[512:520] == _HDF5:
        raise InputError(
            f"this is a MATLAB file of version 7.3, which is not supported: {_SAVE}, or export it with "
            "writematrix(data, 'file.csv')"
        )
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None:
        raise InputError(f"this is not a MATLAB file of versions 5 to 7; {_SAVE}")
    found, seen = {}, []
    for element in _elements(memoryview(content)[_HEADER:], order):
        variable = _variable(element, order)
        if variable is None:
            continue
        seen.append(f"{show_key(variable.name)} ({_kind(variable)})")
        usable = variable.kind in _NUMERIC or variable.kind in (_CELL, _SPARSE)
        if usable and key in (None, variable.name):
            found[variable.name] = _value(variable, order)
    if not found:
        called = "" if key is None else f" called {key!r}"
        raise InputError(
            f"no variable{called} holds a numeric array; variables: {', '.join(seen[:10]) or 'none'}"
        )
    return found


def _elements(data: memoryview, order: str) -> Iterator[_Element]:
    """The elements that follow one another in `data`."""
    start = 0
    while start + 8 <= len(data):
        word, size = np.frombuffer(data[start : start + 8], f"{order}u4").tolist()
        small = word >> 16
        if small:  # up to 4 bytes, in the place of the size
            kind, size, begin, following = word & 0xFFFF, small, start + 4, start + 8
        else:
            kind, begin = word, start + 8
            following = begin + size + (0 if kind == _COMPRESSED else -size % 8)
        if begin + size > len(data) or (small and size > 4):
            raise InputError("the file is cut off or damaged; copy or save it again")
        yield _Element(kind, data[begin : begin + size])
        start = following


def _variable(element: _Element, order: str) -> _Variable | None:
    """The header of a variable; None if this is something else, or an empty cell."""
    if element.kind == _COMPRESSED:
        unpacked = zlib.decompressobj().decompress(element.data, DEFLATE * len(element.data) + 1)
        inner = list(_elements(memoryview(unpacked), order))
        element = inner[0] if inner else element
    if element.kind != _MATRIX or not len(element.data):
        return None
    parts = list(_elements(element.data, order))
    if len(parts) < 3:
        return None  # newer kinds of variable, such as tables
    flags, shape, name = parts[:3]
    bits = int(_array(flags, order)[0])
    sizes = tuple(int(n) for n in _array(shape, order))
    if min(sizes, default=-1) < 0:
        raise InputError(f"a variable has the impossible shape {sizes}")
    return _Variable(
        bytes(name.data).decode("utf-8", "replace"), bits & 0xFF, sizes, bool(bits & _COMPLEX), parts[3:]
    )


def _kind(variable: _Variable) -> str:
    return "numeric" if variable.kind in _NUMERIC else _KINDS.get(variable.kind, "unknown")


def _array(element: _Element, order: str) -> npt.NDArray[Any]:
    if element.kind not in _STORED:
        raise InputError(f"the file is damaged: unknown type {element.kind}; copy or save it again")
    dtype = np.dtype(order + _STORED[element.kind])
    return np.frombuffer(element.data, dtype, len(element.data) // dtype.itemsize)


def _value(variable: _Variable, order: str) -> Any:
    if variable.complex:
        raise InputError(f"variable {show_key(variable.name)}: complex numbers; save real(data)")
    if variable.kind == _CELL:
        return [_cell(part, k, order) for k, part in enumerate(variable.parts)]
    if variable.kind == _SPARSE:
        return _dense(variable, order)
    values = _array(variable.parts[0], order) if variable.parts else np.empty(0)
    if values.size != math.prod(variable.shape):
        raise InputError(
            f"variable {show_key(variable.name)} claims to be {'×'.join(map(str, variable.shape))} and holds "
            f"{values.size:,} numbers: the file is damaged; copy or save it again"
        )
    return values.reshape(variable.shape, order="F")


def _cell(part: _Element, k: int, order: str) -> npt.NDArray[Any]:
    variable = _variable(part, order)
    if variable is None:
        return np.empty((0, 0))
    if variable.kind not in _NUMERIC and variable.kind != _SPARSE:
        raise InputError(
            f"cell {k + 1} holds a {_kind(variable)}: a cell array needs one matrix (steps, spins) per trial"
        )
    value: npt.NDArray[Any] = _value(variable, order)
    return value


def _dense(variable: _Variable, order: str) -> npt.NDArray[Any]:
    """A sparse matrix, stored by columns, as spins: what is not stored is 0."""
    rows, starts, values = (_array(part, order) for part in variable.parts[:3])
    counts = np.diff(starts)
    n = int(starts[-1]) if len(starts) else 0
    sound = len(variable.shape) == 2 and len(starts) == variable.shape[1] + 1 and (counts >= 0).all()
    if not sound or n > min(len(rows), len(values)) or (n and int(rows[:n].max()) >= variable.shape[0]):
        raise InputError(f"the sparse variable {show_key(variable.name)} is damaged; save full(data)")
    if math.prod(variable.shape) > EMPTIEST * (n + len(starts)):
        raise InputError(
            f"the sparse variable {show_key(variable.name)} is almost empty; save full(data) if it is not"
        )
    dense = np.zeros(variable.shape, np.int8 if np.isin(values[:n], (-1, 0, 1)).all() else np.float32)
    dense[rows[:n], np.repeat(np.arange(variable.shape[1]), counts)] = values[:n]
    return dense
