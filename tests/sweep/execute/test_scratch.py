"""Scratch directories: none of another user or program is removed, and no other user can enter."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kising.sweep.execute.scratch import ScratchDirectory, private_files

PROOF = ".kising-scratch"


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for temporary files with a short name."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        monkeypatch.setattr(tempfile, "tempdir", path)
        yield Path(path)


def abandoned(base: Path) -> Path:
    """The directory of a process that was killed."""
    code = (
        "import os, signal, tempfile\n"
        f"tempfile.tempdir = {str(base)!r}\n"
        "from kising.sweep.execute.scratch import ScratchDirectory\n"
        "scratch = ScratchDirectory()\n"
        "(scratch.path / 'session').mkdir()\n"
        "(scratch.path / 'session' / 'log').touch()\n"
        "print(scratch.home, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return Path(answer.stdout.strip())


def next_driver() -> None:
    """What every driver does first and last."""
    ScratchDirectory().remove()


def test_the_directory_of_a_killed_process_is_removed(base: Path) -> None:
    dead = abandoned(base)
    assert (dead / "r" / "session" / "log").exists()
    next_driver()
    assert list(base.iterdir()) == []


def test_a_place_where_others_could_replace_it_is_not_used(base: Path) -> None:
    """Nor is anything removed there: another user could put a link in its place."""
    dead = abandoned(base)
    base.chmod(0o777)
    scratch = ScratchDirectory()
    scratch.remove()
    assert scratch.home.parent == Path("/tmp")
    assert dead.exists()
    base.chmod(0o1777)
    next_driver()
    assert not dead.exists()


def test_a_warning_if_there_is_no_other_place(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base.chmod(0o777)
    monkeypatch.setattr("kising.ownership.only_we_write", lambda path, sticky: path == Path("/"))
    with pytest.warns(RuntimeWarning, match="could replace Ray's sockets"):
        scratch = ScratchDirectory()
    scratch.remove()
    assert scratch.home.parent == base


def test_the_directory_of_a_living_process_is_not(base: Path) -> None:
    alive = ScratchDirectory()
    next_driver()
    assert list(base.iterdir()) == [alive.home]
    with (alive.home / PROOF).open("r+") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    alive.remove()
    assert list(base.iterdir()) == []


def somebody_elses(base: Path) -> Path:
    folder = base / "kising-mydata01"
    folder.mkdir(mode=0o700)
    (folder / "thesis.tex").write_text("precious")
    return folder


def with_lock(base: Path) -> Path:
    folder = somebody_elses(base)
    (folder / "lock").touch()
    return folder


def with_empty_proof(base: Path) -> Path:
    folder = somebody_elses(base)
    (folder / PROOF).touch()
    return folder


def with_a_copied_proof(base: Path) -> Path:
    folder, dead = somebody_elses(base), abandoned(base)
    shutil.copy(dead / PROOF, folder / PROOF)
    return folder


def with_a_linked_proof(base: Path) -> Path:
    folder = somebody_elses(base)
    found = folder.stat()
    proof = {"kising": "scratch directory", "device": found.st_dev, "inode": found.st_ino}
    (base / "proof").write_text(json.dumps(proof))
    (folder / PROOF).symlink_to(base / "proof")
    return folder


def with_a_pipe_as_proof(base: Path) -> Path:
    folder = somebody_elses(base)
    os.mkfifo(folder / PROOF)
    return folder


def open_to_others(base: Path) -> Path:
    dead = abandoned(base)
    (dead / "thesis.tex").write_text("precious")
    dead.chmod(0o755)
    return dead


def renamed(base: Path) -> Path:
    dead = abandoned(base)
    (dead / "thesis.tex").write_text("precious")
    return dead.rename(base / "kising-mydata")


def linked(base: Path) -> Path:
    folder = base / "elsewhere"
    abandoned(base).rename(folder)
    (folder / "thesis.tex").write_text("precious")
    (base / "kising-mydata01").symlink_to(folder)
    return base / "kising-mydata01"


def nested_json(base: Path) -> Path:
    folder = somebody_elses(base)
    (folder / PROOF).write_text("[" * 900)
    return folder


@pytest.mark.parametrize(
    "make",
    [
        somebody_elses,
        with_lock,
        with_empty_proof,
        with_a_copied_proof,
        with_a_linked_proof,
        with_a_pipe_as_proof,
        open_to_others,
        renamed,
        linked,
        nested_json,
    ],
)
def test_what_does_not_prove_that_it_is_abandoned_stays(base: Path, make: Callable[[Path], Path]) -> None:
    folder = make(base)
    next_driver()
    assert (folder / "thesis.tex").read_text() == "precious"


@pytest.mark.skipif(os.getuid() != 0, reason="gives a directory to another user")
def test_the_directory_of_another_user_stays(base: Path) -> None:
    dead = abandoned(base)
    os.chown(dead, 12345, 12345)
    next_driver()
    assert dead.exists()


def test_a_link_inside_leads_nowhere(base: Path) -> None:
    dead = abandoned(base)
    precious = base / "precious"
    precious.mkdir()
    (precious / "thesis.tex").touch()
    (dead / "r" / "link").symlink_to(precious)
    (dead / "link").symlink_to(precious)
    next_driver()
    assert not dead.exists()
    assert (precious / "thesis.tex").exists()


def test_a_removal_that_was_cut_short_is_finished_later(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = abandoned(base)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *arguments, **options: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            next_driver()
    assert (dead / PROOF).exists()
    next_driver()
    assert not dead.exists()


def test_names_of_sockets_stay_short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    scratch = ScratchDirectory()
    assert len(str(scratch.path)) <= 40
    scratch.remove()


def test_nobody_else_can_enter(base: Path) -> None:
    mask = os.umask(0)
    try:
        scratch = ScratchDirectory()
        assert stat.S_IMODE(scratch.home.stat().st_mode) == 0o700
        (scratch.path / "logs").mkdir(mode=0o777)
        (scratch.path / "logs" / "raylet.out").touch(mode=0o666)
        os.chmod(scratch.path, 0o777)  # as Ray does
        scratch.close_to_others()
        assert open_below(scratch.home) == []
        scratch.remove()
    finally:
        os.umask(mask)


def test_what_is_made_privately_is_private(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        with private_files():
            (tmp_path / "one").touch()
            subprocess.run(["touch", str(tmp_path / "two")], check=True)
        (tmp_path / "three").touch()
    finally:
        os.umask(mask)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("one", "two", "three")]
    assert modes == [0o600, 0o600, 0o644]


def open_below(home: Path) -> list[Path]:
    """What others could use in a directory, if they could enter it."""
    return [
        path for path in [home, *home.rglob("*")] if not path.is_symlink() and path.lstat().st_mode & 0o077
    ]
