from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from support.disk_recorder import Recorder, write_tree
from support.power_loss import states_after_loss

from kising import draw_couplings, simulate
from kising.atomic import atomic_write
from kising.cli import main
from kising.errors import LockedError
from kising.fitting.destination import MARKER, check_folder, hold_folder, make_folder, write_results

pytestmark = pytest.mark.usefixtures("plain_figures")


@pytest.fixture
def recording(tmp_path) -> Path:
    path = tmp_path / "data.npy"
    np.save(path, simulate(draw_couplings(4, 1, seed=1), 300, seed=2).visible)
    return path


def run(recording: Path, out: Path) -> Result:
    return CliRunner().invoke(
        main, ["fit", str(recording), "--hidden", "0", "--seed", "1", "--out", str(out)]
    )


def regular_file(path: Path) -> None:
    path.write_text("mine")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def foreign_folder(path: Path) -> None:
    path.mkdir()
    (path / "index.html").write_text("mine")


def folder_with_a_forged_marker(path: Path) -> None:
    foreign_folder(path)
    (path / MARKER).write_text("mine too")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/null")


FOREIGN = [regular_file, fifo, foreign_folder, folder_with_a_forged_marker, link_to_itself, link_to_a_device]


def contents(folder: Path) -> dict[str, object]:
    return {
        str(path.relative_to(folder)): (
            stat.S_IFMT(path.lstat().st_mode),
            path.read_bytes() if path.is_file() else None,
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("make", FOREIGN)
def test_what_fit_did_not_write_is_refused_as_a_folder(make, recording, tmp_path) -> None:
    out = tmp_path / "out"
    make(out)
    before = contents(tmp_path)
    result = run(recording, out)
    assert result.exit_code == 2
    assert "choose another name with --out" in result.output
    assert len(result.output.splitlines()) == 1
    assert contents(tmp_path) == before


@pytest.mark.parametrize("make", [fifo, link_to_itself, link_to_a_device])
def test_what_is_no_file_is_refused_as_a_file(make, recording, tmp_path) -> None:
    out = tmp_path / "out.npz"
    make(out)
    before = contents(tmp_path)
    result = run(recording, out)
    assert result.exit_code == 2
    assert "choose another name with --out" in result.output
    assert contents(tmp_path) == before


def test_a_regular_file_is_replaced_by_a_file(recording, tmp_path) -> None:
    out = tmp_path / "out.npz"
    regular_file(out)
    assert run(recording, out).exit_code == 0
    with np.load(out) as found:
        assert found["J"].shape == (4, 4)


@pytest.mark.parametrize("link", [False, True])
def test_the_recording_is_not_replaced(link, recording, tmp_path) -> None:
    data = tmp_path / "data.npz"
    np.savez(data, spins=np.load(recording))
    out = tmp_path / "link.npz" if link else data
    if link:
        out.symlink_to(data)
    before = contents(tmp_path)
    result = run(data, out)
    assert result.exit_code == 2
    assert "this is the recording" in result.output
    assert contents(tmp_path) == before


def test_only_temporary_files_of_our_own_are_removed(recording, tmp_path) -> None:
    out = tmp_path / "out"
    make_folder(out)
    (out / ".tmp-mine").write_text("mine")
    (out / ".tmp-1-0123456789abcdef").write_text("of a killed command")
    with hold_folder(out):
        assert {path.name for path in out.glob(".tmp-*")} == {".tmp-mine"}


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: None])
def test_new_and_empty_folders_and_those_that_fit_wrote_are_taken(make, recording, tmp_path) -> None:
    out = tmp_path / "a" / "out"
    out.parent.mkdir()
    make(out)
    assert run(recording, out).exit_code == 0
    page = out / "index.html"
    page.write_text("older")
    assert run(recording, out).exit_code == 0
    assert page.read_text() != "older"


def test_missing_parents_are_made(recording, tmp_path) -> None:
    assert run(recording, tmp_path / "a" / "b" / "c").exit_code == 0


def test_a_name_that_is_too_long_is_refused_in_a_line(recording, tmp_path) -> None:
    result = run(recording, tmp_path / ("x" * 300))
    assert result.exit_code == 2
    assert "too long" in result.output
    assert len(result.output.splitlines()) == 1


def test_one_command_at_a_time(recording, tmp_path) -> None:
    out = tmp_path / "out"
    make_folder(out)
    with hold_folder(out):
        result = run(recording, out)
        assert result.exit_code == 1
        assert "another `kising fit` is writing here" in result.output
        with pytest.raises(LockedError), hold_folder(out):
            pass
    assert run(recording, out).exit_code == 0


def test_fit_json_is_there_only_while_all_files_belong_together(tmp_path) -> None:
    out = tmp_path / "out"
    make_folder(out)
    write_results(out, {"fit.json": b"1", "a": b"1", "b": b"1"}, "fit.json")
    (out / "b").unlink()
    (out / "b").mkdir()  # writing b will fail
    with pytest.raises(Exception, match="write"):
        write_results(out, {"fit.json": b"2", "a": b"2", "b": b"2"}, "fit.json")
    assert not (out / "fit.json").exists()
    assert check_folder(out) == out


def test_after_a_power_loss_fit_json_is_not_beside_files_of_another_fit(tmp_path) -> None:
    out = tmp_path / "out"
    make_folder(out)
    write_results(out, {"fit.json": b"1", "a": b"1", "b": b"1"}, "fit.json")
    with Recorder(out) as recorder:
        write_results(out, {"fit.json": b"2", "a": b"2", "b": b"2"}, "fit.json")
    found = {
        tuple(state.get(name) for name in ("fit.json", "a", "b")) for state in states_after_loss(recorder)
    }
    assert {b"1", b"2", None} == {closing for closing, *_ in found}
    assert all(closing is None or {closing} == set(others) for closing, *others in found)


def test_after_a_power_loss_a_folder_is_taken_again(tmp_path) -> None:
    """Whatever the disk kept of a new folder, the same command goes on."""
    place = tmp_path / "place"
    place.mkdir()
    with Recorder(place) as recorder:
        make_folder(place / "out")
        atomic_write(place / "out" / "checkpoint", b"1")
    for number, state in enumerate(states_after_loss(recorder)):
        root = tmp_path / str(number)
        write_tree(root, state)
        assert check_folder(root / "out") == root / "out"
