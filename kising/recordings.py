"""Recordings from outside: read, checked, fitted, and the couplings written down."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kising.sweep.directory import atomic_write

if TYPE_CHECKING:
    from kising.learning.fit import Fit

READERS = (".npy", ".csv", ".txt")


class RecordingError(ValueError):
    """A file that is not a recording, or one that cannot be fitted as asked; one line."""


class FileFit(NamedTuple):
    """How a fit of a file ended."""

    converged: bool
    lines: list[str]
    """for the user"""


def read_recording(path: Path) -> npt.NDArray[Any]:
    """A (T, Nv) array from a .npy file, or from text with a row a step, separated by commas or blanks."""
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


def fit_file(path: Path, out: Path, *, hidden: int, seed: int, estimator: str) -> FileFit:
    """Fit a recording and write J, K, L and the trace as arrays of one .npz file."""
    from kising.learning.fit import fit

    recording = read_recording(path)
    try:
        result = fit(recording, hidden, estimator=estimator, start="random", seed=seed)
    except ValueError as error:
        raise RecordingError(f"{path}: {error}") from error
    buffer = io.BytesIO()
    arrays: dict[str, Any] = dict(result.couplings._asdict())
    arrays |= {f"trace_{name}": result.trace[name].to_numpy() for name in result.trace.columns}
    np.savez(buffer, **arrays)
    atomic_write(out, buffer.getvalue())
    return FileFit(result.outcome == "converged", _lines(result, recording, out))


def _lines(result: Fit, recording: npt.NDArray[Any], out: Path) -> list[str]:
    last = result.trace.iloc[-1]
    verdicts = ", ".join(f"{x} {'yes' if ok else 'no'}" for x, ok in result.converged.items())
    return [
        f"{recording.shape[0]} steps of {recording.shape[1]} visible spins; {result.outcome} after "
        f"{result.iterations} iterations (converged: {verdicts})",
        f"log-likelihood {last.log_likelihood:.5f} nats a slice; {last.bp_converged:.2%} of slices settled",
        f"J, K, L and the trace: {out}",
    ]
