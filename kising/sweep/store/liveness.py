"""Whether a driver is at work in a directory, as seen from outside: by its lock, and by its heartbeat.

The lock decides if it can be seen: the operating system frees it when its holder dies, so it does not matter if
the process id is used by another process by now. Some network file systems do not show locks to other hosts. There the
heartbeat decides: a number in progress.json that grows about once a second. A reader watches it with its own
monotonic clock, so wrong clocks on either host do no harm. Only if it stands still meanwhile does the date
of the last update count, because file systems may show changes late.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from pathlib import Path
from typing import Final, Literal

from kising.sweep.store.directory import SweepDirectory

Liveness = Literal["running", "silent", "ended"]
"""silent: no heartbeat was seen, but the last one may be too recent to tell"""

OVER: Final = frozenset({"finished", "interrupted", "failed"})
WATCH_SECONDS: Final = 3.0
"""For how long a heartbeat is watched: three beats."""
SILENCE_SECONDS: Final = 60.0
"""The oldest update after which a silent driver on another host may still be at work."""


def liveness(directory: SweepDirectory, *, watch_seconds: float = WATCH_SECONDS) -> Liveness:
    """Tell whether a driver is at work. Takes no time, unless the driver may be on another host."""
    held = is_locked(directory.lock_file)
    if held:
        return "running"
    progress = directory.read_progress()
    if progress is None or progress.state in OVER:
        return "ended"
    if held is False and progress.host == socket.gethostname():
        return "ended"
    end = time.monotonic() + watch_seconds
    while time.monotonic() < end:
        time.sleep(0.1)
        now = directory.read_progress()
        if now is not None and now.beat != progress.beat:
            return "ended" if now.state in OVER else "running"
    # A date in the future is not believed either.
    return "silent" if abs(time.time() - progress.updated) < SILENCE_SECONDS else "ended"


def is_locked(path: Path) -> bool | None:
    """Tell whether a process holds the lock at `path`; None where the file system cannot tell.

    Takes a shared lock for a moment, which a driver that starts just then waits for (`SweepDirectory.lock`).
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for its other end
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return True if error.errno in (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK) else None
    finally:
        os.close(handle)
    return False
