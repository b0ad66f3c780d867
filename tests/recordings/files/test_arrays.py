"""Recordings in .npy, .npz and .mat files; nothing is unpickled, and no header is believed unchecked."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from support.spin_data import random_spins

from kising.errors import RecordingError
from kising.recordings import as_segments, read_recording

X = random_spins()
TRIALS = [X[:60], X[60:63], X[63:]]
REFERENCE = as_segments(X)
IN_TRIALS = as_segments(TRIALS)


@pytest.mark.parametrize("name", ["data.npy", "DATA.NPY"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("kind", [np.int8, np.bool_, ">i4", "<f8", np.float16])
def test_npy(tmp_path: Path, name: str, version: tuple[int, int], kind: object) -> None:
    path = tmp_path / name
    with path.open("wb") as file:
        np.lib.format.write_array(file, np.asfortranarray((X > 0).astype(kind)), version=version)
    assert read_recording(path) == REFERENCE
    assert read_recording(str(path)) == REFERENCE
    assert all(x.flags.writeable for x in read_recording(path).spins)


def test_a_stack_in_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", X.reshape(4, 50, 5))
    assert read_recording(tmp_path / "data.npy").lengths == (50,) * 4


LONG = [X[:20]] * 11
ARCHIVES = {
    "one array": ({"spikes": X}, {}, REFERENCE),
    "chosen": ({"spikes": X, "other": X[:, :3]}, {"key": "spikes"}, REFERENCE),
    "beside flat arrays": ({"spikes": X, "rate": np.arange(9.0)}, {}, REFERENCE),
    "numbered": ({f"trial_{k}": x for k, x in reversed(list(enumerate(TRIALS)))}, {}, IN_TRIALS),
    "numbered beyond nine": ({f"arr_{k}": x for k, x in enumerate(LONG)}, {}, as_segments(LONG)),
    "named trials": (dict(zip(("first", "then", "last"), TRIALS, strict=True)), {}, IN_TRIALS),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("case", ARCHIVES)
def test_npz(tmp_path: Path, case: str, save) -> None:
    arrays, options, expected = ARCHIVES[case]
    save(tmp_path / "data.npz", **arrays)
    found = read_recording(tmp_path / "data.npz", **options)
    assert [x.tolist() for x in found.spins] == [x.tolist() for x in expected.spins]
    notes = {
        "beside flat arrays": "not used: rate",
        "named trials": "first, then, last are taken as 3 trials",
    }
    assert [notes.get(case, "") in note for note in found.notes] == [True] * (case in notes)


def test_trials_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    trials = [random_spins(10, 3, seed=k) for k in range(12)]
    np.savez(tmp_path / "data.npz", *trials)
    for found, trial in zip(read_recording(tmp_path / "data.npz").spins, trials, strict=True):
        np.testing.assert_array_equal(found, trial)


def test_names_and_covariates_of_an_archive(tmp_path: Path) -> None:
    inputs = np.arange(400.0).reshape(200, 2)
    np.savez(tmp_path / "data.npz", spins=X, covariates=inputs, names=list("abcde"))
    found = read_recording(tmp_path / "data.npz")
    assert found.names == tuple("abcde")
    np.testing.assert_array_equal(found.covariates[0], inputs)
    np.save(tmp_path / "other.npy", inputs + 1)
    other = read_recording(tmp_path / "data.npz", covariates=tmp_path / "other.npy")
    np.testing.assert_array_equal(other.covariates[0], inputs + 1)
    given = read_recording(tmp_path / "data.npz", covariates=inputs - 1)
    np.testing.assert_array_equal(given.covariates[0], inputs - 1)
    np.savez(tmp_path / "signs.npz", covariates=X)
    assert read_recording(tmp_path / "signs.npz", key="covariates") == REFERENCE
    np.savez(tmp_path / "trials.npz", trial_0=X[:90], trial_1=X[90:], covariates=inputs)
    found = read_recording(tmp_path / "trials.npz")
    np.testing.assert_array_equal(found.covariates[1], inputs[90:])


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    "kind", [np.float64, np.float32, np.bool_, *(f"{s}{n}" for s in "iu" for n in (1, 2, 4, 8))]
)
def test_mat(tmp_path: Path, kind: object, compressed: bool) -> None:
    data = {"spikes": (X > 0).astype(kind)}
    scipy.io.savemat(tmp_path / "data.mat", data, do_compression=compressed)
    assert read_recording(tmp_path / "data.mat") == REFERENCE


@pytest.mark.parametrize("shape", [(3, 1), (4, 3), (3, 2), (3, 4, 2), (2, 3, 1)])
def test_shapes_of_mat(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Short arrays are stored inside their tags."""
    data = np.arange(np.prod(shape)).reshape(shape) % 2
    scipy.io.savemat(tmp_path / "data.mat", {"x": data.astype(np.uint8)})
    assert read_recording(tmp_path / "data.mat") == as_segments(data)


