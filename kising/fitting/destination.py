"""Where the results of `kising fit` go: a new name, or what `kising fit` wrote there before. Nothing else is replaced.

A folder of results holds a marker file, by which the command recognises it. The folder appears together with its
marker, so a kill at any moment leaves either nothing or a folder that the next command accepts.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from kising.atomic import (
    TEMPORARY_PREFIX,
    atomic_write,
    explain,
    is_temporary,
    make_directory,
    sync_directory,
    temporary_name,
)
from kising.errors import InputError, LockedError

MARKER: Final = ".kising-fit"
#: The first words of the marker; what follows is for people.
MARK: Final = b"kising fit"
_MARKER_TEXT: Final = MARK + b" wrote this folder and may replace the files in it.\n"
_LOCK: Final = ".lock"
_ELSEWHERE: Final = "choose another name with --out"


def default_folder(recording: Path) -> Path:
    """The folder for a recording: its name, with .fit in the place of its ending."""
    return recording.parent / f"{recording.stem}.fit"


def is_file_name(out: Path) -> bool:
    """Whether the results are to be one .npz file, not a folder."""
    return out.suffix == ".npz" and not out.is_dir()


def check_file(out: Path, recording: Path) -> Path:
    """The path that a single file of results is written to: a new one, or a regular file, but not the recording. A
    link is followed.
    """
    target = Path(os.path.realpath(out))
    kind = _kind(target, out)
    if kind not in (None, "a file"):
        raise InputError(f"{out}: this is {kind}, not a file; {_ELSEWHERE}")
    if kind is not None and os.path.exists(recording) and target.samefile(recording):
        raise InputError(f"{out}: this is the recording, which the results would replace; {_ELSEWHERE}")
    return target


def check_folder(out: Path) -> Path:
    """The path of a folder of results: a new one, an empty one, or one that `kising fit` wrote. A link is followed."""
    target = Path(os.path.realpath(out))
    kind = _kind(target, out)
    if kind not in (None, "a folder"):
        raise InputError(f"{out}: this is {kind}, and results are a folder; {_ELSEWHERE}")
    if kind == "a folder" and not _is_ours(target, out):
        raise InputError(
            f"{out}: this folder was not written by `kising fit`, which replaces files; {_ELSEWHERE}"
        )
    return target


def make_folder(target: Path) -> None:
    """Make a folder with its marker in it, both at once. One that exists keeps its files."""
    if (target / MARKER).exists():
        return
    make_directory(target.parent)
    new = target.parent / temporary_name()
    try:
        new.mkdir()
        # Durable before the folder has its name: after a power loss, a folder without its marker would be refused.
        atomic_write(new / MARKER, _MARKER_TEXT)
        os.rename(new, target)  # in the place of an empty folder, too
        sync_directory(target.parent)
    except OSError as error:
        raise explain(error, "make this folder", target) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


@contextmanager
def hold_folder(target: Path) -> Iterator[None]:
    """Let one command at a time write into a folder."""
    lock = FileLock(target / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise LockedError(
            f"{target}: another `kising fit` is writing here; wait for it, or {_ELSEWHERE}"
        ) from None
    except OSError as error:
        raise explain(error, "lock this folder", target) from error
    try:
        # Only the holder writes: temporary files that are here were left by a killed command.
        for left in target.glob(f"{TEMPORARY_PREFIX}*"):
            if is_temporary(left.name):
                with suppress(OSError):
                    left.unlink()
        yield
    finally:
        lock.release()


def write_results(target: Path, files: dict[str, bytes], closing: str) -> None:
    """Write the files of a fit, each whole or not at all. `closing` is removed first and written last: where it is,
    all files belong together.
    """
    with suppress(FileNotFoundError):
        (target / closing).unlink()
        sync_directory(target)  # or a power loss might bring it back beside the files of another fit
    for name in [*(name for name in files if name != closing), closing]:
        atomic_write(target / name, files[name])


def _kind(target: Path, shown: Path) -> str | None:
    """What is at a path, None where there is nothing."""
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{str(shown)[:200]}: {error.strerror}; {_ELSEWHERE}") from error
    kinds = {
        stat.S_IFREG: "a file",
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFLNK: "a link to itself",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


def _is_ours(folder: Path, shown: Path) -> bool:
    try:
        if not any(folder.iterdir()):
            return True
        marker = folder / MARKER
        if not stat.S_ISREG(marker.lstat().st_mode):
            return False
        with marker.open("rb") as file:
            return file.read(len(MARK)) == MARK
    except FileNotFoundError:
        return False
    except OSError as error:
        raise InputError(f"{shown}: {error.strerror}; {_ELSEWHERE}") from error
