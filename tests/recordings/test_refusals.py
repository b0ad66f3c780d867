"""Data that cannot be a recording are refused with the place, the culprit and the cure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.spin_data import TimeSeries, random_spins

from kising.errors import InputError
from kising.recordings import as_segments

X = random_spins()


def at(t: int, i: int, value: object, data: np.ndarray = X) -> np.ndarray:
    array = data.astype(object if isinstance(value, (str, dict)) else np.result_type(data, np.asarray(value)))
    array[t, i] = value
    return array


class Group(dict):
    def count(self) -> None: ...


BAD = {
    "complex": (X * 1j, "complex numbers; give data.real"),
    "text": (X.astype(str), r"the recording: text; convert it with data.astype\(float\)"),
    "bytes": (X.astype("S2"), ": text; convert"),
    "dates": (np.zeros((9, 2), "M8[s]"), ": dates; leave"),
    "durations": (np.zeros((9, 2), "m8[s]"), "time differences"),
    "structured": (np.zeros(9, [("a", int), ("b", int)]), "structured array"),
    "junk among objects": (at(7, 2, "up"), r"entry \[7, 2\] is 'up', which is not a number"),
    "objects of another type": (at(7, 2, {}), r"entry \[7, 2\] is of type dict"),
    "complex among objects": (X.astype(object) * 1j, r"entry \[0, 0\] is .*j.*not a number"),
    "a huge integer": (at(3, 1, 10**400, X.astype(object)), "step 3, spin 1 is inf"),
    "counts": (at(4, 3, 7, np.abs(X)), r"step 4, spin 3 is 7: .*spike counts, binarise with data > 0"),
    "counts as floats": (at(4, 3, 2.0, X > 0), "spike counts, binarise with data > 0"),
    "a fraction": (at(4, 3, 0.5), "step 4, spin 3 is 0.5: .*threshold the data"),
    "below": (at(4, 3, -2), "step 4, spin 3 is -2"),
    "infinite": (at(4, 3, np.inf), "step 4, spin 3 is inf: .*NaN where a value is missing"),
    "three values": (at(4, 3, 0), r"both -1 \(step 0, spin 0\) and 0 \(step 4, spin 3\)"),
    "three values over trials": (
        [X, X > 0],
        r"both -1 \(trial 0, step \d, spin \d\) and 0 \(trial 1, step \d, ",
    ),
    "named": (pd.DataFrame(at(4, 3, 5), columns=list("abcde")), r"step 4, spin 3 \('d'\) is 5"),
    "a late trial": ([X, X, at(4, 3, 5)], "trial 2, step 4, spin 3 is 5"),
    "one dimension": (X[:, 0], r"1 dimension: .*a single spin is data\[:, None\]"),
    "no dimension": (1, "0 dimensions"),
    "four dimensions": (X[None, None], "4 dimensions: give .steps, spins."),
    "a generator": ((row for row in X), "not a number"),
    "ragged rows": ([[1, -1], [1]], "all rows need the same number of columns"),
    "trials of one dimension": ([X[:, 0], X[:9, 0]], "all rows need the same"),
    "no rows": (X[:0], r"empty \(0 steps of 5 spins\)"),
    "no columns": (X[:, :0], r"empty \(200 steps of 0 spins\)"),
    "no trials": (np.zeros((0, 9, 3)), "empty"),
    "nothing": ([], "1 dimension"),
    "trials of other widths": ([X, X[:, :3]], "trial 1 has 3 spins, trial 0 has 5"),
    "trials of other names": (
        [pd.DataFrame(X), pd.DataFrame(X, columns=list("abcde"))],
        "other column names",
    ),
    "two steps": (X[:2, :1], "no segment has 3 steps in a row"),
    "short trials": ([X[:2], X[:2]] * 50, "no segment has 3 steps in a row"),
    "only gaps": (X * np.nan, "200 steps of 200 have no entry; spin 0 has most gaps .100%"),
    "transposed": (random_spins(6000, 15).T, "15 steps of 6,000 spins: rows are steps; .*data.T"),
    "transposed trials": ([X[:20].T, X[20:40].T], r"10 steps of 20 spins.*\[trial.T for trial in data\]"),
    "a path": ("spikes.npy", r"kising.read_recording\(path\)"),
    "a Path": (Path("spikes.npy"), r"kising.read_recording\(path\)"),
    "a mapping": ({"a": X}, r"list\(data.values\(\)\)"),
    "spike times of many units": (Group(a=X), r"group.count\(0.02\) > 0"),
    "an index of mixed trials": (
        pd.DataFrame(X, index=pd.MultiIndex.from_product([range(100), [1, 2]], names=["t", "trial"])),
        "trial 1 continues at row 2, after other trials: sort the rows",
    ),
    "times that fall": (TimeSeries(np.arange(200)[::-1], X), "times must increase"),
    "too few times": (TimeSeries(np.arange(100), X), "200 rows and 100 times"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_a_recording_is_refused(case: str) -> None:
    data, message = BAD[case]
    with pytest.raises(InputError, match=message) as error:
        as_segments(data)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("missing", ["keep", None])
def test_gaps_are_sampled_or_dropped(missing: str) -> None:
    with pytest.raises(InputError, match=r"must be 'sample', which keeps gaps.*or 'drop'"):
        as_segments(X, missing=missing)


def test_an_expected_width_is_checked_and_ends_suspicion() -> None:
    tiny = random_spins(4, 6)
    assert as_segments(tiny, width=6).lengths == (4,)
    with pytest.raises(InputError, match=r"has 6 spins; expected 7$"):
        as_segments(tiny, width=7)
    with pytest.raises(InputError, match=r"has 6 spins; expected 4; transpose it: data.T"):
        as_segments(tiny, width=4)