def test_more_variables_of_mat(tmp_path: Path) -> None:
    cells = np.empty((1, 3), object)
    cells[0] = TRIALS
    variables = {
        "flags": X > 0,
        "sparse": scipy.sparse.csc_matrix((X > 0).astype(float)),
        "cells": cells,
        "settings": {"rate": 3},
        "title": "mouse",
    }
    scipy.io.savemat(tmp_path / "data.mat", variables)
    assert read_recording(tmp_path / "data.mat", key="flags") == REFERENCE
    assert read_recording(tmp_path / "data.mat", key="sparse") == REFERENCE
    assert read_recording(tmp_path / "data.mat", key="cells") == IN_TRIALS
    with pytest.raises(RecordingError, match=r"several arrays could be the recording: choose one with key"):
        read_recording(tmp_path / "data.mat")
    with pytest.raises(
        RecordingError,
        match=r"no variable called 'settings' holds a numeric array; variables: flags .numeric., sparse",
    ):
        read_recording(tmp_path / "data.mat", key="settings")
    scipy.io.savemat(tmp_path / "cells.mat", {"cells": cells, "title": "mouse"}, do_compression=True)
    assert read_recording(tmp_path / "cells.mat") == IN_TRIALS


def test_the_only_matrix_of_mat_is_the_recording(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "data.mat", {"rate": 50.0, "t": np.arange(200.0), "x": X, "title": "mouse"})
    found = read_recording(tmp_path / "data.mat")
    assert found.spins[0].tolist() == X.tolist()
    assert found.notes == ("array x is the recording; not used: rate, t",)


