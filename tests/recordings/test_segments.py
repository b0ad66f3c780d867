"""Segments: sizes, notes on columns, leaving columns out, printing and comparing."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.spin_data import random_spins

from kising.errors import InputError
from kising.recordings import Segments, as_segments, fittable

X = random_spins(300, 6)
NAMES = list("abcdef")


def table(**columns: object) -> pd.DataFrame:
    """X with some columns replaced."""
    return pd.DataFrame(X, columns=NAMES).assign(**columns)


def test_sizes() -> None:
    segments = as_segments([X[:50], X[50:52], X[52:]], np.ones((300, 2)))
    assert segments.n_visible == 6
    assert segments.n_covariates == 2
    assert segments.lengths == (50, 248)
    assert segments.n_steps == 298
    assert segments.n_slices == 48 + 246
    assert segments.origins == ((0, 0), (2, 0))
    assert segments.columns == (0, 1, 2, 3, 4, 5)
    assert segments.missing is None


@given(
    arrays.arrays(np.int8, (60, 3), elements=st.integers(0, 1)),
    st.sets(st.integers(0, 59), max_size=30),
)
def test_gaps_split_a_recording_into_the_runs_between_them(up: np.ndarray, gaps: set[int]) -> None:
    data = up.astype(float)
    data[sorted(gaps), 1] = np.nan
    runs, run = [], []
    for t in range(61):
        if t < 60 and t not in gaps:
            run.append(t)
        else:
            runs += [run] if len(run) >= 3 else []
            run = []
    if not runs:
        with pytest.raises(InputError, match="3 steps in a row"):
            as_segments(data, missing="drop")
        return
    absent = np.isnan(data)
    objects = [np.where(absent, nothing, data) for nothing in (None, pd.NA)]
    masked = np.ma.masked_array(up, mask=absent)
    for form in (data, masked, masked.astype(object), pd.DataFrame(data).astype("Int8"), *objects):
        segments = as_segments(form, np.arange(60.0), missing="drop")
        assert [np.ravel(x).tolist() for x in segments.covariates] == runs
        assert segments.origins == tuple((0, run[0]) for run in runs)
        for spins, run in zip(segments.spins, runs, strict=True):
            np.testing.assert_array_equal(spins, 2 * up[run] - 1)
    said = [note for note in segments.notes if "missing entries" in note]
    assert len(said) == bool(gaps)
    if gaps:
        assert f"{len(gaps)} step" in said[0]
        assert "spin 1 ('1')" not in said[0]
        assert f"spin 1 has most gaps ({len(gaps) / 60:.0%}" in said[0]
    dropped = [note for note in segments.notes if note.startswith("dropped:")]
    assert bool(dropped) == (sum(map(len, runs)) + len(gaps) < 60)


def test_shuffling_trials_shuffles_segments() -> None:
    one, other = as_segments([X[:50], X[50:]]), as_segments([X[50:], X[:50]])
    assert [x.tolist() for x in one.spins] == [x.tolist() for x in other.spins[::-1]]


BURST = np.where(np.arange(300) // 100 == 1, 1, -1)
START = np.where(np.arange(300) == 1, 1, -1)
NOTED = {
    "silent": ({"b": -1}, "spin b: always -1 (silent); such spins cannot be fitted", ["b"]),
    "silent, two": ({"b": -1, "d": -1}, "spins b, d: always -1", ["b", "d"]),
    "stuck": ({"b": 1}, "spin b: always +1; such spins cannot be fitted", ["b"]),
    "constant": ({"b": START}, "spin b: constant after the first two steps", ["b"]),
    "rare": ({"b": BURST}, "spin b: fewer than 5 changes", []),
    "duplicate": ({"e": X[:, 1]}, "identical columns: b = e; ", []),
    "duplicates": ({"e": X[:, 1], "f": X[:, 1], "c": X[:, 0]}, "a = c, b = e, b = f; ", []),
}


@pytest.mark.parametrize("case", NOTED)
def test_what_looks_wrong_is_noted_and_what_can_be_fitted_is_fitted(case: str) -> None:
    columns, note, unfittable = NOTED[case]
    segments = as_segments(table(**columns))
    assert len(segments.notes) == 1
    assert note in segments.notes[0]
    left = fittable(segments)
    assert left.names == tuple(x for x in NAMES if x not in unfittable)
    assert [NAMES[k] for k in left.columns] == list(left.names)
    if unfittable:
        assert len(left.notes) == 1
        assert left.notes[0].startswith(
            f"left out: spin{'s' * (len(unfittable) > 1)} {', '.join(unfittable)} never"
        )
        assert f"{6 - len(unfittable)} of 6 spins are fitted" in left.notes[0]
        np.testing.assert_array_equal(left.spins[0], segments.spins[0][:, list(left.columns)])
        assert left.spins[0].flags.c_contiguous
    else:
        assert left is segments


@pytest.mark.parametrize("first", [3, 120, 123, 124, 125, 126, 127, 250, 290])
@pytest.mark.parametrize("flips", [4, 5])
def test_changes_are_counted_wherever_they_are(first: int, flips: int) -> None:
    changes = np.isin(np.arange(300), np.arange(first, first + flips))
    notes = as_segments(table(b=np.where(np.cumsum(changes) % 2, 1, -1))).notes
    assert [note.startswith("spin b: fewer than 5 changes") for note in notes] == [True] * (flips < 5)


def test_flips_do_not_count_across_borders() -> None:
    """A spin that changes only from trial to trial hardly says anything."""
    steady = [np.column_stack([x, np.full(10, (-1) ** k)]) for k, x in enumerate(X[:, :2].reshape(30, 10, 2))]
    assert as_segments(steady).notes == (
        "spin 2: fewer than 5 changes of state; the couplings of such spins are mostly noise: leave them out with "
        "segments.without([...]), or use wider bins",
    )


def test_many_names_are_counted() -> None:
    silent = as_segments(np.column_stack([X, -np.ones((300, 8))]))
    assert silent.notes[0].startswith("spins 6, 7, 8, 9, 10 and 3 more: always -1")


def test_nothing_to_fit_is_refused() -> None:
    with pytest.raises(InputError, match="no spin changes after the first two steps"):
        fittable(as_segments(np.ones((10, 2))))


@pytest.mark.parametrize(
    ("steps", "spins", "note"), [(60, 100, "60 steps of 100 spins: fewer steps than spins"), (100, 60, None)]
)
def test_a_probable_transposition_is_noted(steps: int, spins: int, note: str | None) -> None:
    notes = [x for x in as_segments(random_spins(steps, spins)).notes if "data.T" in x]
    assert notes == ([] if note is None else [f"{note}; if rows are spins, transpose: data.T"])


def test_short_trials_of_many_spins_are_noted() -> None:
    trials = random_spins(600, 30).reshape(30, 20, 30)
    assert "no trial has as many steps (20) as there are spins (30)" in as_segments(trials).notes[0]
    assert not as_segments(trials[:, :, :20]).notes


def test_leaving_columns_out() -> None:
    segments = as_segments(table(b=-1, e=X[:, 0]), np.ones(300))
    left = segments.without(["b", 4])
    assert left.names == ("a", "c", "d", "f")
    assert left.columns == (0, 2, 3, 5)
    assert left.notes == ()
    assert left.covariates == segments.covariates
    assert left.without([1]).columns == (0, 3, 5)
    assert segments.without(["f"]).notes == segments.notes
    for wrong, message in [
        (["g"], "there is no spin 'g'.*the first ones are a, b, c, d, e"),
        ([6], "positions go from 0 to 5"),
        ([-1], "positions go from 0 to 5"),
        ("ab", r"give a list, \['ab'\]"),
        (NAMES, "nothing would be left"),
    ]:
        with pytest.raises(InputError, match=message):
            segments.without(wrong)


def test_segments_print_on_a_line() -> None:
    assert repr(as_segments(X)) == "Segments(300 steps of 6 spins)"
    segments = as_segments([X[:50], X[50:]] * 20, [np.ones(50), np.ones(250)] * 20)
    segments = replace(segments, notes=("one", "two"))
    assert repr(segments) == (
        "Segments(6000 steps of 6 spins; 40 segments of 50 to 250 steps; 1 covariate; 2 notes: see .notes)"
    )


def test_segments_compare_without_raising() -> None:
    one, same = (as_segments([X[:50], X[50:]], np.arange(300.0)) for _ in range(2))
    assert one == same
    assert (one != same) is False
    assert one != 3
    assert (one == None) is False  # noqa: E711
    changed = X.copy()
    changed[10, 2] *= -1
    assert one != as_segments([changed[:50], changed[50:]], np.arange(300.0))
    assert one != as_segments([X[:50], X[50:]])
    assert one != as_segments([X[:51], X[51:]], np.arange(300.0))
    assert one != replace(one, notes=("else",))
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(FrozenInstanceError):
        one.names = ()  # type: ignore[misc]
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    assert isinstance(one, Segments)
