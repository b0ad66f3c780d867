from __future__ import annotations

import errno
import json
import os
import random
import signal
import socket
import stat
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock
from support.children import python

from kising.errors import LockedError, StoreError
from kising.sweep.store import directory as module
from kising.sweep.store.directory import (
    AtomicFile,
    BatchProgress,
    Manifest,
    NodeProgress,
    Progress,
    SweepDirectory,
    atomic_write,
)

STEPS = ("open", "file fsync", "replace", "directory fsync")


class Killed(BaseException):
    """Stands for a kill: nothing that handles errors may handle it."""


def fail_at(step: str, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make one step of an atomic write raise."""
    real_fsync, real_open = os.fsync, os.open

    def fsync(descriptor: int) -> None:
        kind = "directory fsync" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file fsync"
        if kind == step:
            raise error
        real_fsync(descriptor)

    def replace(source: Path, target: Path) -> None:
        raise error

    def open_(path: Path, flags: int, mode: int = 0o777) -> int:
        if step == "open" and flags & os.O_CREAT:
            raise error
        return real_open(path, flags, mode)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "open", open_)
    if step == "replace":
        monkeypatch.setattr(os, "replace", replace)


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def holder_code(path: Path, then: str = "sys.stdin.read()") -> str:
    return f"""
        import subprocess, sys
        from pathlib import Path
        from kising.sweep.store.directory import SweepDirectory
        with SweepDirectory.create(Path({str(path)!r})).lock("kising run x.yaml"):
            print("held", flush=True)
            {then}
    """


class TestAtomicWrite:
    def test_writes_whole_files_and_replaces_them(self, tmp_path: Path) -> None:
        for data in (b"one", b"", b"two" * 100_000):
            assert atomic_write(tmp_path / "file", data).read_bytes() == data
            assert os.listdir(tmp_path) == ["file"]

    def test_steps_come_in_the_order_that_survives_a_power_cut(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        steps: list[tuple[str, int]] = []
        real_fsync, real_replace = os.fsync, os.replace

        def fsync(descriptor: int) -> None:
            found = os.fstat(descriptor)
            steps.append(("directory", -1) if stat.S_ISDIR(found.st_mode) else ("file", found.st_size))
            real_fsync(descriptor)

        def replace(source: Path, target: Path) -> None:
            steps.append(("replace", Path(source).stat().st_size))
            assert Path(source).parent == Path(target).parent
            real_replace(source, target)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "replace", replace)
        atomic_write(tmp_path / "file", b"12345")
        assert steps == [("file", 5), ("replace", 5), ("directory", -1)]
        steps.clear()
        atomic_write(tmp_path / "file", b"123", durable=False)
        assert steps == [("replace", 3)]

    @pytest.mark.parametrize("step", STEPS)
    @pytest.mark.parametrize(
        ("code", "words"),
        [("ENOSPC", "no space left"), ("EROFS", "read-only"), ("EACCES", "permission denied")],
    )
    def test_a_refusing_disk_is_one_line_and_leaves_old_or_new(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, code: str, words: str
    ) -> None:
        atomic_write(tmp_path / "file", b"old")
        number = getattr(errno, code)
        with monkeypatch.context() as patch:
            fail_at(step, OSError(number, os.strerror(number)), patch)
            with pytest.raises(StoreError) as caught:
                atomic_write(tmp_path / "file", b"new")
        assert words in str(caught.value)
        assert str(tmp_path) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert (tmp_path / "file").read_bytes() == (b"new" if step == "directory fsync" else b"old")
        assert os.listdir(tmp_path) == ["file"]

    @pytest.mark.parametrize("step", STEPS)
    def test_an_interrupt_passes_through(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        atomic_write(tmp_path / "file", b"old")
        with monkeypatch.context() as patch:
            fail_at(step, Killed(), patch)
            with pytest.raises(Killed):
                atomic_write(tmp_path / "file", b"new")
        assert (tmp_path / "file").read_bytes() == (b"new" if step == "directory fsync" else b"old")

    def test_a_write_that_the_system_really_refuses(self, tmp_path: Path) -> None:
        code = f"""
            import resource, signal
            from pathlib import Path
            from kising.errors import StoreError
            from kising.sweep.store.directory import atomic_write
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            try:
                atomic_write(Path({str(tmp_path / "file")!r}), b"x" * 5000)
            except StoreError as error:
                print(error)
        """
        with python(code) as child:
            assert "File too large" in line(child)
        assert os.listdir(tmp_path) == []

    def test_a_file_system_without_directory_fsync_is_accepted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fail_at("directory fsync", OSError(errno.EINVAL, "invalid"), monkeypatch)
        assert atomic_write(tmp_path / "file", b"data").read_bytes() == b"data"

    def test_files_are_readable_as_the_umask_says(self, tmp_path: Path) -> None:
        before = os.umask(0o027)
        try:
            path = atomic_write(tmp_path / "file", b"data")
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640

    def test_leaving_unpublished_leaves_nothing(self, tmp_path: Path) -> None:
        with AtomicFile(tmp_path) as file:
            file.handle.write(b"half")
        assert os.listdir(tmp_path) == []


class TestCreateAndOpen:
    def test_create_makes_parents_and_takes_what_is_empty_or_ours(self, tmp_path: Path) -> None:
        path = tmp_path / "results" / "name"
        sweep = SweepDirectory.create(path)
        with pytest.raises(StoreError, match="not a sweep's directory"):
            SweepDirectory.open(path)
        with sweep.lock():
            pass
        (path / ".tmp-1-abc").touch()
        SweepDirectory.create(path).write_sweep("name: x\n")
        (path / "notes.txt").write_text("mine")
        SweepDirectory.create(path)
        assert SweepDirectory.open(path).sweep_file.read_text() == "name: x\n"

    def test_create_refuses_somebody_elses_directory(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").touch()
        with pytest.raises(StoreError, match=r"'thesis\.tex'.*--out"):
            SweepDirectory.create(tmp_path)
        assert os.listdir(tmp_path) == ["thesis.tex"]

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
            (place / ".tmp-1-0123").write_bytes(b"half")
            (place / "kept").touch()
        with pytest.raises(LockedError), sweep.lock(), SweepDirectory(sweep.path).lock():
            pass
        assert sweep.temporaries() == []
        assert all((place / "kept").exists() for place in (sweep.path, sweep.parts, sweep.checkpoints))

    def test_a_refused_driver_removes_nothing(self, tmp_path: Path) -> None:
        with SweepDirectory(tmp_path).lock():
            (tmp_path / ".tmp-1-0123").write_bytes(b"being written")
            with pytest.raises(LockedError), SweepDirectory(tmp_path).lock():
                pass
            assert (tmp_path / ".tmp-1-0123").exists()

    @pytest.mark.parametrize(
        ("error", "words"),
        [(NotImplementedError(), "no locks"), (PermissionError(errno.EACCES, "x"), "permission denied")],
    )
    def test_a_lock_that_cannot_be_is_one_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
    ) -> None:
        def acquire(lock: object, timeout: float) -> None:
            raise error

        monkeypatch.setattr(FileLock, "acquire", acquire)
        with pytest.raises(StoreError, match=words), SweepDirectory(tmp_path).lock():
            pytest.fail("no lock")

    def test_a_disk_too_full_to_sign_leaves_the_lock_free(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            fail_at("replace", OSError(errno.ENOSPC, "full"), patch)
            with pytest.raises(StoreError, match="no space left"), SweepDirectory(tmp_path).lock():
                pytest.fail("unsigned")
        with SweepDirectory(tmp_path).lock():
            pass


PROGRESS = Progress(
    state="running",
    total=10,
    done=3,
    failed=1,
    running=2,
    rate=0.5,
    eta=None,
    workers=2,
    nodes={"here": NodeProgress(cores=4.0, busy=2, runs=2, finished=3, rate=0.5)},
    oldest=[BatchProgress(host="here", runs=2, seconds=3.5)],
    pid=1,
    host="here",
    updated=1.5,
)


class TestRecords:
    def test_progress_round_trip(self, tmp_path: Path) -> None:
        sweep = SweepDirectory(tmp_path)
        assert sweep.read_progress() is None
        sweep.write_progress(PROGRESS)
        assert sweep.read_progress() == PROGRESS

    def test_fields_of_a_newer_kising_are_ignored_and_missing_ones_are_not(self, tmp_path: Path) -> None:
        sweep = SweepDirectory(tmp_path)
        sweep.write_progress(PROGRESS)
        found = json.loads(sweep.progress_file.read_text())
        sweep.progress_file.write_text(json.dumps(found | {"mood": "fine"}))
        assert sweep.read_progress() == PROGRESS
        changes: list[object] = [found | {"done": "3"}, found | {"state": "odd"}, {"done": 3}, [], None]
        for changed in changes:
            sweep.progress_file.write_text(json.dumps(changed))
            assert sweep.read_progress() is None

    def test_a_garbled_manifest_is_no_manifest_and_never_an_error(self, tmp_path: Path) -> None:
        sweep = SweepDirectory(tmp_path)
        sweep.write_manifest(numerics=1, command="kising run x")
        good = sweep.manifest_file.read_bytes()
        generator = random.Random(5)
        for _ in range(200):
            data = bytearray(good)
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
            sweep.manifest_file.write_bytes(bytes(data[: generator.randrange(len(data) - 1)]))
            assert sweep.read_manifest() is None
            sweep.manifest_file.write_bytes(bytes(data))
            assert sweep.read_manifest() is None or isinstance(sweep.read_manifest(), Manifest)

    def test_manifest_says_what_ran_and_keeps_its_creation(self, tmp_path: Path) -> None:
        sweep = SweepDirectory(tmp_path)
        first = sweep.write_manifest(numerics=7, command="kising run x")
        assert first.numerics == 7
        assert {"kising", "numpy", "pyarrow"} <= set(first.packages)
        assert sweep.read_manifest() == first
        text = json.loads(sweep.manifest_file.read_text())
        sweep.manifest_file.write_text(json.dumps(text | {"created": "long ago"}))
        assert sweep.write_manifest(numerics=8, command="again").created == "long ago"
        sweep.manifest_file.write_bytes(b"\x00\xff")
        assert sweep.write_manifest(numerics=8, command="again").created != "long ago"

    def test_commit_of_a_checkout(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        package = tmp_path / "kising" / "sweep" / "store"
        package.mkdir(parents=True)
        monkeypatch.setattr(module, "__file__", str(package / "directory.py"))
        assert module._checkout_commit() is None
        git = [
            "git",
            "-C",
            str(tmp_path),
            "-c",
            "user.name=n",
            "-c",
            "user.email=e@example.org",
            "-c",
            "commit.gpgsign=false",
        ]
        (tmp_path / "file").write_text("1")
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "add", "file"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", "m"], check=True)
        head = subprocess.run(
            [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
        ).stdout.strip()
        assert module._checkout_commit() == head
        (tmp_path / "file").write_text("2")
        assert module._checkout_commit() == f"{head}-dirty"
        # Installed somewhere below a checkout of something else, kising has no commit.
        monkeypatch.setattr(
            module, "__file__", str(tmp_path / "venv" / "lib" / "kising" / "sweep" / "store" / "directory.py")
        )
        (tmp_path / "venv" / "lib").mkdir(parents=True)
        assert module._checkout_commit() is None
