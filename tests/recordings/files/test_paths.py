"""Paths that are not recordings: refused in one line, at once, and without opening what might wait forever."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.spin_data import random_spins

import kising
from kising.errors import RecordingError
from kising.recordings import as_segments, read_recording

X = random_spins()


def test_parquet(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=list("abcde"))
    index = pd.MultiIndex.from_arrays([np.arange(200) // 50, np.arange(200) % 50], names=["trial", "step"])
    for table, expected in [
        (frame, frame),
        (frame > 0, frame),
        ((frame > 0).astype("boolean"), frame),
        (frame.set_index(pd.date_range("2020-01-01", periods=200, name="date")), frame),
        (frame.assign(time=np.arange(200) / 7), frame),
        (frame.set_index(index), frame.set_index(index)),
        (frame.assign(trial=np.arange(200) // 50), frame.set_index(index)),
    ]:
        table.to_parquet(tmp_path / "data.parquet")
        assert read_recording(tmp_path / "data.parquet") == as_segments(expected)
    frame.astype(object).assign(b="x").to_parquet(tmp_path / "data.parquet")
    with pytest.raises(RecordingError, match=r"row 0, column 2 \(b\): 'x' is not a number"):
        read_recording(tmp_path / "data.parquet")
    (tmp_path / "data.parquet").write_bytes(b"PAR1 or not")
    with pytest.raises(RecordingError, match=r"data.parquet: cannot read a recording"):
        read_recording(tmp_path / "data.parquet")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.npy", "cannot read a recording: No such file or directory"),
        ("x" * 300 + ".npy", "cannot read a recording: File name too long"),
        ("a\0b.npy", "cannot read a recording: embedded null"),
        ("a/b.npy", "cannot read a recording: No such file or directory"),
        (".", "this is a directory; give a file in it"),
        ("empty.csv", "the file is empty"),
        ("data.xyz", "recordings are .npy, .npz, .csv, .tsv, .txt, .parquet, .mat files$"),
        ("data.pkl", "pickles are never loaded"),
        ("data.nwb", "export the array with np.save"),
        ("data.XLSX", "save the sheet as .csv"),
        ("data.csv.gz", "unpack it first"),
        ("data", "recordings are .npy"),
    ],
)
def test_paths_that_lead_nowhere(tmp_path: Path, name: str, message: str) -> None:
    if name.startswith("data"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "empty.csv").touch()
    with pytest.raises(RecordingError, match=message) as error:
        read_recording(tmp_path / name)
    assert "\n" not in str(error.value)
    assert str(error.value).isprintable()


@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "a link to a fifo"])
def test_what_is_not_a_regular_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data.npy"
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    else:
        os.mkfifo(tmp_path / "fifo" if "link" in kind else path)
        if "link" in kind:
            path.symlink_to(tmp_path / "fifo")
    with pytest.raises(RecordingError, match="a pipe, socket or device"):
        read_recording(path)


def test_options_of_other_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", X)
    for options, message in [
        ({"key": "a"}, "key='a': it chooses an array of a .npz or .mat file"),
        ({"delimiter": ","}, "delimiter=',': it belongs to text files"),
        ({"missing": "guess"}, "missing='guess': must be 'sample'"),
    ]:
        with pytest.raises(RecordingError, match=message):
            read_recording(tmp_path / "data.npy", **options)
    for covariates, message in [
        ("nowhere.csv", "^nowhere.csv: cannot read a recording: No such file"),
        (np.ones(3), "data.npy: the recording has 200 steps"),
    ]:
        with pytest.raises(RecordingError, match=message):
            read_recording(tmp_path / "data.npy", covariates=covariates)


def test_it_is_public_and_loads_nothing_heavy(tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", X)
    assert kising.read_recording is read_recording
    code = (
        "import sys, kising.recordings as r; r.read_recording(sys.argv[1]); "
        "print([m for m in ('pandas', 'scipy', 'pyarrow', 'numba', 'ray') if m in sys.modules])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "data.npy")], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "[]"
