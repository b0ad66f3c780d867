"""Missing entries that are kept: zeros among the spins, in segments that end only where nothing was recorded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.spin_data import random_spins

from kising.recordings import as_segments, fittable
from kising.recordings.columns import bridged
from kising.recordings.gaps import LONGEST_SILENCE

X = random_spins(300, 4)


@given(arrays.arrays(np.int8, (40, 3), elements=st.integers(-1, 1)))
def test_missing_entries_are_zeros_and_all_else_stays(spins: np.ndarray) -> None:
    spins[::9] = spins[-1] = 1
    data = np.where(spins == 0, np.nan, spins)
    for form in (data, np.ma.masked_array(np.where(spins == 0, 1, spins), mask=spins == 0)):
        found = as_segments(form)
        np.testing.assert_array_equal(found.spins[0], spins)
        assert found.n_missing == np.sum(spins == 0)
        assert (found.missing is None) == bool(spins.all())


@pytest.mark.parametrize("silence", [1, LONGEST_SILENCE, LONGEST_SILENCE + 1])
def test_a_long_silence_ends_a_segment(silence: int) -> None:
    data = X.astype(float)
    data[:5] = data[100 : 100 + silence] = data[290:] = np.nan
    found = as_segments(data)
    split = silence > LONGEST_SILENCE
    assert found.origins == (((0, 5), (0, 100 + silence)) if split else ((0, 5),))
    assert found.n_steps == 285 - silence * split
    assert ("have no entry and are left out" in found.notes[0]) == bool(found.notes)


def test_units_that_come_and_go_are_judged_by_what_is_known() -> None:
    data = X.astype(float)
    data[:150, 0] = np.nan
    data[:, 1] = np.where(np.arange(300) < 200, -1.0, np.nan)
    data[::7, 2] = np.nan
    found = as_segments(data)
    assert len(found.notes) == 1
    assert found.notes[0].startswith("spin 1: always -1")
    assert fittable(found).names == ("0", "2", "3")
    np.testing.assert_array_equal(fittable(found).spins[0][:, 0], np.where(np.isnan(data[:, 0]), 0, X[:, 0]))


def test_gaps_are_bridged_by_the_last_known_value() -> None:
    segment = np.array([[0, 0, 1], [1, 0, 1], [0, 0, -1], [-1, 0, 0]], np.int8)
    assert bridged(segment).tolist() == [[1, -1, 1], [1, -1, 1], [1, -1, -1], [-1, -1, -1]]


def test_a_repr_tells_of_gaps() -> None:
    data = X.astype(float)
    data[3, 1] = np.nan
    assert "1 missing entry" in repr(as_segments(data))
