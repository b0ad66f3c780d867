from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
from pathlib import Path

import pytest
from filelock import FileLock
from support.children import line, python

from kising.errors import LockedError, StoreError
from kising.sweep.store.directory import SweepDirectory


def holder_code(path: Path, then: str = "sys.stdin.read()") -> str:
    return f"""
        import subprocess, sys
        from pathlib import Path
        from kising.sweep.store.directory import SweepDirectory
        with SweepDirectory.create(Path({str(path)!r})).lock("kising run x.yaml"):
            print("held", flush=True)
            {then}
    """


class TestCreateAndOpen:
    def test_create_makes_parents_and_takes_what_is_empty_or_ours(self, tmp_path: Path) -> None:
        path = tmp_path / "results" / "name"
        sweep = SweepDirectory.create(path)
        with pytest.raises(StoreError, match="not a sweep's directory"):
            SweepDirectory.open(path)
        with sweep.lock():
            pass
        (path / ".tmp-1-abc0000000000000").touch()
        SweepDirectory.create(path).write_sweep("name: x\n")
        (path / "notes.txt").write_text("mine")
        SweepDirectory.create(path)
        assert SweepDirectory.open(path).sweep_file.read_text() == "name: x\n"

    @pytest.mark.parametrize("name", ["thesis.tex", ".tmp-notes"])
    def test_create_refuses_somebody_elses_directory(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).touch()
        with pytest.raises(StoreError, match=rf"'{re.escape(name)}'.*--out"):
            SweepDirectory.create(tmp_path)
        assert os.listdir(tmp_path) == [name]

    @pytest.mark.parametrize("method", [SweepDirectory.create, SweepDirectory.open])
    def test_a_file_is_no_directory(self, tmp_path: Path, method: object) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StoreError, match="is a file"):
            method(tmp_path / "file")  # type: ignore[operator]

    def test_create_below_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StoreError, match="Not a directory"):
            SweepDirectory.create(tmp_path / "file" / "name")

    def test_open_says_what_is_wrong(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="does not exist"):
            SweepDirectory.open(tmp_path / "nowhere")
        with pytest.raises(StoreError, match=r"no sweep\.yaml"):
            SweepDirectory.open(tmp_path)
        (tmp_path / "parts").mkdir()
        with pytest.raises(StoreError, match=r"lost its sweep\.yaml.*keeps the runs"):
            SweepDirectory.open(tmp_path)

    def test_an_unwritable_place_is_one_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def mkdir(path: Path, exist_ok: bool) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(Path, "mkdir", mkdir)
        with pytest.raises(StoreError, match="cannot make this directory: permission denied; check"):
            SweepDirectory.create(tmp_path / "results")