def packed(array: object, **options: object) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def headed(header: str, content: bytes = bytes(600)) -> bytes:
    """A .npy file with a header of one's own."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content


def zipped(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def saved(**arrays: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


OBJECTS = np.array([[{}], [{}]], dtype=object)
HUGE = "{'descr': '|i1', 'fortran_order': False, 'shape': (10000000000000, 5), }\n"
BAD = {
    "garbage": (".npy", b"garbage", "this is not a .npy file; save the array with np.save"),
    "pickled": (".npy", packed(OBJECTS, allow_pickle=True), "pickled Python objects, which are never loaded"),
    "pickled in an archive": (".npz", saved(x=OBJECTS), "array x: the array holds pickled"),
    "10^13 elements": (
        ".npy",
        headed(HUGE),
        r"promises an array of 10000000000000×5 \(50,000,000,000,000 bytes\)",
    ),
    "10^13 in an archive": (".npz", zipped("x.npy", headed(HUGE)), "array x: the header promises an array"),
    "more elements than there are numbers": (
        ".npy",
        headed(f"{{'descr': '|i1', 'fortran_order': False, 'shape': ({'9' * 5000},)}}"),
        "cannot read a recording|promises",
    ),
    "nested brackets": (".npy", headed("(" * 9000), "does not describe an array of numbers"),
    "signs": (".npy", headed("-" * 9000 + "1"), "does not describe an array of numbers"),
    "a long header": (".npy", headed(" " * 20000), "a header of 20,000 bytes"),
    "records": (
        ".npy",
        headed("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (5,)}"),
        "does not describe an array of numbers",
    ),
    "an unknown type": (
        ".npy",
        headed("{'descr': '<i3', 'fortran_order': False, 'shape': (5,)}"),
        "unknown type <i3",
    ),
    "an empty type": (
        ".npy",
        headed("{'descr': '<U0', 'fortran_order': False, 'shape': (5,)}"),
        "empty type",
    ),
    "half a file": (".npy", packed(X)[:600], "promises an array of 200×5 .*cut off or damaged"),
    "half a header": (".npy", packed(X)[:9], "cut off inside its header"),
    "half an archive": (".npz", saved(x=X)[:700], "cannot read a recording: File is not a zip file"),
    "not an archive": (".npz", packed(X), "cannot read a recording: File is not a zip file"),
    "an empty archive": (".npz", saved(), "the archive holds no arrays"),
    "text in an archive": (".npz", zipped("x.txt", b"1 0"), "array x.txt: this is not a .npy file"),
    "complex": (".npy", packed(X * 1j), "complex numbers"),
    "counts": (".npy", packed(3 * (X > 0)), "spike counts"),
    "no such key": (".npz", saved(spikes=X), r"there is no such array; there are spikes \(200, 5\)$"),
    "several": (
        ".npz",
        saved(visible=X, hidden=X[:, :2]),
        r"choose one with key=; there are visible \(200, 5\), hi",
    ),
    "only flat ones": (".npz", saved(a=X[0], b=X[0]), r"no array is a \(steps, spins\) recording"),
    "one flat one": (".npz", saved(a=X[0]), "1 dimension"),
    "names that do not fit": (".npz", saved(a=X, names=["a"]), "1 names for 5 spins"),
    "spike times without bins": (
        ".npz",
        saved(unit=X[:, 0], time=X[:, 0]),
        "looks like spike times.*give bin",
    ),
    "MATLAB 7.3": (".mat", bytes(512) + b"\x89HDF\r\n\x1a\n" + bytes(99), r"version 7.3.*'-v7'\), or export"),
    "bare HDF5": (".mat", b"\x89HDF\r\n\x1a\n" + bytes(99), "version 7.3"),
    "not MATLAB": (".mat", b"MATLAB? no" * 30, "not a MATLAB file of versions 5 to 7"),
}


@pytest.mark.parametrize("case", BAD)
def test_files_that_hold_no_recording_are_refused(tmp_path: Path, case: str) -> None:
    ending, content, message = BAD[case]
    path = tmp_path / f"data{ending}"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=message) as error:
        read_recording(path, key="volts" if case == "no such key" else None)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_a_damaged_type_does_not_end_the_process(tmp_path: Path) -> None:
    """scipy.io.loadmat looks the type up outside its table."""
    scipy.io.savemat(tmp_path / "data.mat", {"x": X})
    content = bytearray((tmp_path / "data.mat").read_bytes())
    tag = content.index(b"\x01\0\x01\0x\0\0\0") + 8
    content[tag : tag + 2] = b"\x01\x8a"
    (tmp_path / "data.mat").write_bytes(content)
    with pytest.raises(RecordingError, match="the file is damaged: unknown type 35329"):
        read_recording(tmp_path / "data.mat")


def test_a_misspelt_key_is_guessed(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", spikes=X)
    with pytest.raises(RecordingError, match=r"key='spike': .*did you mean 'spikes'\?"):
        read_recording(tmp_path / "data.npz", key="spike")


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """An entry that claims more than deflate can pack is refused before memory is set aside for it."""
    content = bytearray(saved(x=X))
    directory = content.rindex(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = struct.pack("<I", 2**32 - 2)
    path = tmp_path / "data.npz"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=r"array x claims 4,294,967,294 bytes, more than it can hold"):
        read_recording(path)
