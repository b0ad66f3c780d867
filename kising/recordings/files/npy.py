"""Arrays of .npy and .npz files, read without pickle; headers are checked before they are used."""

from __future__ import annotations

import math
import re
import struct
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from kising.errors import InputError
from kising.messages import show_key

_MAGIC = b"\x93NUMPY"
#: The header of a plain array is below 200 bytes.
_LONGEST_HEADER = 10_000
_DESCR = re.compile(r"""['"]descr['"]\s*:\s*(['"])([^'"]*)\1""")
_ORDER = re.compile(r"""['"]fortran_order['"]\s*:\s*(True|False)\b""")
_SHAPE = re.compile(r"""['"]shape['"]\s*:\s*\(([\d\s,L]*)\)""")
_PLAIN = re.compile(r"[<>|=]?(\?|[biufcUSmM]\d{0,9}(\[\w{1,9}\])?)")
#: Deflate cannot shrink anything further than this.
DEFLATE = 1032


def read_npy(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The array of a .npy file, under an empty name."""
    with path.open("rb") as file:
        size = path.stat().st_size
        return {"": _read(file, size)}


def read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """All arrays of a .npz file, by name."""
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError(
                    f"array {show_key(name)} is packed in a way np.savez does not use; save it again"
                )
            if info.file_size > DEFLATE * info.compress_size + 1000:
                raise InputError(
                    f"array {show_key(name)} claims {info.file_size:,} bytes, more than it can hold"
                )
            try:
                with archive.open(info) as member:
                    arrays[name] = _read(member, info.file_size)
            except InputError as error:
                raise InputError(f"array {show_key(name)}: {error}") from error
    if not arrays:
        raise InputError("the archive holds no arrays")
    return arrays


def _read(file: IO[bytes], size: int) -> npt.NDArray[Any]:
    """The array at the head of `file`, which is `size` bytes long."""
    start = file.read(8)
    if start[:6] != _MAGIC or len(start) < 8:
        raise InputError("this is not a .npy file; save the array with np.save")
    form = "<H" if start[6] == 1 else "<I"
    prefix = file.read(struct.calcsize(form))
    if len(prefix) < struct.calcsize(form):
        raise InputError("the file is cut off inside its header; copy or save it again")
    (length,) = struct.unpack(form, prefix)
    if length > _LONGEST_HEADER:
        raise InputError(f"a header of {length:,} bytes is not that of an array; save it again with np.save")
    dtype, shape, fortran = _parsed(file.read(length).decode("utf-8", "replace"))
    expected = math.prod(shape) * dtype.itemsize
    present = size - len(start) - len(prefix) - length
    if expected > present:
        raise InputError(
            f"the header promises an array of {'×'.join(map(str, shape)) or '1'} ({expected:,} bytes), the file holds "
            f"{max(present, 0):,}: it was cut off or damaged; copy or save it again"
        )
    # Writable memory of our own: the array is used as it is where it holds ±1 in 8 bits.
    content = bytearray(expected)
    if _fill(file, memoryview(content)) < expected:
        raise InputError("the file is cut off; copy or save it again")
    return np.ndarray(shape, dtype, buffer=content, order="F" if fortran else "C")


def _parsed(header: str) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Type, shape and order. Matched as text: nothing that a header says is evaluated."""
    descr, order, shape = (pattern.search(header) for pattern in (_DESCR, _ORDER, _SHAPE))
    if descr is not None and "O" in descr[2]:
        raise InputError(
            "the array holds pickled Python objects, which are never loaded: save numbers, for example "
            "np.save(path, data.astype(np.int8)), or trials as np.savez(path, *trials)"
        )
    if not (descr and order and shape and _PLAIN.fullmatch(descr[2])):
        raise InputError("the header does not describe an array of numbers; save it again with np.save")
    try:
        dtype = np.dtype(descr[2])
    except TypeError as error:
        raise InputError(f"the array has the unknown type {show_key(descr[2])}") from error
    if not dtype.itemsize:
        raise InputError(f"the array has the empty type {show_key(descr[2])}")
    return dtype, tuple(map(int, re.findall(r"\d+", shape[1]))), order[1] == "True"


def _fill(file: IO[bytes], content: memoryview) -> int:
    done = 0
    while done < len(content):
        read = file.readinto(content[done : done + (1 << 26)])  # type: ignore[attr-defined]
        if not read:
            break
        done += read
    return done
