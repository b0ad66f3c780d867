"""Folds of a recording: what is held out, and that training uses none of it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from support.spin_data import random_spins

from kising.learning.folds import hold_out, too_short
from kising.recordings import as_segments


def numbered(*lengths: int):
    """A recording whose one input counts the steps of all segments."""
    spins = [random_spins(length, 3, seed=k + 1) for k, length in enumerate(lengths)]
    ends = np.cumsum([0, *lengths])
    inputs = [np.arange(a, b, dtype=float)[:, None] for a, b in pairwise(ends)]
    return as_segments(spins, inputs)


def steps(part) -> list[np.ndarray]:
    return [x[:, 0].astype(int) for x in part.covariates]


def test_blocks_are_contiguous_equal_and_cover_every_step_once() -> None:
    recording = numbered(103)
    folds = [hold_out(recording, k, 5) for k in range(5)]
    held_out = [np.concatenate(steps(fold.held_out)) for fold in folds]
    np.testing.assert_array_equal(np.concatenate(held_out), np.arange(103))
    assert [len(x) for x in held_out] == [20, 21, 20, 21, 21]
    for fold, gone in zip(folds, held_out, strict=True):
        kept = steps(fold.training)
        assert len(kept) == (1 if gone[0] == 0 or gone[-1] == 102 else 2)
        assert not set(np.concatenate(kept)) & set(gone)
        assert len(np.concatenate(kept)) + len(gone) == 103
        for piece in kept:
            np.testing.assert_array_equal(np.diff(piece), 1)


def test_blocks_go_across_the_borders_of_few_trials() -> None:
    recording = numbered(50, 31)
    held_out = [steps(hold_out(recording, k, 3).held_out) for k in range(3)]
    assert [[len(x) for x in pieces] for pieces in held_out] == [[27], [23, 4], [27]]
    assert [len(x) for x in steps(hold_out(recording, 1, 3).training)] == [27, 27]


def test_trials_are_held_out_whole_and_folds_are_about_equally_long() -> None:
    lengths = (40, 10, 12, 38, 9, 11, 30)
    recording = numbered(*lengths)
    seen = []
    for k in range(3):
        fold = hold_out(recording, k, 3)
        assert fold.held_out.lengths == tuple(lengths[trial] for trial, _ in fold.held_out.origins)
        trials = {trial for trial, _ in fold.held_out.origins}
        assert trials | {trial for trial, _ in fold.training.origins} == set(range(7))
        assert sum(fold.held_out.lengths) + sum(fold.training.lengths) == sum(lengths)
        assert 45 <= sum(fold.held_out.lengths) <= 55
        seen += sorted(trials)
    assert sorted(seen) == list(range(7))


def test_the_segments_of_one_trial_are_held_out_together() -> None:
    trials = [random_spins(30, 3, seed=k).astype(float) for k in range(1, 5)]
    trials[1][12, 0] = np.nan
    recording = as_segments(trials, missing="drop")
    assert len(recording.spins) == 5
    for k in range(4):
        fold = hold_out(recording, k, 4)
        held_out = {trial for trial, _ in fold.held_out.origins}
        assert len(held_out) == 1
        assert not held_out & {trial for trial, _ in fold.training.origins}


@pytest.mark.parametrize(
    ("length", "folds", "short"), [(15, 5, False), (14, 5, True), (6, 2, False), (5, 2, True)]
)
def test_folds_without_a_slice_are_too_short(length: int, folds: int, short: bool) -> None:
    assert too_short(numbered(length), folds) is short


def test_parts_can_be_written_to_where_the_recording_cannot() -> None:
    recording = numbered(30)
    for array in (*recording.spins, *recording.covariates):
        array.flags.writeable = False
    fold = hold_out(recording, 0, 3)
    assert all(x.flags.writeable for part in fold for x in (*part.spins, *part.covariates))
