"""A sweep's directory: where things lie in it, its lock, and the small files beside the parquet.

Everything is written through `AtomicFile`: a temporary name, write, flush, fsync, rename, fsync of the
directory. At any moment a name in the directory holds a whole file or no file. Whoever writes here holds the
lock, so a temporary file found when the lock is taken belongs to a process that is gone.
"""

from __future__ import annotations

import errno
import os
import platform
import secrets
import socket
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict

from kising.errors import LockedError, StoreError
from kising.version import __version__

TEMPORARY_PREFIX: Final = ".tmp-"
PACKAGES: Final = ("numpy", "numba", "ray", "pyarrow", "pandas")

_SAFE: Final = "every committed run is safe; the same command resumes"
_CAUSES: Final = {
    errno.ENOSPC: f"no space left on the disk; free some: {_SAFE}",
    errno.EDQUOT: f"your disk quota is used up; free some: {_SAFE}",
    errno.EROFS: f"the file system is read-only; make it writable: {_SAFE}",
    errno.EACCES: "permission denied; check who owns it and its mode, or choose another with --out",
    errno.EPERM: "not permitted; check who owns it and its mode, or choose another with --out",
    errno.EIO: f"the disk reports an input/output error; check it: {_SAFE}",
    errno.EMFILE: "too many open files; raise the limit (ulimit -n)",
}


def explain(error: OSError, doing: str, path: Path) -> StoreError:
    """Turn an operating-system error into one line that names what was being done, where, and the cure."""
    cause = _CAUSES.get(error.errno or 0) or (error.strerror or str(error) or type(error).__name__)
    return StoreError(f"{path}: cannot {doing}: {cause}")


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems keep directories safe themselves and know no fsync for them.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a directory and its parents where missing, durably."""
    try:
        missing = [level for level in (path, *path.parents) if not level.exists()]
        for level in reversed(missing):
            level.mkdir(exist_ok=True)
            sync_directory(level.parent)
    except OSError as error:
        raise explain(error, "make this directory", path) from error


class AtomicFile:
    """A file being written under a temporary name; `publish` makes it appear whole.

    Leaving the block unpublished removes it; an OSError raised inside comes out as a StoreError.
    """

    def __init__(self, directory: Path, *, durable: bool = True) -> None:
        """Open a temporary file in `directory`; not `durable`: atomic, but a power cut may undo it."""
        self._directory = directory
        self._durable = durable
        self._temporary = directory / f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            self.handle = os.fdopen(os.open(self._temporary, flags, 0o666), "wb")
        except OSError as error:
            raise explain(error, "write here", directory) from error

    def __enter__(self) -> AtomicFile:
        return self

    def publish(self, name: str) -> Path:
        """Give the file its name, replacing what had it, and return its path."""
        self.handle.flush()
        if self._durable:
            os.fsync(self.handle.fileno())
        self.handle.close()
        path = self._directory / name
        os.replace(self._temporary, path)
        if self._durable:
            sync_directory(self._directory)
        return path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self.handle.close()
        with suppress(OSError):
            self._temporary.unlink()
        if isinstance(error, OSError):
            raise explain(error, "write here", self._directory) from error


def atomic_write(path: Path, data: bytes | memoryview, *, durable: bool = True) -> Path:
    """Write a whole file or nothing; what had the name before stays until the new one is complete."""
    with AtomicFile(path.parent, durable=durable) as file:
        file.handle.write(data)
        return file.publish(path.name)


class _Record(BaseModel):
    """A small JSON file; unknown fields are ignored, a missing or mistyped one makes it unreadable."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the record; None when it is missing or garbled."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValueError):
            return None

    def write(self, path: Path, *, durable: bool) -> None:
        """Replace the record on disk."""
        atomic_write(path, self.model_dump_json(indent=1).encode() + b"\n", durable=durable)


class Holder(_Record):
    """driver.json: who holds the lock."""

    pid: int
    host: str
    since: str
    command: str


class NodeProgress(_Record):
    """One host in progress.json."""

    cores: float | None  # None: it is gone
    busy: int  # cores
    runs: int  # in flight
    finished: int  # runs, in this session
    rate: float | None  # runs per second, lately


class BatchProgress(_Record):
    """Runs in flight together in progress.json."""

    host: str
    runs: int
    seconds: float  # since it started


class Progress(_Record):
    """progress.json: what `status` shows, replaced by the driver as it goes. Counts are runs of the plan."""

    state: Literal["running", "finished", "interrupted", "failed"]
    total: int
    done: int
    failed: int
    running: int
    rate: float | None  # runs per second
    eta: float | None  # seconds
    workers: int
    nodes: dict[str, NodeProgress]  # by host
    oldest: list[BatchProgress]  # what has been in flight longest, the oldest first
    pid: int
    host: str
    updated: float  # seconds since 1970