class TestLock:
    def test_second_driver_is_refused_by_name(self, tmp_path: Path) -> None:
        with python(holder_code(tmp_path)) as child:
            assert line(child) == "held"
            with pytest.raises(LockedError) as caught, SweepDirectory(tmp_path).lock():
                pytest.fail("two holders")
            holder = SweepDirectory(tmp_path).holder()
            assert holder is not None
            assert (holder.pid, holder.host) == (child.pid, socket.gethostname())
            assert holder.command == "kising run x.yaml"
            for word in (f"pid {child.pid} ", socket.gethostname(), holder.since):
                assert word in str(caught.value)
            assert "\n" not in str(caught.value)

    def test_lock_dies_with_its_holder(self, tmp_path: Path) -> None:
        with python(holder_code(tmp_path)) as child:
            assert line(child) == "held"
            child.send_signal(signal.SIGKILL)
            child.wait()
            with SweepDirectory(tmp_path).lock():
                holder = SweepDirectory(tmp_path).holder()
                assert holder is not None
                assert holder.pid == os.getpid()

    def test_processes_that_the_holder_started_do_not_inherit_the_lock(self, tmp_path: Path) -> None:
        # As a Ray that outlives its killed driver.
        start = "subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL, close_fds=False)"
        then = f"print({start}.pid, flush=True); sys.stdin.read()"
        with python(holder_code(tmp_path, then)) as child:
            assert line(child) == "held"
            survivor = int(line(child))
            try:
                child.send_signal(signal.SIGKILL)
                child.wait()
                os.kill(survivor, 0)
                with SweepDirectory(tmp_path).lock():
                    pass
            finally:
                os.kill(survivor, signal.SIGKILL)

    def test_one_holder_within_a_process(self, tmp_path: Path) -> None:
        with SweepDirectory(tmp_path).lock():
            with pytest.raises(LockedError), SweepDirectory(tmp_path).lock():
                pytest.fail("two holders")
            # The refused one must not have signed off for the holder.
            assert SweepDirectory(tmp_path).holder() is not None
        assert SweepDirectory(tmp_path).holder() is None
        with SweepDirectory(tmp_path).lock():
            pass

    def test_holder_on_another_host_is_named_without_looking_for_its_pid(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with SweepDirectory(tmp_path).lock():
            text = json.loads((tmp_path / "driver.json").read_text())
            (tmp_path / "driver.json").write_text(json.dumps(text | {"host": "elsewhere", "pid": 2**22 + 1}))
            with pytest.raises(LockedError, match="on elsewhere"), SweepDirectory(tmp_path).lock():
                pass

    def test_a_dead_signature_is_not_blamed(self, tmp_path: Path) -> None:
        with SweepDirectory(tmp_path).lock():
            text = json.loads((tmp_path / "driver.json").read_text())
            (tmp_path / "driver.json").write_text(json.dumps(text | {"pid": 2**22 + 1}))
            with pytest.raises(LockedError, match="another process"), SweepDirectory(tmp_path).lock():
                pass

    def test_leftovers_of_dead_drivers_go_when_the_lock_is_taken(self, tmp_path: Path) -> None:
        sweep = SweepDirectory.create(tmp_path / "s")
        for place in (sweep.path, sweep.parts, sweep.checkpoints):
            place.mkdir(exist_ok=True)
            (place / ".tmp-1-0123000000000000").write_bytes(b"half")
            (place / "kept").touch()
            (place / ".tmp-mine").touch()
        with pytest.raises(LockedError), sweep.lock(), SweepDirectory(sweep.path).lock():
            pass
        assert sweep.temporaries() == []
        for name in ("kept", ".tmp-mine"):  # no name of ours
            assert all((place / name).exists() for place in (sweep.path, sweep.parts, sweep.checkpoints))

    def test_a_refused_driver_removes_nothing(self, tmp_path: Path) -> None:
        with SweepDirectory(tmp_path).lock():
            (tmp_path / ".tmp-1-0123000000000000").write_bytes(b"being written")
            with pytest.raises(LockedError), SweepDirectory(tmp_path).lock():
                pass
            assert (tmp_path / ".tmp-1-0123000000000000").exists()

    @pytest.mark.parametrize(
        ("error", "words"),
        [(NotImplementedError(), "no locks"), (PermissionError(errno.EACCES, "x"), "permission denied")],
    )
    def test_a_lock_that_cannot_be_is_one_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
    ) -> None:
        def acquire(lock: object, timeout: float, poll_interval: float) -> None:
            raise error

        monkeypatch.setattr(FileLock, "acquire", acquire)
        with pytest.raises(StoreError, match=words), SweepDirectory(tmp_path).lock():
            pytest.fail("no lock")

    def test_a_disk_too_full_to_sign_leaves_the_lock_free(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(source: Path, target: Path) -> None:
            raise OSError(errno.ENOSPC, "full")

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", full)
            with pytest.raises(StoreError, match="no space left"), SweepDirectory(tmp_path).lock():
                pytest.fail("unsigned")
        with SweepDirectory(tmp_path).lock():
            pass
