"""Queries the head of a cluster regularly, from a separate thread, because it may stop answering.

A dead head does not answer: the query waits, and after a minute Ray ends the process that asked, without a
message. So the main thread of the driver never queries it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

_EVERY_SECONDS: Final = 1.0
State = TypeVar("State")


class HeadMonitor(Generic[State]):
    """Queries until `close`; the first query is made before the constructor returns."""

    def __init__(self, query: Callable[[], State], *, every: float = _EVERY_SECONDS) -> None:
        """Call `query` every `every` seconds. An error is no answer, but an error of the first call is raised."""
        self._query, self._every = query, every
        self.latest = query()
        """the last answer"""
        self._answered = time.monotonic()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kising-head-monitor", daemon=True)
        self._thread.start()

    @property
    def silence(self) -> float:
        """Seconds since the last answer."""
        return time.monotonic() - self._answered

    def close(self) -> None:
        """Stop; do not wait long for a query that gets no answer."""
        self._closed.set()
        self._thread.join(_EVERY_SECONDS)

    def _run(self) -> None:
        while not self._closed.wait(self._every):
            with suppress(Exception):
                self.latest = self._query()
                self._answered = time.monotonic()
