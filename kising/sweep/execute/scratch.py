"""Directories for Ray's sockets and logs: private, and removed soon after their driver has ended.

A directory contains a proof that kising made it: a file that names the directory by its inode, with a lock that ends
with its process. Only directories of this user with such a file, whose lock is free, are ever removed.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from kising.ownership import replaceable_in

_PREFIX: Final = "kising-"
_NAME: Final = re.compile(r"kising-[a-z0-9_]{8}")
_PROOF: Final = ".kising-scratch"
_RAY: Final = "r"
_LONGEST_PATH: Final = 40  # Ray appends 66 characters, and the path of a socket may have 107
_LARGEST_PROOF: Final = 1000  # bytes


class ScratchDirectory:
    """A new private directory with a short path; `path` is for Ray, inside it: Ray opens its own to everybody."""

    def __init__(self) -> None:
        base = _base()
        self.home = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))  # of mode 0700
        self.path = self.home / _RAY
        self.path.mkdir(mode=0o700)
        self._lock = _leave_proof(self.home)

    def close_to_others(self) -> None:
        """Take back what Ray allowed to others inside; they could not enter anyway."""
        for folder, _, files in os.walk(self.path):
            for path in (folder, *(os.path.join(folder, name) for name in files)):
                with suppress(OSError):
                    mode = os.lstat(path).st_mode
                    if not stat.S_ISLNK(mode) and mode & 0o077:
                        os.chmod(path, stat.S_IMODE(mode) & 0o700)

    def remove(self) -> None:
        """Delete the directory."""
        _remove(self.home)
        self._lock.close()


@contextmanager
def private_files() -> Iterator[None]:
    """Whatever is made inside, and by processes started inside, is closed to other users."""
    mask = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(mask)


def _base() -> Path:
    """A directory for temporary files with a short path, in which no other user can replace what is ours.

    What is abandoned there is removed. Where somebody could put a link in its place, nothing is.
    """
    most = _LONGEST_PATH - len(_PREFIX) - 8 - len(_RAY) - 1
    found = [Path(name).resolve() for name in (tempfile.gettempdir(), "/tmp")]
    short = [path for path in found if len(str(path)) <= most]
    for base in short:
        if replaceable_in(base) is None:
            _remove_abandoned(base)
            return base
    warnings.warn(
        f"other users could replace Ray's sockets in {short[0]}. Set TMPDIR to a directory that only you can write, or "
        "set the sticky bit of this one (chmod +t)",
        RuntimeWarning,
        stacklevel=3,
    )
    return short[0]


def _leave_proof(home: Path) -> IO[str]:
    """Write the proof and return it open: it appears under its name only after it is locked and complete."""
    draft = home / f"{_PROOF}.new"
    draft.touch(mode=0o600, exist_ok=False)
    lock = draft.open("r+")
    fcntl.flock(lock, fcntl.LOCK_EX)
    found = home.stat()
    json.dump({"kising": "scratch directory", "device": found.st_dev, "inode": found.st_ino}, lock)
    lock.flush()
    draft.rename(home / _PROOF)
    return lock


def _remove_abandoned(base: Path) -> None:
    """Delete the directories of processes that were killed."""
    with suppress(OSError), os.scandir(base) as entries:
        for entry in entries:
            with suppress(OSError, ValueError, RecursionError):
                if _NAME.fullmatch(entry.name) and _is_abandoned(Path(entry.path)):
                    _remove(Path(entry.path))


def _is_abandoned(home: Path) -> bool:
    """Whether kising made this directory for this user, and the process that did is gone."""
    found = home.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        return False
    descriptor = os.open(home / _PROOF, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as proof:
        kept = os.fstat(descriptor)
        if not stat.S_ISREG(kept.st_mode) or kept.st_uid != os.getuid():
            return False
        expected = {"kising": "scratch directory", "device": found.st_dev, "inode": found.st_ino}
        if json.loads(proof.read(_LARGEST_PROOF)) != expected:
            return False
        try:
            fcntl.flock(proof, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _remove(home: Path) -> None:
    """Delete a directory, its proof last: what a kill leaves of it can be removed later."""
    with suppress(OSError), os.scandir(home) as entries:
        for entry in entries:
            if entry.name != _PROOF:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    with suppress(OSError):
                        os.unlink(entry.path)
    with suppress(OSError):
        (home / _PROOF).unlink()
        home.rmdir()
