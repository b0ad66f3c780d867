"""One driver per mirror: a lease that its holder renews, and that expires when the holder is gone.

The lease is a file that only conditional writes change. Clocks of different machines are never compared: a lease has
expired when it did not change for `SECONDS` on the clock of the machine that waits for it.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kising.errors import LockedError
from kising.sweep.store.directory import is_dead
from kising.sweep.store.mirror.places import ConflictError, Place, UnreachableError

KEY: Final = "lease.json"
SECONDS: Final = 60.0
"""after which a lease that was not renewed has expired"""
RENEW_SECONDS: Final = 15.0
_LOOK_SECONDS: Final = 1.0


class Lease:
    """A lease on a mirror, taken with `take`."""

    def __init__(self, place: Place, *, seconds: float = SECONDS, say: Callable[[str], object]) -> None:
        self._place, self._seconds, self._say = place, seconds, say
        self._holder = secrets.token_hex(16)
        self._beat = 0
        self._tag = ""
        self._renewed = 0.0

    def take(self) -> None:
        """Take the lease, after the time that an abandoned one needs to expire; LockedError if it is in use."""
        seen: bytes | None = None
        since = time.monotonic()
        while True:
            with suppress(ConflictError):
                self._written(self._place.create(KEY, self._content()))
                return
            found = self._place.get(KEY)
            if found is None:
                continue
            data, tag = found
            if _holder(data) == self._holder:  # taken before, from a mirror that was silent since
                self._tag = tag
                return
            if data != seen:
                if seen is not None and _holder(seen) == _holder(data):
                    raise LockedError(
                        f"the mirror is in use: {_who(data)} writes to it; wait for it, or stop it first"
                    )
                if not _is_dead(data) and seen is None:
                    wait = f"waiting up to {self._seconds:g} s for its end"
                    self._say(f"the mirror was last used by {_who(data)}: {wait}")
                seen, since = data, time.monotonic()
            if _is_dead(data) or time.monotonic() - since >= self._seconds:
                with suppress(ConflictError):
                    self._written(self._place.replace(KEY, self._content(), tag))
                    return
            time.sleep(min(_LOOK_SECONDS, self._seconds / 4))

    def renew(self) -> None:
        """Renew the lease if that is due; LockedError if another driver has taken it."""
        if time.monotonic() - self._renewed < self._seconds * RENEW_SECONDS / SECONDS:
            return
        self._beat += 1
        try:
            self._written(self._place.replace(KEY, self._content(), self._tag))
        except ConflictError:
            found = self._place.get(KEY)
            # A renewal whose answer was lost is still ours.
            if found is None or _holder(found[0]) != self._holder:
                who = _who(found[0]) if found else "somebody, who removed it"
                raise LockedError(
                    f"the mirror was taken over by {who}: nothing more is written to it"
                ) from None
            self._tag = found[1]

    def release(self) -> None:
        """Give the lease back, if it is still ours."""
        with suppress(UnreachableError, ConflictError):
            found = self._place.get(KEY)
            if found is not None and _holder(found[0]) == self._holder:
                self._place.remove(KEY)

    def _content(self) -> bytes:
        about = {"holder": self._holder, "host": socket.gethostname(), "pid": os.getpid(), "beat": self._beat}
        return json.dumps(about).encode()

    def _written(self, tag: str) -> None:
        self._tag, self._renewed = tag, time.monotonic()


def _read(data: bytes) -> dict[str, object]:
    with suppress(ValueError, RecursionError):
        found = json.loads(data[:10_000])
        if isinstance(found, dict):
            return found
    return {}


def _holder(data: bytes) -> object:
    return _read(data).get("holder")


def _who(data: bytes) -> str:
    found = _read(data)
    return f"pid {found.get('pid')} on {str(found.get('host'))[:100]}"


def _is_dead(data: bytes) -> bool:
    """Whether the holder was a process of this machine that is gone."""
    found = _read(data)
    pid = found.get("pid")
    if found.get("host") != socket.gethostname() or not isinstance(pid, int) or not 0 < pid < 2**31:
        return False
    return is_dead(pid)
