"""Every form that data come in gives the same spins as a reference array."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.spin_data import TimeSeries, random_spins

from kising.errors import InputError
from kising.model import Recording
from kising.recordings import as_segments

X = random_spins()
UP = X > 0
NAMES = ("a", "b", "c", "d", "e")
FRAME = pd.DataFrame(X, columns=NAMES)

ONE_ARRAY = {
    "int8": X,
    "int64": X.astype(np.int64),
    "floats": X.astype(np.float32),
    "0/1": UP.astype(np.uint8),
    "0/1 as floats": UP.astype(np.float64),
    "booleans": UP,
    "Fortran order": np.asfortranarray(X),
    "every second column of an array": np.repeat(X, 2, axis=1)[:, ::2],
    "read only": np.broadcast_to(X, X.shape),
    "another byte order": X.astype(">i4"),
    "nested lists": X.tolist(),
    "nested lists of booleans": UP.tolist(),
    "objects": X.astype(object),
    "nothing masked": np.ma.masked_array(X),
    "sparse": scipy.sparse.csr_matrix(UP.astype(np.int8)),
    "a list of rows": list(X),
    "one trial": [X],
    "a stack of one": X[None],
    "a table": FRAME,
    "a table of booleans": FRAME > 0,
    "a table with mixed columns": (FRAME > 0).astype({"a": float, "b": int, "c": object}),
    "a table with nullable columns": (FRAME > 0).astype({"a": "boolean", "b": "Int8", "c": "Float32"}),
    "a table with any index": FRAME.set_index(pd.date_range("2020-01-01", periods=len(X))[::-1]),
    "a time series": TimeSeries(0.02 * np.arange(len(X)), UP, columns=NAMES),
    "a simulation": Recording(X, X[:, :2]),
}


@pytest.mark.parametrize("form", ONE_ARRAY)
def test_every_form_of_one_array_gives_the_same_segment(form: str) -> None:
    segments = as_segments(ONE_ARRAY[form])
    assert len(segments.spins) == 1
    (spins,) = segments.spins
    assert spins.dtype == np.int8
    assert spins.flags.c_contiguous
    assert spins.flags.writeable
    np.testing.assert_array_equal(spins, X)
    assert segments.names in (NAMES, ("0", "1", "2", "3", "4"))
    assert (segments.names == NAMES) == hasattr(ONE_ARRAY[form], "columns")
    assert segments.notes == ()
    assert segments.covariates is None


CUTS = (0, 30, 33, 120, 200)
TRIALS = [X[a:b] for a, b in pairwise(CUTS)]
LABELS = np.repeat(["x", "y", "w", "z"], np.diff(CUTS))
TIMES = np.arange(200) + 50.0 * np.repeat(np.arange(4), np.diff(CUTS))

SEVERAL = {
    "a list": TRIALS,
    "a tuple": tuple(TRIALS),
    "nested lists": [trial.tolist() for trial in TRIALS],
    "0/1, one of them all ones so far": [trial > 0 for trial in TRIALS],
    "tables": [pd.DataFrame(trial) for trial in TRIALS],
    "time series": [TimeSeries(np.arange(len(trial)), trial) for trial in TRIALS],
    "a table with an index level": FRAME.set_index([pd.Index(LABELS, name="Trial"), np.arange(200)]),
    "a time series with jumps": TimeSeries(TIMES, X),
    "a time series with epochs": TimeSeries(
        np.arange(200), X, epochs=[(0, 29), (30, 32), (33, 119), (120, 199)]
    ),
}


@pytest.mark.parametrize("form", SEVERAL)
def test_every_form_of_trials_gives_the_same_segments(form: str) -> None:
    segments = as_segments(SEVERAL[form])
    assert segments.lengths == (30, 3, 87, 80)
    for found, expected in zip(segments.spins, TRIALS, strict=True):
        np.testing.assert_array_equal(found, expected)
    whole = "time series with" in form
    assert segments.origins == tuple((0, a) if whole else (k, 0) for k, a in enumerate(CUTS[:-1]))
    assert any("split where" in note for note in segments.notes) == whole


def test_a_stack_of_trials() -> None:
    segments = as_segments(X.reshape(4, 50, 5) > 0)
    assert segments.lengths == (50,) * 4
    np.testing.assert_array_equal(np.concatenate(segments.spins), X)


@given(
    arrays.arrays(np.bool_, st.tuples(st.integers(3, 40), st.integers(1, 4)).filter(lambda x: x[0] >= x[1])),
    st.sampled_from([np.int8, np.uint8, np.int32, np.float16, np.float64, np.bool_, object]),
)
def test_zeros_and_ones_and_signs_are_the_same(up: np.ndarray, kind: type) -> None:
    expected = as_segments(2 * up.astype(np.int8) - 1)
    assert as_segments(up.astype(kind)) == expected
    if kind not in (np.uint8, np.bool_):
        assert as_segments((2 * up.astype(np.int8) - 1).astype(kind)) == expected
    np.testing.assert_array_equal(expected.spins[0] > 0, up)


def test_what_stands_for_down_is_decided_for_all_trials_together() -> None:
    """A trial in which every spin is up says nothing about it."""
    segments = as_segments([np.ones((5, 2)), np.array([[0, 1], [1, 0], [0, 0]])])
    np.testing.assert_array_equal(segments.spins[0], 1)
    np.testing.assert_array_equal(segments.spins[1], [[-1, 1], [1, -1], [-1, -1]])


def test_the_data_are_not_changed_and_long_ones_not_copied() -> None:
    data = UP.astype(np.int8)
    before = data.copy()
    assert not np.shares_memory(as_segments(data).spins[0], data)
    np.testing.assert_array_equal(data, before)
    assert np.shares_memory(as_segments(X).spins[0], X)


def test_zeros_far_behind_are_spins_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """An int8 array is examined in pieces, and copied from the first zero on."""
    monkeypatch.setattr("kising.recordings.spins.EXAMINED", 20)
    data = np.where(UP, 1, 0).astype(np.int8)
    data[:100] = 1
    np.testing.assert_array_equal(as_segments(data).spins[0], 2 * data - 1)


def test_segments_pass_unchanged() -> None:
    segments = as_segments(X)
    assert as_segments(segments) is segments
    assert as_segments(segments, width=5) is segments
    with pytest.raises(InputError, match="together with the data"):
        as_segments(segments, np.ones(200))


def test_unnamed_levels_of_an_index_are_ignored_with_a_note() -> None:
    segments = as_segments(FRAME.set_index([LABELS, np.arange(200)]))
    assert segments.lengths == (200,)
    assert "call a level 'trial'" in segments.notes[0]


def test_repeated_names_are_numbered() -> None:
    segments = as_segments(FRAME.set_axis(["a", "b", "a", "a (2)", "a"], axis=1))
    assert segments.names == ("a", "b", "a (3)", "a (2)", "a (4)")
    assert "same name" in segments.notes[0]


def test_columns_on_levels_have_joined_names() -> None:
    levels = pd.MultiIndex.from_product([["left"], range(5)])
    assert as_segments(FRAME.set_axis(levels, axis=1)).names[1] == "left/1"
