"""A recording that was written is read again without options, as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.spin_data import TimeSeries, random_spins

from kising.recordings import as_segments, read_recording
from kising.recordings.files.writing import to_npz

X = random_spins(120, 4)
U = np.random.default_rng(3).normal(size=(120, 2))
GAPS = X.astype(float)
GAPS[[20, 21, 60, 99], [0, 1, 2, 3]] = np.nan
CASES = {
    "an array": (X, None),
    "one spin": (X[:, :1], None),
    "names": (pd.DataFrame(X, columns=["a", "0", "c", "d"]), pd.DataFrame(U, columns=["light", "sound"])),
    "trials": ([X[:30], X[30:70], X[70:]], U),
    "gaps": (GAPS, U[:, 0]),
    "trials with gaps": ([GAPS[:40], GAPS[40:90], GAPS[90:]], U),
    "a jump in time, without a missing step": (TimeSeries(np.r_[0:50, 100:170], X), None),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_written_is_read_again(case: str, tmp_path: Path) -> None:
    before = as_segments(*CASES[case])
    (tmp_path / "data.npz").write_bytes(to_npz(before))
    after = read_recording(tmp_path / "data.npz")
    assert after.lengths == before.lengths
    assert after.trials == before.trials
    assert (after.names, after.covariate_names) == (before.names, before.covariate_names)
    for one, other in zip(after.spins, before.spins, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(after.covariates or (), before.covariates or (), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_trial_that_is_too_short_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    before = as_segments([X[:30], X[30:32], X[32:]])
    (tmp_path / "data.npz").write_bytes(to_npz(before))
    after = read_recording(tmp_path / "data.npz")
    assert (before.trials, after.trials) == ((0, 2), (0, 1))
    assert after.lengths == before.lengths == (30, 88)
