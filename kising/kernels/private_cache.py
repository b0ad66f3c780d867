"""Where compiled kernels are kept: a directory that only this user can write to.

Numba unpickles what it finds in its cache, and runs it. So kising uses its own cache, of mode 0700, and only where no
other user could have put something into it, or could replace the directory.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kising.cache_home import cache_homes
from kising.ownership import only_we_write, replaceable_in


def private_cache(package: Path) -> Path | None:
    """The directory for the kernels of a package, made if needed; None, with a warning, if there can be none."""
    reasons: list[str] = []
    for base in _bases():
        path = base / f"{package.name}-kernels"
        try:
            own = _make_private(path) / hashlib.sha256(str(package).encode()).hexdigest()[:16]
            own.mkdir(mode=0o700, exist_ok=True)
            # Numba takes a place of its own choice if it cannot write here.
            tempfile.TemporaryFile(dir=own).close()
            return own
        except (OSError, ValueError) as error:
            reasons.append(f"{path}: {getattr(error, 'strerror', None) or error}")
    reasons = reasons or ["there is no home directory"]
    warnings.warn(
        f"every process compiles all kernels anew, for they cannot be kept in private: {'; '.join(reasons)}. Set "
        "NUMBA_CACHE_DIR to a directory that only you can write",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def _bases() -> Iterator[Path]:
    given = os.environ.get("NUMBA_CACHE_DIR") or ""
    if os.path.isabs(given):
        yield Path(given)
    yield from cache_homes()


def _make_private(path: Path) -> Path:
    """Make a directory of mode 0700; ValueError if another user could write into it, or replace it.

    Returns its path without links, all of which was checked: a link could be turned later.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    real = path.parent.resolve() / path.name
    if (unsafe := replaceable_in(real.parent)) is not None:
        raise ValueError(f"other users can write into {unsafe}")
    with suppress(FileExistsError):
        real.mkdir(mode=0o700)
    found = os.lstat(real)
    if not stat.S_ISDIR(found.st_mode):
        raise ValueError("it is not a directory")
    if found.st_uid != os.geteuid() or not only_we_write(real):
        raise ValueError("other users can write into it: remove it")
    if stat.S_IMODE(found.st_mode) != 0o700:
        os.chmod(real, 0o700)
    return real
