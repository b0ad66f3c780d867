"""Recordings from files."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kising.errors import RecordingError

READERS = (".npy", ".csv", ".txt")


def read_recording(path: Path) -> npt.NDArray[Any]:
    """A (T, Nv) array from a .npy file, or from text with one row per time step, separated by commas or blanks."""
    try:
        if path.suffix == ".npy":
            array: npt.NDArray[Any] = np.load(path, allow_pickle=False)
        elif path.suffix in READERS:
            text = path.read_text().replace(",", " ")
            array = np.loadtxt(io.StringIO(text), ndmin=2)
        else:
            raise RecordingError(f"{path}: recordings are {', '.join(READERS)} files")
    except RecordingError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise RecordingError(f"{path}: cannot read a recording: {reason}") from error
    return array