class Manifest(_Record):
    """manifest.json: what made the results. Nothing depends on it: every run writes it anew."""

    numerics: int
    python: str
    packages: dict[str, str]
    commit: str | None  # of a source checkout; ends in -dirty when files differ from it
    host: str
    cpus: int
    platform: str
    created: str
    updated: str
    command: str


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _package_versions() -> dict[str, str]:
    versions = {"kising": __version__}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _checkout_commit() -> str | None:
    """Name the commit of the source checkout that kising runs from, if it runs from one."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    with suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return answer.stdout.strip() or None
    return None


class SweepDirectory:
    """The directory of one sweep; `create` and `open` make it, the attributes are its paths."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._locked: tuple[int, int] | None = None  # the lock file that we hold: its device and number
        self.sweep_file = path / "sweep.yaml"
        self.manifest_file = path / "manifest.json"
        self.progress_file = path / "progress.json"
        self.driver_file = path / "driver.json"
        self.lock_file = path / ".lock"
        self.parts = path / "parts"
        self.quarantine = path / "quarantine"
        self.checkpoints = path / "checkpoints"
        self.report = path / "report"
        self.runs_file = path / "runs.parquet"
        self.summary_file = path / "summary.parquet"
        self.scaling_file = path / "scaling.parquet"

    @classmethod
    def create(cls, path: Path) -> SweepDirectory:
        """Make the directory, or take an existing one that is empty or a sweep's."""
        directory = cls(path)
        try:
            if path.exists() and not path.is_dir():
                raise StoreError(f"{path} is a file, results need a directory: choose another with --out")
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
        """Take the directory of a sweep that was run before."""
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

    def _owns(self, name: str) -> bool:
        paths = (value for value in vars(self).values() if isinstance(value, Path))
        own = {path.name for path in paths if path != self.path}
        return name in own or name.startswith(TEMPORARY_PREFIX)

    @contextmanager
    def lock(self, command: str = "") -> Iterator[None]:
        """Hold the directory as its one driver; LockedError names the other holder.

        The operating system frees the lock when its holder dies. Temporary files of dead drivers are removed.
        """
        lock = FileLock(self.lock_file, thread_local=False)
        try:
            with warnings.catch_warnings():
                # Where the file system knows no flock, filelock says so and uses a marker file instead.
                warnings.simplefilter("ignore")
                lock.acquire(timeout=0)
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
            holder = Holder(pid=os.getpid(), host=socket.gethostname(), since=_now(), command=command)
            holder.write(self.driver_file, durable=False)
            for path in self.temporaries():
                with suppress(OSError):
                    path.unlink()
            yield
        finally:
            # Where the lock has passed to another, the signature is the other's.
            if self._locked is not None and self._locked == _identity(self.lock_file):
                with suppress(OSError):
                    self.driver_file.unlink()
            self._locked = None
            lock.release()

    def check_locked(self) -> None:
        """Raise LockedError unless we hold the lock: whoever writes parts asks, every time.

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
        """Say who holds the lock, waiting a moment for a holder that has only just taken it to sign."""
        for _ in range(5):
            holder = self.holder()
            if holder is not None and not (holder.host == socket.gethostname() and _is_dead(holder.pid)):
                return (
                    f"{self.path} is in use: pid {holder.pid} on {holder.host} has been running it "
                    f"since {holder.since}; wait for it, or stop it first"
                )
            time.sleep(0.1)
        return f"{self.path} is in use by another process: wait for it, or stop it first"

    def holder(self) -> Holder | None:
        """Read who signed for the lock last; None when nobody did or the holder left in good order."""
        return Holder.read(self.driver_file)

    def temporaries(self) -> list[Path]:
        """List the temporary files that lie about."""
        places = (self.path, self.parts, self.quarantine, self.checkpoints, self.report)
        return sorted(file for place in places for file in place.glob(f"{TEMPORARY_PREFIX}*"))

    def write_sweep(self, text: str) -> None:
        """Write sweep.yaml, the spec as run."""
        atomic_write(self.sweep_file, text.encode())

    def write_progress(self, progress: Progress) -> None:
        """Replace progress.json; it is news, not results, so it does not wait for the disk."""
        progress.write(self.progress_file, durable=False)

    def read_progress(self) -> Progress | None:
        """Read progress.json; None when there is none or it is garbled."""
        return Progress.read(self.progress_file)

    def write_manifest(self, *, numerics: int, command: str) -> Manifest:
        """Write manifest.json for this process; a readable older one hands on its date of creation."""
        before = self.read_manifest()
        manifest = Manifest(
            numerics=numerics,
            python=platform.python_version(),
            packages=_package_versions(),
            commit=_checkout_commit(),
            host=socket.gethostname(),
            cpus=os.cpu_count() or 1,
            platform=platform.platform(),
            created=before.created if before else _now(),
            updated=_now(),
            command=command,
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


def _is_dead(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
