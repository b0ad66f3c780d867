"""Parts of a recording that are held out: whole trials where there are enough, contiguous blocks of time otherwise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kising.errors import InputError
from kising.learning.folds import Fold, hold_out, too_short
from kising.recordings import Segments
from kising.recordings.columns import constant_after_start


def cut(segments: Segments, folds: int) -> list[Fold]:
    """Divide a recording; every step is held out once. No slice holds steps of both parts."""
    if too_short(segments, folds):
        raise InputError(
            f"the recording is too short to hold out {folds} parts of it; give one number of hidden spins, or "
            "fewer --folds"
        )
    return [hold_out(segments, fold, folds) for fold in range(folds)]


def without_silent(
    segments: Segments, divide: Callable[[Segments], list[Fold]]
) -> tuple[list[Fold], tuple[str, ...]]:
    """The folds, without the spins that never change in the training data of one of them; and those spins."""
    folds = divide(segments)
    silent = np.any([constant_after_start(fold.training.spins) for fold in folds], axis=0)
    if silent.all():
        raise InputError("every spin is constant in some of the training data; hold out fewer --folds")
    if not silent.any():
        return folds, ()
    positions = np.flatnonzero(silent).tolist()
    names = tuple(segments.names[i] for i in positions)
    return divide(segments.without(positions)), names
