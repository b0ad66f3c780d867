"""Files that are written whole or not at all.

Every file of a sweep and every saved fit goes through `AtomicFile`: temporary name, write, flush, fsync, rename, fsync
of the directory. At any moment a name in the directory holds a whole file or no file.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from kising.errors import StoreError

TEMPORARY_PREFIX: Final = ".tmp-"
_TEMPORARY: Final = re.compile(r"\.tmp-\d+-[0-9a-f]{16}")

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


def temporary_name() -> str:
    """A new name for a file that is being written."""
    return f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"


def is_temporary(name: str) -> bool:
    """Whether a name was made by `temporary_name`: other people's files may begin in the same way."""
    return _TEMPORARY.fullmatch(name) is not None


def explain(error: OSError, doing: str, path: Path) -> StoreError:
    """Turn an operating-system error into one line: where, what could not be done, why, and the remedy."""
    cause = _CAUSES.get(error.errno or 0) or (error.strerror or str(error) or type(error).__name__)
    return StoreError(f"{path}: cannot {doing}: {cause}")


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems keep directories safe themselves and have no fsync for them.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a directory and its missing parents, durably."""
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
        self._temporary = directory / temporary_name()
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            self.handle = os.fdopen(os.open(self._temporary, flags, 0o666), "wb")
        except OSError as error:
            raise explain(error, "write here", directory) from error

    def __enter__(self) -> AtomicFile:
        return self

    def publish(self, name: str) -> Path:
        """Give the file its name, replacing any older file, and return its path."""
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
    """Write a whole file or nothing; an older file of that name stays until the new one is complete."""
    with AtomicFile(path.parent, durable=durable) as file:
        file.handle.write(data)
        return file.publish(path.name)


def append(path: Path, data: bytes, *, size: int) -> bool:
    """Add data to the end of a file of `size` bytes, durably; False, and nothing done, if it is not as it should be.

    A kill may leave a piece of the data at the end of the file. If the disk refuses, the file is cut back.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.EISDIR}:
            return False
        raise explain(error, "write to this file", path) from error
    try:
        if os.fstat(descriptor).st_size != size:
            return False
        written = 0
        while written < len(data):
            written += os.write(descriptor, data[written:])
        os.fsync(descriptor)
    except OSError as error:
        with suppress(OSError):
            os.ftruncate(descriptor, size)
        raise explain(error, "write to this file", path) from error
    finally:
        os.close(descriptor)
    return True
