from __future__ import annotations

import io
import json
import os
import socket
import stat
import struct
import zipfile
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from support.brute_force import small_network

from kising import draw_couplings, fit, load_fit, simulate
from kising.errors import InputError, KisingError, StoreError
from kising.learning.fit import Fit
from kising.learning.fitted.saving import from_bytes, to_bytes
from kising.learning.scores import nominal_scales
from kising.learning.session import Session

RECORDING = small_network(7, length=300)[1]


def fitted(**options) -> Fit:
    return fit(RECORDING, 3, **{"seed": 1, "max_iterations": 5, **options})


CASES = {
    "plain": {},
    "with errors": {"errors": True},
    "sampled": {"estimator": "gibbs", "max_iterations": 1000, "errors": True},
    "with a truth": {"truth": draw_couplings(4, 3, seed=7), "start": "signs"},
    "with a prior": {"estimator": "bp", "prior": 3.0, "estep_damping": 0.5, "precision": "float32"},
    "of a child of a seed": {"seed": np.random.SeedSequence(2**80).spawn(3)[2]},
    "of several seeds": {"seed": (2**70, 5)},
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_loaded_equals_what_was_saved(tmp_path: Path, case: str) -> None:
    found = fitted(**CASES[case])
    if case == "plain":
        found = replace(found, names=("a", "é b", "c,d", '"'))
    assert (found.monte_carlo_error is not None) == (case == "sampled")
    found.save(tmp_path / "fit.npz")
    loaded = load_fit(str(tmp_path / "fit.npz"))
    assert loaded == found
    assert to_bytes(loaded) == to_bytes(found)
    assert loaded.trace.equals(found.trace)
    assert loaded.options == found.options
    assert loaded.hidden_states(RECORDING).tobytes() == found.hidden_states(RECORDING).tobytes()
    assert os.listdir(tmp_path) == ["fit.npz"]


def test_fits_that_differ_in_anything_saved_differ() -> None:
    found = fitted(errors=True)
    for other in (
        *({"seed": 2}, {"steps": 301}, {"names": tuple("abcd")}, {"training_log_likelihood": 0.0}),
        *({"standard_error": None}, {"learner": found.learner.model_copy(update={"hold": 4})}),
    ):
        assert replace(found, **other) != found


def test_numbers_that_are_not_finite_survive(tmp_path: Path) -> None:
    found = fitted(errors=True)
    errors = found.standard_error._replace(J=np.full((4, 4), np.inf))
    odd = replace(
        found, standard_error=errors, training_log_likelihood=np.nan, rmse=dict.fromkeys("JKLhb", np.inf)
    )
    odd.save(tmp_path / "fit.npz")
    assert load_fit(tmp_path / "fit.npz") == odd


def test_the_file_can_be_read_without_kising_and_without_pickle(tmp_path: Path) -> None:
    found = fitted(errors=True)
    found.save(tmp_path / "fit.npz")
    with np.load(tmp_path / "fit.npz", allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["K"], found.couplings.K)
        np.testing.assert_array_equal(archive["J_error"], found.standard_error.J)
        about = json.loads(str(archive["about"]))
    assert about["seed"] == 1
    assert about["options"]["max_iterations"] == 5
    assert {"kising", "numerics", "numpy", "python"} <= set(about)


def test_a_file_of_an_older_version_does_not_call_its_likelihood_exact() -> None:
    with np.load(io.BytesIO(to_bytes(fitted())), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    about = json.loads(str(arrays["about"]))
    assert about.pop("likelihood") == "exact"
    buffer = io.BytesIO()
    np.savez(buffer, **arrays | {"about": np.array(json.dumps(about))})
    assert "of the training data (exact or not: not recorded)" in from_bytes(buffer.getvalue()).summary()


def test_learning_goes_on_from_a_loaded_fit(tmp_path: Path) -> None:
    whole = fit(RECORDING, 3, seed=1, max_iterations=500, prior=1.0)
    whole.save(tmp_path / "whole.npz")
    loaded = load_fit(tmp_path / "whole.npz")
    assert loaded.outcome == "converged"
    assert fit(RECORDING, 3, seed=loaded.seed, state=loaded.state, **loaded.options) == whole
    fitted().save(tmp_path / "short.npz")
    short = load_fit(tmp_path / "short.npz")
    longer = fit(RECORDING, 3, seed=short.seed, start=short.couplings, max_iterations=20)
    assert longer.log_likelihood() > short.log_likelihood()


def test_a_running_state_survives_and_ends_in_the_same_bits(tmp_path: Path) -> None:
    """A fit as a killed process would leave it: its state still running."""
    whole = fit(RECORDING, 3, estimator="gibbs", seed=1, max_iterations=30)
    session = Session.of(RECORDING, 3, whole.learner, seed=1, scales=nominal_scales(4, 3))
    *_, early = islice(session.states(session.begin()), 12)
    replace(whole, state=early).save(tmp_path / "fit.npz")
    loaded = load_fit(tmp_path / "fit.npz")
    assert fit(RECORDING, 3, seed=loaded.seed, state=loaded.state, **loaded.options) == whole


def test_an_older_file_is_replaced_and_a_link_is_followed(tmp_path: Path) -> None:
    first, second = fitted(), fitted(seed=2)
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "fit.npz", tmp_path / "link.npz"
    first.save(real)
    link.symlink_to(real)
    second.save(link)
    assert link.is_symlink()
    assert load_fit(real) == load_fit(link) == second


def test_what_is_not_a_file_is_neither_overwritten_nor_read(tmp_path: Path) -> None:
    found = fitted()
    directory, fifo, device = tmp_path / "directory", tmp_path / "fifo", tmp_path / "device"
    directory.mkdir()
    os.mkfifo(fifo)
    device.symlink_to("/dev/null")
    kinds = {directory: "a directory", fifo: "a FIFO", device: "a device", Path("/dev/null"): "a device"}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        kinds[tmp_path / "socket"] = "a socket"
        for path, kind in kinds.items():
            for use in (found.save, load_fit):
                with pytest.raises(InputError, match=f"{path}: cannot .* it is {kind}, not a file"):
                    use(path)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        StoreError, match=r"none/fit.npz: cannot save a fit there: No such file or directory$"
    ):
        fitted().save(tmp_path / "none" / "fit.npz")
    with pytest.raises(
        InputError, match=r"fit.npz: cannot read a fit from there: No such file or directory$"
    ):
        load_fit(tmp_path / "fit.npz")


def test_damaged_files_are_refused_by_name(tmp_path: Path) -> None:
    """Whatever byte is flipped: the file is refused, or what it means has not changed. Every byte of arrays counts."""
    found = fitted(max_iterations=2, errors=True)
    path = tmp_path / "fit.npz"
    data = to_bytes(found)
    messages = []
    inside = _bytes_of_arrays(data)
    rng = np.random.default_rng(1)
    places = [*range(0, 300, 2), *range(len(data) - 900, len(data), 2), *rng.integers(len(data), size=500)]
    for place in places:
        broken = bytearray(data)
        broken[place] ^= int(rng.integers(1, 256))
        path.write_bytes(broken)
        try:
            assert load_fit(path) == found, place
            assert place not in inside
        except KisingError as error:
            messages.append(str(error))
    assert all(message.startswith(f"{path}: ") for message in messages)
    assert len(inside.intersection(places)) > 100


def _bytes_of_arrays(data: bytes) -> set[int]:
    """Where the contents of an archive lie; the rest are headers, of which readers ignore much."""
    found: set[int] = set()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            name, extra = struct.unpack("<HH", data[entry.header_offset + 26 : entry.header_offset + 30])
            start = entry.header_offset + 30 + name + extra
            found |= set(range(start, start + entry.compress_size))
    return found


def test_an_array_that_claims_to_be_smaller_is_refused(tmp_path: Path) -> None:
    """Of such an array NumPy reads a part, and so never gets to the checksum of the whole."""
    path = tmp_path / "fit.npz"
    data = to_bytes(fitted(errors=True))
    place = data.index(b"(4, 4)", data.index(b"J_error.npy"))
    path.write_bytes(data[:place] + b"(4, 2)" + data[place + 6 :])
    with pytest.raises(KisingError, match=r"fit.npz: .* J_error.npy does not match its checksum"):
        load_fit(path)


@pytest.mark.parametrize("length", [0, 1, 100, 5000, -1])
def test_short_files_are_refused_by_name(tmp_path: Path, length: int) -> None:
    path = tmp_path / "fit.npz"
    path.write_bytes(to_bytes(fitted())[:length])
    with pytest.raises(KisingError, match=r"fit.npz: not a saved fit, or a damaged one"):
        load_fit(path)


def rewritten(found: Fit, **changes) -> bytes:
    with np.load(io.BytesIO(to_bytes(found))) as archive:
        arrays = {**archive, **changes}
    buffer = io.BytesIO()
    np.savez(buffer, **{name: x for name, x in arrays.items() if x is not None})
    return buffer.getvalue()


def test_files_that_are_whole_but_no_fit_are_refused(tmp_path: Path) -> None:
    found = fitted()
    path = tmp_path / "fit.npz"
    about = json.loads(str(np.load(io.BytesIO(to_bytes(found)))["about"]))
    for change, message in (
        ({"about": None}, "not a saved fit, or a damaged one"),
        ({"about": np.array(json.dumps({**about, "format": 9}))}, "a fit of kising .* does not read"),
        ({"about": np.array(json.dumps({**about, "names": ["a"]}))}, "1 names for 4 visible spins"),
        ({"about": np.array(json.dumps({**about, "options": {"hold": -1}}))}, "hold=-1"),
        ({"about": np.array(json.dumps({**about, "options": {"holt": 1}}))}, "holt"),
        ({"about": np.array("[1]")}, "not a saved fit, or a damaged one"),
        ({"about": np.array({}, dtype=object)}, "allow_pickle=False"),
        ({"J": np.zeros((3, 3))}, "couplings do not fit together"),
        ({"state": np.zeros(5, np.uint8)}, "not a saved state of learning"),
    ):
        path.write_bytes(rewritten(found, **change))
        with pytest.raises(InputError, match=f"{path}: .*{message}"):
            load_fit(path)
    path.write_bytes(rewritten(found))
    assert load_fit(path) == found


def test_a_folder_stands_for_the_fit_in_it(tmp_path: Path) -> None:
    spins = simulate(draw_couplings(4, 1, seed=1), 200, seed=2).visible
    found = fit(spins, 1, seed=3, max_iterations=3)
    found.save(tmp_path / "couplings.npz")
    np.testing.assert_array_equal(load_fit(tmp_path).couplings.J, found.couplings.J)
    with pytest.raises(KisingError, match="a directory"):
        load_fit(tmp_path.parent)
