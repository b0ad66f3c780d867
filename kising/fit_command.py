"""The command `kising fit`: a recording from a file, fitted, and the couplings written."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kising.blocks import BLOCKS
from kising.errors import InputError, RecordingError
from kising.recordings import read_recording
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
    segments = read_recording(path)
    if len(segments.spins) > 1:
        raise RecordingError(f"{path}: {len(segments.spins)} segments; only one can be fitted for now")
    recording = segments.spins[0]
    from kising.learning.fit import fit

    try:
        result = fit(recording, hidden, seed=seed, errors=errors, **(options or {}))
    except InputError as error:
        raise RecordingError(f"{path}: {error}") from error
    buffer = io.BytesIO()
    arrays: dict[str, Any] = dict(result.couplings._asdict())
    if result.standard_error is not None:
        arrays |= {f"{name}_error": x for name, x in result.standard_error._asdict().items()}
    arrays |= {f"trace_{name}": result.trace[name].to_numpy() for name in result.trace.columns}
    np.savez(buffer, **arrays)
    atomic_write(out, buffer.getvalue())
    return FileFit(result.outcome == "converged", [*segments.notes, *_lines(result, recording, out, seed)])


def _lines(result: Fit, recording: npt.NDArray[Any], out: Path, seed: int) -> list[str]:
    from kising.estimators.gradient import gradient
    from kising.estimators.registry import entry
    from kising.estimators.sampling import Sampling

    last = result.trace.iloc[-1]
    likelihood = last.log_likelihood
    if entry(result.estimator).samples and result.outcome != "diverged":
        # Learning from samples never needs it.
        sweeps = Sampling.brief().sweeps
        likelihood = gradient(
            result.couplings, recording, estimator=result.estimator, sweeps=sweeps, seed=seed
        ).log_likelihood
    verdicts = ", ".join(f"{x} {'yes' if ok else 'no'}" for x, ok in result.converged.items())
    return [
        f"{recording.shape[0]} steps of {recording.shape[1]} visible spins; {result.outcome} after "
        f"{result.iterations} iterations (converged: {verdicts})",
        f"estimator {result.estimator}: log-likelihood {likelihood:.5f} nats per slice; {last.bp_converged:.2%} of "
        "slices settled",
        *_error_lines(result),
        f"J, K, L and the trace: {out}",
    ]


def _error_lines(result: Fit) -> list[str]:
    if result.standard_error is None:
        return []
    sizes = ", ".join(
        f"{name} {np.median(error):.2g} (of {np.sqrt(np.mean(x**2)):.2g})"
        for name, x, error in zip(BLOCKS, result.couplings, result.standard_error, strict=True)
    )
    return [f"median standard error, beside the root mean square of the couplings: {sizes}"]
