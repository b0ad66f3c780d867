"""A sweep's directory: where its files are, and its lock.

Only the holder of the lock writes here, so a temporary file that is found when the lock is taken belongs to a
process that is gone.
"""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from kising.errors import LockedError, StoreError
from kising.sweep.store.atomic import TEMPORARY_PREFIX, atomic_write, explain, is_temporary, make_directory
from kising.sweep.store.records import LockHolder, Manifest, Progress, now

PROBE_SECONDS = 0.2


class SweepDirectory:
    """The directory of one sweep, made by `create` or `open`; the attributes are its paths."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._locked: tuple[int, int] | None = None  # device and inode of the lock file that we hold
        self.sweep_file = path / "sweep.yaml"
        self.manifest_file = path / "manifest.json"
        self.progress_file = path / "progress.json"
        self.tables_file = path / "tables.json"
        self.driver_file = path / "driver.json"
        self.lock_file = path / ".lock"
        self.parts = path / "parts"
        self.parts_log = path / "parts.log"
        self.quarantine = path / "quarantine"
        self.checkpoints = path / "checkpoints"
        self.report = path / "report"
        self.runs_file = path / "runs.parquet"
        self.summary_file = path / "summary.parquet"
        self.scaling_file = path / "scaling.parquet"
        self.published_file = path / "PUBLISHED"

    @classmethod
    def create(cls, path: Path) -> SweepDirectory:
        """Make the directory, or use an existing one that is empty or belongs to a sweep."""
        directory = cls(path)
        try:
            if path.exists() and not path.is_dir():
                raise StoreError(f"{path} is a file, results need a directory: choose another with --out")
            if directory.is_published:
                raise StoreError(
                    f"{path} holds published tables, which a run would replace: choose another with --out"
                )
            make_directory(path)
            # A driver killed before it wrote sweep.yaml, or a user who deleted it, leaves only our own names.
            foreign = [name for name in os.listdir(path) if not directory._owns(name)]
            if foreign and not directory.sweep_file.exists():
                raise StoreError(
                    f"{path} is not a sweep's directory and not empty (it holds {min(foreign)!r}): "
                    "choose another with --out"
                )
        except OSError as error:
            raise explain(error, "read this directory", path) from error
        return directory

    @classmethod
    def open(cls, path: Path) -> SweepDirectory:
        """Open the directory of a sweep that was run before."""
        directory = cls(path)
        wanted = "give the directory of a sweep, such as results/<name>"
        try:
            if not path.exists():
                raise StoreError(f"{path} does not exist: {wanted}")
            if not path.is_dir():
                raise StoreError(f"{path} is a file: {wanted}")
            if directory.sweep_file.is_file():
                return directory
            if directory.parts.is_dir():
                cure = f"`kising run FILE --out {path}` writes it again and keeps the runs"
                raise StoreError(f"{path} has lost its sweep.yaml: {cure}")
        except OSError as error:
            raise explain(error, "read this directory", path) from error
        raise StoreError(f"{path} is not a sweep's directory (it has no sweep.yaml): {wanted}")

    @property
    def is_published(self) -> bool:
        """Whether the tables here are all there is of the sweep: they are read as they are, and there are no parts."""
        return self.published_file.is_file()

    def _owns(self, name: str) -> bool:
        paths = (value for value in vars(self).values() if isinstance(value, Path))
        own = {path.name for path in paths if path != self.path}
        return name in own or is_temporary(name)

    @contextmanager
    def lock(self, command: str = "") -> Iterator[None]:
        """Hold the lock: one driver per directory. LockedError names the other holder.

        The operating system frees the lock when its holder dies. Temporary files of dead drivers are removed.
        """
        lock = FileLock(self.lock_file, thread_local=False)
        try:
            with warnings.catch_warnings():
                # Where the file system has no flock, filelock warns and uses a marker file instead.
                warnings.simplefilter("ignore")
                # `kising status` holds a shared lock for a moment: is_locked.
                lock.acquire(timeout=PROBE_SECONDS, poll_interval=PROBE_SECONDS / 10)
        except Timeout:
            raise LockedError(self._refusal()) from None
        except OSError as error:
            raise explain(error, "lock this directory", self.path) from error
        except NotImplementedError as error:
            raise StoreError(
                f"{self.path}: its file system has no locks: choose another with --out"
            ) from error
        try:
            self._locked = _identity(self.lock_file)
            holder = LockHolder(pid=os.getpid(), host=socket.gethostname(), since=now(), command=command)
            holder.write(self.driver_file, durable=False)
            for path in self.temporaries():
                with suppress(OSError):
                    path.unlink()
            yield
        finally:
            # If the lock has passed to another driver, driver.json is that driver's.
            if self._locked is not None and self._locked == _identity(self.lock_file):
                with suppress(OSError):
                    self.driver_file.unlink()
            self._locked = None
            lock.release()

    def check_locked(self) -> None:
        """Raise LockedError unless we hold the lock; called before every write of a part.

        A lock file that somebody has removed locks nobody out: another driver may be at work by now.
        """
        if self._locked is None:
            raise LockedError(f"{self.path}: nothing is written here without its lock")
        if self._locked != _identity(self.lock_file):
            raise LockedError(
                f"{self.path}: its lock file ({self.lock_file.name}) was removed or replaced while this ran, "
                "and another driver may be at work: nothing more is written; run the same command again"
            )

    def _refusal(self) -> str:
        """Name the holder of the lock, after a moment in which a new holder can write driver.json."""
        for _ in range(5):
            holder = self.holder()
            if holder is not None and not (holder.host == socket.gethostname() and is_dead(holder.pid)):
                return (
                    f"{self.path} is in use: pid {holder.pid} on {holder.host} has been running it "
                    f"since {holder.since}; wait for it, or stop it first"
                )
            time.sleep(0.1)
        return f"{self.path} is in use by another process: wait for it, or stop it first"

    def holder(self) -> LockHolder | None:
        """Read driver.json; None when there is none, as after an orderly exit."""
        return LockHolder.read(self.driver_file)

    def temporaries(self) -> list[Path]:
        """List the temporary files in the directory."""
        places = (self.path, self.parts, self.quarantine, self.checkpoints, self.report)
        found = (file for place in places for file in place.glob(f"{TEMPORARY_PREFIX}*"))
        return sorted(file for file in found if is_temporary(file.name))

    def write_sweep(self, text: str) -> None:
        """Write sweep.yaml, the spec as run."""
        atomic_write(self.sweep_file, text.encode())

    def write_progress(self, progress: Progress) -> None:
        """Replace progress.json, without waiting for the disk: losing it loses no result."""
        progress.write(self.progress_file, durable=False)

    def read_progress(self) -> Progress | None:
        """Read progress.json; None when there is none or it is garbled."""
        return Progress.read(self.progress_file)

    def write_manifest(self, *, numerics: int, command: str) -> Manifest:
        """Write manifest.json for this process; the date of creation is that of the first one."""
        before = self.read_manifest()
        manifest = Manifest.of_this_process(
            numerics=numerics, command=command, created=before.created if before else None
        )
        manifest.write(self.manifest_file, durable=True)
        return manifest

    def read_manifest(self) -> Manifest | None:
        """Read manifest.json; None when there is none or it is garbled."""
        return Manifest.read(self.manifest_file)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_dead(pid: int) -> bool:
    """Whether no process of this machine has this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
