"""A checked recording as a file that `read_recording` reads without options: one .npz archive.

trial_0, trial_1, ...     (T, Nv): int8, or float32 with NaN for missing entries, and between two segments of the trial
names                     of the spins
covariates                (rows of all trials, p), where there are inputs; covariate_names
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt

from kising.recordings.files.archives import COVARIATE_NAMES, COVARIATES
from kising.recordings.gaps import LONGEST_SILENCE
from kising.recordings.segments import Segments


def to_npz(recording: Segments) -> bytes:
    """The spins, trials, gaps, inputs and names of a recording; its notes and the numbers of its steps are not kept."""
    arrays: dict[str, npt.NDArray[Any]] = {"names": np.array(recording.names)}
    rows = []
    for number, segments in enumerate(_by_trial(recording)):
        spins = [_with_nan(recording.spins[k]) for k in segments]
        arrays[f"trial_{number}"] = _joined(spins, np.float32(np.nan))
        if recording.covariates is not None:
            rows.append(_joined([recording.covariates[k] for k in segments], np.float64(0)))
    if rows:
        arrays[COVARIATES] = np.concatenate(rows)
        arrays[COVARIATE_NAMES] = np.array(recording.covariate_names)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _with_nan(spins: npt.NDArray[np.int8]) -> npt.NDArray[Any]:
    return spins if spins.all() else np.where(spins == 0, np.float32(np.nan), spins.astype(np.float32))


def _by_trial(recording: Segments) -> list[list[int]]:
    """The segments of every trial."""
    found: dict[int, list[int]] = {}
    for k, trial in enumerate(recording.trials):
        found.setdefault(trial, []).append(k)
    return list(found.values())


def _joined(segments: list[npt.NDArray[Any]], between: Any) -> npt.NDArray[Any]:
    """Segments one after the other, with rows of `between` in each gap: more of them than a segment may have."""
    if len(segments) == 1:
        return segments[0]
    gap = np.full((LONGEST_SILENCE + 1, segments[0].shape[1]), between)
    return np.concatenate([part for x in segments for part in (gap, x)][1:])
