"""Where compiled kernels are kept: a directory that only this user can write to.

Numba unpickles what it finds in its cache, and runs it. So kising uses its own cache, of mode 0700, and only where no
other user could have put something into it, or could replace the directory.
"""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import stat
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kising.cache_home import cache_homes


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
    for parent in real.parents:
        if not _only_we_write(parent, os.lstat(parent), sticky=True):
            raise ValueError(f"other users can write into {parent}")
    with suppress(FileExistsError):
        real.mkdir(mode=0o700)
    found = os.lstat(real)
    if not stat.S_ISDIR(found.st_mode):
        raise ValueError("it is not a directory")
    if found.st_uid != os.geteuid() or not _only_we_write(real, found):
        raise ValueError("other users can write into it: remove it")
    if stat.S_IMODE(found.st_mode) != 0o700:
        os.chmod(real, 0o700)
    return real


def _only_we_write(path: Path, found: os.stat_result, *, sticky: bool = False) -> bool:
    """Whether only this user and root write into a directory; sticky: or add to it, but not replace what is there."""
    if found.st_uid not in (0, os.geteuid()):
        return False
    if sticky and found.st_mode & stat.S_ISVTX:
        return True
    if found.st_mode & stat.S_IWOTH:
        return False
    return not found.st_mode & stat.S_IWGRP or (_is_own_group(found.st_gid) and not _has_list(path))


def _is_own_group(gid: int) -> bool:
    """Whether a group has no other member: on many systems each user has a group of its own, root too."""
    with suppress(KeyError):
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
        return (
            user.pw_gid == gid
            and group.gr_name == user.pw_name
            and set(group.gr_mem) <= {user.pw_name}
            # Those whose first group it is are not listed as members.
            and all(other.pw_gid != gid or other.pw_uid == user.pw_uid for other in pwd.getpwall())
        )
    return False


def _has_list(path: Path) -> bool:
    """Whether a directory has an access control list; what it allows at most shows as the mode of the group."""
    with suppress(OSError):
        return "system.posix_acl_access" in os.listxattr(path, follow_symlinks=False)
    return False
