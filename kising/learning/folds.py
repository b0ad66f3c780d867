"""Cross-validation: a recording cut into folds, each held out once.

If there are at least as many trials as folds, whole trials are held out, distributed so that folds are about equally
long. Otherwise a fold is a block of consecutive steps, and all blocks are equally long. The training data are the steps
on both sides of it. No slice crosses a cut, so no slice of the training data shares a step with a held-out one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kising.errors import InputError
from kising.recordings.columns import constant_after_start
from kising.recordings.segments import SHORTEST, Segments
from kising.recordings.wording import spins_listed


class Stretch(NamedTuple):
    """Consecutive steps of one segment."""

    segment: int
    start: int
    stop: int


class Fold(NamedTuple):
    """What is learned from, and what is held out."""

    training: Segments
    held_out: Segments


def hold_out(recording: Segments, fold: int, folds: int) -> Fold:
    """What is learned from, and what is held out, in one of the folds."""
    gone = held_out_stretches(recording, folds)[fold]
    return Fold(_cut(recording, _rest(recording, gone)), _cut(recording, gone))


def too_short(recording: Segments, folds: int) -> bool:
    """Whether some fold would leave nothing to learn from, or nothing to score."""
    stretches = held_out_stretches(recording, folds)
    return any(not (_slices(gone) and _slices(_rest(recording, gone))) for gone in stretches)


def learnable(recording: Segments, folds: int) -> Segments:
    """Leave out, with a note, the spins that never change in the training data of some fold: they cannot be fitted
    there. Folds that are too short are not checked here.
    """
    if too_short(recording, folds):
        return recording
    parts = (hold_out(recording, fold, folds).training.spins for fold in range(folds))
    silent = np.any([constant_after_start(spins) for spins in parts], axis=0)
    if not silent.any():
        return recording
    if silent.all():
        raise InputError(
            "every spin is constant in the training data of some fold; hold out more, smaller folds"
        )
    positions = np.flatnonzero(silent).tolist()
    names = spins_listed([recording.names[i] for i in positions])
    left = recording.without(positions)
    note = f"left out: {names} never changed in the training data of some fold"
    return replace(left, notes=(*left.notes, note))


def held_out_stretches(recording: Segments, folds: int) -> list[list[Stretch]]:
    """For every fold, what it holds out, in the order of the recording."""
    trials = recording.trials
    whole = [Stretch(k, 0, length) for k, length in enumerate(recording.lengths)]
    if len(set(trials)) < folds:
        return _blocks(recording.lengths, folds)
    chosen = _shared_out(trials, recording.lengths, folds)
    return [[x for x in whole if chosen[trials[x.segment]] == fold] for fold in range(folds)]


def _shared_out(trials: Sequence[int], lengths: Sequence[int], folds: int) -> dict[int, int]:
    """The fold of every trial: the longest trials first, each to the fold that is shortest so far."""
    steps: dict[int, int] = {}
    for trial, length in zip(trials, lengths, strict=True):
        steps[trial] = steps.get(trial, 0) + length
    filled = [0] * folds
    chosen = {}
    for trial in sorted(steps, key=lambda trial: (-steps[trial], trial)):
        chosen[trial] = filled.index(min(filled))
        filled[chosen[trial]] += steps[trial]
    return chosen


def _blocks(lengths: Sequence[int], folds: int) -> list[list[Stretch]]:
    total = sum(lengths)
    bounds = [total * fold // folds for fold in range(folds + 1)]
    found: list[list[Stretch]] = []
    for a, b in pairwise(bounds):
        block, first = [], 0
        for segment, length in enumerate(lengths):
            start, stop = max(a - first, 0), min(b - first, length)
            if start < stop:
                block.append(Stretch(segment, start, stop))
            first += length
        found.append(block)
    return found


def _rest(recording: Segments, gone: Sequence[Stretch]) -> list[Stretch]:
    """The steps on both sides of what is held out; at most one stretch of a segment is."""
    cuts = {x.segment: x for x in gone}
    left = []
    for segment, length in enumerate(recording.lengths):
        cut = cuts.get(segment, Stretch(segment, length, length))
        sides = (Stretch(segment, 0, cut.start), Stretch(segment, cut.stop, length))
        left += [side for side in sides if side.start < side.stop]
    return left


def _slices(stretches: Sequence[Stretch]) -> int:
    return sum(max(x.stop - x.start - SHORTEST + 1, 0) for x in stretches)


def _cut(recording: Segments, stretches: Sequence[Stretch]) -> Segments:
    """These stretches as segments; copies, because a recording that came by Ray cannot be written to."""
    kept = [x for x in stretches if x.stop - x.start >= SHORTEST]
    inputs = recording.covariates
    trials = recording.trials
    firsts = [first for _, first in recording.origins] or [0] * len(trials)
    return replace(
        recording,
        spins=tuple(np.array(recording.spins[x.segment][x.start : x.stop], order="C") for x in kept),
        covariates=None
        if inputs is None
        else tuple(np.array(inputs[x.segment][x.start : x.stop], order="C") for x in kept),
        origins=tuple((trials[x.segment], firsts[x.segment] + x.start) for x in kept),
        notes=(),
    )
