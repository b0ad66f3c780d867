"""Spike times: binned to ±1, in trials, against counting by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
from hypothesis import given
from hypothesis import strategies as st
from support.spin_data import random_spins

from kising.errors import RecordingError
from kising.recordings import read_recording

X = random_spins(100, 4)
#: One spike in the middle of every bin of 20 ms in which a spin is up.
STEP, UNIT = np.nonzero(X > 0)
TIME = 0.02 * (STEP + 0.5)
TABLE = pd.DataFrame({"unit": UNIT, "time": TIME})


def write(path: Path, table: pd.DataFrame | np.ndarray) -> Path:
    if path.suffix == ".csv":
        pd.DataFrame(table).to_csv(path, index=False, header=isinstance(table, pd.DataFrame))
    elif path.suffix == ".parquet":
        table.to_parquet(path)
    elif path.suffix == ".npz":
        np.savez(path, **{name: table[name] for name in table})
    elif path.suffix == ".mat":
        scipy.io.savemat(path, {"spikes": np.asarray(table)})
    else:
        np.save(path, np.asarray(table))
    return path


TABLES = {
    "named": (".csv", TABLE),
    "named, the other way round": (".csv", TABLE[["time", "unit"]]),
    "other names": (".csv", TABLE.set_axis(["Neuron", "t"], axis=1)),
    "ids": (".csv", TABLE.set_axis(["id", "Time (s)"], axis=1)),
    "milliseconds": (".csv", TABLE.assign(time=1e3 * TIME).set_axis(["unit_id", "spike_time_ms"], axis=1)),
    "microseconds": (".csv", TABLE.assign(time=1e6 * TIME).set_axis(["cluster", "times [us]"], axis=1)),
    "more columns": (".csv", TABLE.assign(amplitude=1.5)),
    "not in order": (".csv", TABLE.sample(frac=1, random_state=1)),
    "no names": (".csv", TABLE.to_numpy()),
    "no names, the other way round": (".csv", TABLE.to_numpy()[:, ::-1]),
    "parquet": (".parquet", TABLE),
    "npy": (".npy", TABLE),
    "two arrays": (".npz", TABLE),
    "two arrays in the plural": (".npz", TABLE.set_axis(["units", "times"], axis=1)),
    "mat": (".mat", TABLE),
    "labels": (".csv", TABLE.assign(unit=np.array(["n0", "n1", "n2", "n3"])[UNIT])),
    "labels without names": (".csv", TABLE.assign(unit=np.array(["n0", "n1", "n2", "n3"])[UNIT]).to_numpy()),
}


@pytest.mark.parametrize("width", ["20ms", "20 ms", "0.02s", "2e-2 s", "20000us", "20000µs", 0.02])
def test_widths_of_bins(tmp_path: Path, width: str | float) -> None:
    found = read_recording(write(tmp_path / "data.csv", TABLE), bin=width)
    np.testing.assert_array_equal(found.spins[0], X[STEP.min() : STEP.max() + 1])


@pytest.mark.parametrize("case", TABLES)
def test_spikes_of_every_form_give_the_same_spins(tmp_path: Path, case: str) -> None:
    ending, table = TABLES[case]
    found = read_recording(write(tmp_path / f"data{ending}", table), bin="20ms")
    np.testing.assert_array_equal(found.spins[0], X[STEP.min() : STEP.max() + 1])
    assert found.names == (("n0", "n1", "n2", "n3") if "labels" in case else ("0", "1", "2", "3"))
    swapped = "second column is taken as the unit" in "".join(found.notes)
    assert swapped == (case == "no names, the other way round")


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 999)), min_size=20, max_size=80),
    st.lists(st.tuples(st.integers(0, 900), st.integers(30, 120)), min_size=1, max_size=4),
    st.integers(5, 30),
    st.sampled_from([0.0, -400.0, 12345.678]),
)
def test_bins_against_counting(tmp_path_factory, spikes, trials, width: int, origin: float) -> None:
    """Times are whole milliseconds, so that many lie on borders of bins; these belong to the later bin."""
    path = tmp_path_factory.mktemp("spikes") / "data.npy"
    np.save(path, [(unit, origin + 0.001 * t) for unit, t in spikes])
    windows = [(origin + 0.001 * a, origin + 0.001 * (a + length)) for a, length in trials]
    lengths = [length // width for _, length in trials]
    if not any(n > 2 for n in lengths):
        with pytest.raises(RecordingError, match=r"3 steps in a row|as long as one bin"):
            read_recording(path, bin=f"{width}ms", trials=windows)
        return
    found = read_recording(path, bin=f"{width}ms", trials=windows)
    labels = sorted({unit for unit, _ in spikes})
    kept = [k for k, n in enumerate(lengths) if n > 2]
    assert found.lengths == tuple(lengths[k] for k in kept)
    assert found.origins == tuple((k, 0) for k in kept)
    for k, spins in zip(kept, found.spins, strict=True):
        expected = -np.ones((lengths[k], len(labels)))
        for unit, t in spikes:
            step = (t - trials[k][0]) // width
            if 0 <= step < lengths[k]:
                expected[step, labels.index(unit)] = 1
        np.testing.assert_array_equal(spins, expected)
    outside = sum(
        not any(0 <= t - a < n * width for (a, _), n in zip(trials, lengths, strict=True)) for _, t in spikes
    )
    said = [note for note in found.notes if "outside the trials" in note]
    assert len(said) == bool(outside)
    assert all(note.startswith(f"{outside} spike") for note in said)


WINDOWS = np.array([[0.0, 0.5], [0.6, 1.0], [1.0, 2.0]])
TRIALS = {
    "pairs": WINDOWS,
    "a list": WINDOWS.tolist(),
    "start and stop": pd.DataFrame(WINDOWS, columns=["start", "stop"]),
    "start and end": pd.DataFrame(WINDOWS[:, ::-1] * 1e3, columns=["end_ms", "start_ms"]),
    "onset and duration": pd.DataFrame({"onset": WINDOWS[:, 0], "duration (ms)": [500, 400, 1000]}),
    "no names": WINDOWS,
}


@pytest.mark.parametrize("case", TRIALS)
def test_trials_of_every_form(tmp_path: Path, case: str) -> None:
    trials = TRIALS[case]
    if isinstance(trials, pd.DataFrame) or case == "no names":
        trials = write(tmp_path / "trials.csv", trials)
    found = read_recording(write(tmp_path / "data.csv", TABLE), bin="20ms", trials=trials)
    assert found.lengths == (25, 20, 50)
    np.testing.assert_array_equal(np.concatenate(found.spins), np.concatenate([X[:25], X[30:50], X[50:]]))
    assert found.notes == (
        f"{(X[25:30] > 0).sum()} spikes of {len(TABLE)} fall outside the trials and are dropped",
    )


@pytest.mark.parametrize("duration", ["400ms", 0.4])
def test_onsets_with_a_duration(tmp_path: Path, duration: str | float) -> None:
    onsets = np.array([0.2, 1.0])
    found = read_recording(write(tmp_path / "data.csv", TABLE), bin="20ms", trials=(onsets, duration))
    np.testing.assert_array_equal(np.concatenate(found.spins), np.concatenate([X[10:30], X[50:70]]))


def test_overlapping_trials_and_crowded_bins_are_noted(tmp_path: Path) -> None:
    path = write(tmp_path / "data.csv", pd.concat([TABLE, TABLE]))
    notes = read_recording(path, bin="20ms", trials=[[0, 1], [0.5, 2]]).notes
    assert any("trials overlap" in note for note in notes)
    assert any("100% of the bins with spikes hold more than one" in note for note in notes)


def test_covariates_have_a_row_per_bin(tmp_path: Path) -> None:
    path = write(tmp_path / "data.csv", TABLE)
    found = read_recording(path, bin="20ms", trials=[[0, 2]], covariates=np.arange(100.0))
    np.testing.assert_array_equal(found.covariates[0][:, 0], np.arange(100))
    with pytest.raises(RecordingError, match="one row per step"):
        read_recording(path, bin="20ms", trials=[[0, 2]], covariates=np.arange(99.0))


BAD = {
    "bins without a unit": (TABLE, {"bin": "20"}, "bin='20': give a duration with its unit: 20ms"),
    "bins of no width": (TABLE, {"bin": 0}, "bin=0: give a duration"),
    "bins of another unit": (TABLE, {"bin": "2h"}, "bin='2h'"),
    "bins that are no number": (TABLE, {"bin": float("nan")}, "bin=.nan"),
    "bins that are nothing of the kind": (TABLE, {"bin": [1]}, "bin=a list"),
    "trials without bins": (TABLE, {"trials": WINDOWS}, "they cut spike times; give bin"),
    "trials of one column": (TABLE, {"bin": "20ms", "trials": [1, 2]}, r"trials of shape \(2,\)"),
    "no trials": (TABLE, {"bin": "20ms", "trials": np.zeros((0, 2))}, "there are no trials"),
    "trials the wrong way round": (
        TABLE,
        {"bin": "20ms", "trials": WINDOWS[:, ::-1]},
        "trial 0 stops at 0, not after",
    ),
    "trials without end": (TABLE, {"bin": "20ms", "trials": [[0, np.nan]]}, "trials hold NaN"),
    "trials shorter than bins": (
        TABLE,
        {"bin": "3s", "trials": WINDOWS},
        "no trial is as long as one bin of 3 s",
    ),
    "a file of trials that is not there": (
        TABLE,
        {"bin": "1s", "trials": "no.csv"},
        "^no.csv: .*No such file",
    ),
    "times in milliseconds": (TABLE.assign(time=TIME * 3e4), {"bin": "20ms"}, "are times in another unit"),
    "times in nanoseconds": (TABLE.assign(time=TIME * 1e9), {"bin": "20ms"}, "are times in another unit"),
    "infinite times": (TABLE.assign(time=np.inf), {"bin": "20ms"}, "spike 0 has no finite time"),
    "units that are fractions": (
        TABLE.assign(unit=0.5),
        {"bin": "20ms"},
        "units are whole numbers or labels",
    ),
    "three columns": (
        TABLE.assign(x=1).rename(columns={"time": "y"}),
        {"bin": "20ms"},
        "this table has 3: name two",
    ),
    "one column": (TABLE[["time"]], {"bin": "20ms"}, "this table has 1: name two"),
    "words for times": (
        TABLE.assign(time="now"),
        {"bin": "20ms"},
        r"line 2, column 2 \(time\): 'now' is not a number",
    ),
    "no spikes": (TABLE[:0], {"bin": "20ms"}, "a header and no rows"),
}


@pytest.mark.parametrize("case", BAD)
def test_spike_times_that_make_no_recording_are_refused(tmp_path: Path, case: str) -> None:
    table, options, message = BAD[case]
    with pytest.raises(RecordingError, match=message):
        read_recording(write(tmp_path / "data.csv", table), **options)


def test_files_of_trials_that_make_no_windows(tmp_path: Path) -> None:
    path = write(tmp_path / "data.csv", TABLE)
    for text, message in [
        ("start\n1\n2\n", "trials.csv: trials have one column"),
        ("a,b,c\n1,2,3\n", "trials.csv: trials need two columns, named start and stop"),
        ("start,stop\n1,x\n", r"trials.csv: line 2, column 2 \(stop\): 'x' is not a number"),
    ]:
        (tmp_path / "trials.csv").write_text(text)
        with pytest.raises(RecordingError, match=message):
            read_recording(path, bin="20ms", trials=tmp_path / "trials.csv")


def test_arrays_of_spikes_that_do_not_fit(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", unit=UNIT, time=TIME[1:])
    with pytest.raises(RecordingError, match="give one of each per spike"):
        read_recording(tmp_path / "data.npz", bin="20ms")
    np.save(tmp_path / "data.npy", X[None])
    with pytest.raises(RecordingError, match="a table of numbers with one row per event"):
        read_recording(tmp_path / "data.npy", bin="20ms")
