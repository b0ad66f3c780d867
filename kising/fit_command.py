"""The command `kising fit`: a recording from a file, fitted, and the couplings written."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kising.blocks import BLOCKS
from kising.errors import InputError, RecordingError, RecordingWarning
from kising.recordings import Segments, fittable, read_recording
from kising.sweep.store.atomic import atomic_write

if TYPE_CHECKING:
    from kising.learning.fit import Fit


class FileFit(NamedTuple):
    """How a fit of a file ended."""

    converged: bool
    lines: list[str]
    """for the user"""


def fit_file(
    path: Path,
    out: Path,
    *,
    hidden: int,
    seed: int,
    errors: bool = False,
    options: Mapping[str, Any] | None = None,
) -> FileFit:
    """Fit a recording and write J, K, L, the trace and, if asked for, standard errors as arrays of one .npz file.

    `options` are keyword arguments of `fit`.
    """
    segments = fittable(read_recording(path))
    from kising.learning.fit import fit

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecordingWarning)  # notes are among the lines
            result = fit(segments, hidden, seed=seed, errors=errors, **(options or {}))
    except InputError as error:
        raise RecordingError(f"{path}: {error}") from error
    buffer = io.BytesIO()
    arrays: dict[str, Any] = dict(result.couplings._asdict())
    if result.standard_error is not None:
        arrays |= {f"{name}_error": x for name, x in result.standard_error._asdict().items()}
    arrays |= {f"trace_{name}": result.trace[name].to_numpy() for name in result.trace.columns}
    np.savez(buffer, **arrays)
    atomic_write(out, buffer.getvalue())
    return FileFit(result.outcome == "converged", [*segments.notes, *_lines(result, segments, out)])


def _lines(result: Fit, segments: Segments, out: Path) -> list[str]:
    last = result.trace.iloc[-1]
    verdicts = ", ".join(f"{x} {'yes' if ok else 'no'}" for x, ok in result.converged.items())
    return [
        f"{segments.n_steps} steps of {segments.n_visible} visible spins{_segments(segments)}; {result.outcome} after "
        f"{result.iterations} iterations (converged: {verdicts})",
        f"estimator {result.estimator}: log-likelihood {result.training_log_likelihood:.5f} nats per slice; "
        f"{last.bp_converged:.2%} of slices settled",
        *_error_lines(result),
        f"couplings and the trace: {out}",
    ]


def _segments(segments: Segments) -> str:
    return "" if len(segments.spins) == 1 else f" in {len(segments.spins)} segments"


def _error_lines(result: Fit) -> list[str]:
    if result.standard_error is None:
        return []
    sizes = ", ".join(
        f"{name} {np.median(error):.2g} (of {np.sqrt(np.mean(x**2)):.2g})"
        for name, x, error in zip(BLOCKS, result.couplings, result.standard_error, strict=True)
        if name in result.converged
    )
    return [f"median standard error, beside the root mean square of the couplings: {sizes}"]
