"""Recordings from outside: read, checked, fitted, and the couplings written down."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kising.errors import RecordingError
from kising.sweep.store.atomic import atomic_write

if TYPE_CHECKING:
    from kising.learning.fit import Fit

READERS = (".npy", ".csv", ".txt")
# Sweeps that tell where importance sampling should look for the likelihood.
SWEEPS = 40


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


def fit_file(
    path: Path,
    out: Path,
    *,
    hidden: int,
    seed: int,
    estimator: str,
    starts: int = 1,
    prior: float | None = None,
    l1: float = 0.0,
    decimate: float | None = None,
    errors: bool = False,
) -> FileFit:
    """Fit a recording and write J, K, L, the trace and, if asked for, standard errors as arrays of one .npz file."""
    from kising.learning.fit import fit

    recording = read_recording(path)
    try:
        result = fit(
            recording, hidden, estimator=estimator, start="random", starts=starts, seed=seed, prior=prior, l1=l1,
            decimate=decimate, errors=errors,
        )  # fmt: skip
    except ValueError as error:
        raise RecordingError(f"{path}: {error}") from error
    buffer = io.BytesIO()
    arrays: dict[str, Any] = dict(result.couplings._asdict())
    if result.standard_error is not None:
        arrays |= {f"{name}_error": x for name, x in result.standard_error._asdict().items()}
    arrays |= {f"trace_{name}": result.trace[name].to_numpy() for name in result.trace.columns}
    np.savez(buffer, **arrays)
    atomic_write(out, buffer.getvalue())
    return FileFit(result.outcome == "converged", _lines(result, recording, out, seed))


def _lines(result: Fit, recording: npt.NDArray[Any], out: Path, seed: int) -> list[str]:
    from kising.estimators.inference import gradient

    last = result.trace.iloc[-1]
    likelihood = last.log_likelihood
    if result.estimator == "gibbs" and result.outcome != "diverged":
        # Learning from samples never needs it.
        likelihood = gradient(
            result.couplings, recording, estimator="gibbs", sweeps=SWEEPS, seed=seed
        ).log_likelihood
    verdicts = ", ".join(f"{x} {'yes' if ok else 'no'}" for x, ok in result.converged.items())
    return [
        f"{recording.shape[0]} steps of {recording.shape[1]} visible spins; {result.outcome} after "
        f"{result.iterations} iterations (converged: {verdicts})",
        f"estimator {result.estimator}: log-likelihood {likelihood:.5f} nats a slice; {last.bp_converged:.2%} of "
        "slices settled",
        *_error_lines(result),
        f"J, K, L and the trace: {out}",
    ]


def _error_lines(result: Fit) -> list[str]:
    if result.standard_error is None:
        return []
    sizes = ", ".join(
        f"{name} {np.median(error):.2g} (of {np.sqrt(np.mean(x**2)):.2g})"
        for name, x, error in zip("JKL", result.couplings, result.standard_error, strict=True)
    )
    return [f"median standard error, beside the root mean square of the couplings: {sizes}"]
