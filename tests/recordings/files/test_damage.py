"""Random bytes and damaged files with every ending: the result is a recording or a RecordingError, without delay."""

from __future__ import annotations

import io
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from support.spin_data import random_spins

from kising.errors import RecordingError
from kising.recordings import Segments, read_recording

X = random_spins(60, 5)
FRAME = pd.DataFrame(X, columns=list("abcde"))
SPIKES = b"unit,time\n" + b"".join(b"%d,%f\n" % (k % 4, k / 100) for k in range(100))
#: The first reading loads a library; damage takes a few milliseconds.
PATIENCE = 1.0


def saved(save, *args: object, **options: object) -> bytes:
    buffer = io.BytesIO()
    save(buffer, *args, **options)
    return buffer.getvalue()


CELLS = np.empty(2, object)
CELLS[:] = [X[:30], X[30:]]
VALID = [
    (".npy", saved(np.save, X)),
    (".npz", saved(np.savez, X, covariates=np.ones((60, 1)))),
    (".npz", saved(np.savez_compressed, X[:30], X[30:])),
    (".csv", FRAME.to_csv().encode()),
    (".txt", FRAME.to_csv(index=False, header=False, sep=" ").encode()),
    (".tsv", FRAME.to_csv(sep="\t").encode()),
    (".csv", SPIKES),
    (".mat", saved(scipy.io.savemat, {"x": X})),
    (".mat", saved(scipy.io.savemat, {"x": CELLS, "title": "a"}, do_compression=True)),
    (".mat", saved(scipy.io.savemat, {"x": scipy.sparse.csc_matrix((X > 0).astype(float))})),
    (".parquet", saved(lambda file: FRAME.to_parquet(file))),
]


def check(path: Path, content: bytes, bin: str | None) -> None:  # noqa: A002
    path.write_bytes(content)
    start = time.perf_counter()
    message = f"{path}: fine"
    try:
        assert isinstance(read_recording(path, bin=bin), Segments)
    except RecordingError as error:
        message = str(error)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert time.perf_counter() - start < PATIENCE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage")
    for ending, content in VALID:  # load libraries, and see that these are valid
        path = folder / f"valid{ending}"
        path.write_bytes(content)
        assert read_recording(path, bin="20ms" if content is SPIKES else None).n_steps >= 50
    return folder


BINS = st.sampled_from([None, "20ms"])


@settings(max_examples=200)
@given(
    st.sampled_from([".npy", ".npz", ".csv", ".tsv", ".txt", ".mat", ".parquet"]),
    st.binary(max_size=300),
    BINS,
)
def test_random_bytes(folder: Path, ending: str, content: bytes, width: str | None) -> None:
    check(folder / f"random{ending}", content, width)


@settings(max_examples=200)
@given(st.sampled_from([".csv", ".tsv", ".txt"]), st.text("01-+.,;\t \n#\"'aeéNn\r\ufeff", max_size=80), BINS)
def test_random_text(folder: Path, ending: str, text: str, width: str | None) -> None:
    check(folder / f"random{ending}", text.encode(), width)


@settings(max_examples=600)
@given(st.sampled_from(VALID), st.data(), BINS)
def test_damaged_files(
    folder: Path, valid: tuple[str, bytes], data: st.DataObject, width: str | None
) -> None:
    ending, content = valid
    damaged = bytearray(content)
    places = st.integers(0, len(content) - 1)
    match data.draw(st.sampled_from(["bytes", "cut", "repeat", "word"])):
        case "bytes":
            for _ in range(data.draw(st.integers(1, 6))):
                damaged[data.draw(places)] = data.draw(st.integers(0, 255))
        case "cut":
            del damaged[data.draw(places) :]
        case "repeat":
            a, b = sorted((data.draw(places), data.draw(places)))
            k = data.draw(places)
            damaged[k:k] = damaged[a:b]
        case "word":  # sizes are words of four bytes
            k = data.draw(places) // 4 * 4
            damaged[k : k + 4] = data.draw(st.sampled_from([b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\0\0\0\0"]))
    check(folder / f"damaged{ending}", bytes(damaged), width)
