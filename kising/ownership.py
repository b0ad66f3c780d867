"""Which users can write to a directory, or replace it."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path


def only_we_write(path: Path, *, sticky: bool = False) -> bool:
    """Whether only this user and root write into a directory; sticky: or add to it, but not replace what is there."""
    found = os.lstat(path)
    if found.st_uid not in (0, os.geteuid()):
        return False
    if sticky and found.st_mode & stat.S_ISVTX:
        return True
    if found.st_mode & stat.S_IWOTH:
        return False
    return not found.st_mode & stat.S_IWGRP or (_is_own_group(found.st_gid) and not _has_list(path))


def replaceable_in(path: Path) -> Path | None:
    """The directory, of this one and those above, in which other users could replace what is ours; None: in none.

    `path` has no links: somebody could turn them.
    """
    return next((level for level in (path, *path.parents) if not only_we_write(level, sticky=True)), None)


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
    with suppress(OSError, AttributeError):  # not every system can tell
        return "system.posix_acl_access" in os.listxattr(path, follow_symlinks=False)
    return False
