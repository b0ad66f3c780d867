"""Parts of a recording that are held out: whole trials where there are enough, contiguous blocks of time otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kising.errors import InputError
from kising.recordings import Segments
from kising.recordings.columns import constant_after_start
from kising.recordings.segments import SHORTEST

Piece = tuple[int, int, int]
"""steps [start, stop) of a segment: (segment, start, stop)"""


class Fold(NamedTuple):
    """One division of a recording."""

    training: Segments
    held_out: Segments


def cut(segments: Segments, folds: int) -> list[Fold]:
    """Divide a recording; every step is held out once. No slice holds steps of both parts."""
    trials = sorted({trial for trial, _ in segments.origins})
    whole = len(trials) >= folds
    of_trial = {trial: k % folds for k, trial in enumerate(trials)}

    def pieces(fold: int) -> list[tuple[Piece, bool]]:
        """All pieces with whether they are held out."""
        found: list[tuple[Piece, bool]] = []
        for k, length in enumerate(segments.lengths):
            if whole:
                found.append(((k, 0, length), of_trial[segments.origins[k][0]] == fold))
                continue
            a, b = (length * fold // folds, length * (fold + 1) // folds)
            found += [((k, 0, a), False), ((k, a, b), True), ((k, b, length), False)]
        return [(piece, out) for piece, out in found if piece[2] - piece[1] >= SHORTEST]

    divided = []
    for fold in range(folds):
        both = pieces(fold)
        parts = [[piece for piece, out in both if out == wanted] for wanted in (False, True)]
        if not all(parts):
            raise InputError(
                f"the recording is too short to hold out {folds} parts of it; give one number of hidden spins, or "
                "fewer --folds"
            )
        divided.append(Fold(*(_part(segments, part) for part in parts)))
    return divided


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


def _part(segments: Segments, pieces: Sequence[Piece]) -> Segments:
    covariates = segments.covariates
    return replace(
        segments,
        spins=tuple(np.ascontiguousarray(segments.spins[k][a:b]) for k, a, b in pieces),
        covariates=None
        if covariates is None
        else tuple(np.ascontiguousarray(covariates[k][a:b]) for k, a, b in pieces),
        origins=tuple((segments.origins[k][0], segments.origins[k][1] + a) for k, a, _ in pieces),
        notes=(),
    )
