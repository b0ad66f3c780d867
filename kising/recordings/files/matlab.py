"""Variables of MATLAB's .mat files, up to version 7."""

from __future__ import annotations

import io
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from kising.errors import InputError
from kising.recordings.files.npy import DEFLATE

_HDF5 = b"\x89HDF\r\n\x1a\n"
#: Classes of variables that can hold a recording; a cell array holds trials.
_USABLE = {
    *("double", "single", "logical", "sparse", "cell"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}


def read_mat(path: Path, key: str | None) -> dict[str, Any]:
    """The variables that can hold a recording, or the one called `key`; the others are left unread."""
    from scipy.io import loadmat, whosmat

    content = path.read_bytes()
    if content[:8] == _HDF5 or content[512:520] == _HDF5:
        raise InputError(
            "this is a MATLAB file of version 7.3, which is not supported: save it again in MATLAB with "
            "save('file.mat', 'data', '-v7'), or export it with writematrix(data, 'file.csv')"
        )
    stream: Any = io.BytesIO(content)  # the stubs know of paths only
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        listed = whosmat(stream, appendmat=False)
        for name, shape, _ in listed:
            if math.prod(map(int, shape)) > DEFLATE * len(content):
                raise InputError(f"variable {name} claims {shape} entries, more than the file can hold")
        wanted = [name for name, _, kind in listed if kind in _USABLE and key in (None, name)]
        if not wanted:
            names = ", ".join(f"{name} ({kind})" for name, _, kind in listed[:10]) or "none"
            raise InputError(
                f"no variable holds a numeric array{f' called {key!r}' * (key is not None)}; variables: {names}"
            )
        found = loadmat(stream, appendmat=False, variable_names=wanted)
    return {name: _trials(found[name]) for name in wanted if name in found}


def _trials(variable: Any) -> Any:
    """A cell array as a list of trials, anything else as it is."""
    if isinstance(variable, np.ndarray) and variable.dtype.kind == "O":
        return list(variable.ravel())
    return variable
