from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from support.children import line, python

from kising.errors import StoreError
from kising.sweep.store.atomic import AtomicFile, atomic_write

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
            from kising.sweep.store.atomic import atomic_write
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
