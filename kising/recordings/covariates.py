"""Known inputs of a recording: in the same forms, with the same number of rows, and finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kising.errors import InputError
from kising.recordings.forms import Pieces, pieces_of
from kising.recordings.spins import Place
from kising.recordings.wording import counted

Array = npt.NDArray[np.float64]


def matched_covariates(covariates: Any, lengths: Sequence[int]) -> tuple[list[Array] | None, tuple[str, ...]]:
    """One array of covariates for each piece of the recording, and the names of the inputs."""
    if covariates is None:
        return None, ()
    found = covariates
    if not isinstance(covariates, Pieces):
        found = pieces_of(_as_columns(covariates, lengths), "the covariates")
    arrays = [np.asarray(piece.values, np.float64) for piece in found.pieces]
    widths = {x.shape[1] for x in arrays}
    if len(widths) != 1 or widths == {0}:
        raise InputError(
            f"the covariates need the same columns in every trial, at least one; found {sorted(widths)}"
        )
    rows = [len(x) for x in arrays]
    if rows != list(lengths):
        if sum(rows) != sum(lengths) or min(len(rows), len(lengths)) > 1:
            raise InputError(_mismatch(rows, lengths))
        # One table for all trials, or several for one.
        arrays = np.split(np.concatenate(arrays), np.cumsum(lengths)[:-1])
    (width,) = widths
    names = found.names or tuple(f"u{k}" for k in range(width))
    if len(names) != width:
        raise InputError(
            f"{counted(len(names), 'name')} for {counted(width, 'input')}: give one name per input"
        )
    return arrays, names


def cut_covariates(
    arrays: Sequence[Array], names: Sequence[str], kept: Sequence[tuple[int, int, int]], place: Place
) -> tuple[Array, ...]:
    """The rows (piece, start, stop) that segments are made of; an InputError if one of them is not finite."""
    for k, start, stop in kept:
        wrong = ~np.isfinite(arrays[k][start:stop])
        if wrong.any():
            t, i = np.argwhere(wrong)[0].tolist()
            raise InputError(
                f"covariate {names[i]} at {place(k, start + t)} is {arrays[k][start + t, i]:g}: covariates must be "
                "finite; fill it in, or leave that step out (NaN in the recording, and missing='drop')"
            )
    return tuple(np.ascontiguousarray(arrays[k][start:stop]) for k, start, stop in kept)


def _as_columns(covariates: Any, lengths: Sequence[int]) -> Any:
    """A single input may be given as one number per step."""
    if getattr(covariates, "ndim", 0) == 1 and not hasattr(covariates, "time_support"):
        return np.asarray(covariates)[:, None]
    if isinstance(covariates, (list, tuple)) and len(covariates) == len(lengths):
        shapes = [np.shape(x) for x in covariates if hasattr(x, "shape")]
        if shapes == [(length,) for length in lengths]:
            return [np.asarray(x)[:, None] for x in covariates]
    return covariates


def _mismatch(rows: Sequence[int], lengths: Sequence[int]) -> str:
    if len(rows) == len(lengths) > 1:
        k = next(k for k, (a, b) in enumerate(zip(rows, lengths, strict=True)) if a != b)
        return f"segment {k} has {counted(lengths[k], 'step')} and {rows[k]} rows of covariates: give one row per step"
    return (
        f"the recording has {counted(sum(lengths), 'step')} in {counted(len(lengths), 'segment')}, the covariates "
        f"{counted(sum(rows), 'row')} in {counted(len(rows), 'segment')}: give one row per step"
    )
