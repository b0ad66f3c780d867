"""Looking at something that may stop answering, now and then, from a thread of its own.

Asked after its death, the head of a Ray cluster does not answer: the question waits, and after a minute Ray
ends the process that asked, without a word. So the driver never asks itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

_EVERY_SECONDS: Final = 1.0
Seen = TypeVar("Seen")


class Watch(Generic[Seen]):
    """Looks until `close`; the first time before it returns."""

    def __init__(self, look: Callable[[], Seen], *, every: float = _EVERY_SECONDS) -> None:
        """Call `look` every so many seconds. What it raises counts as no answer; the first time it is raised."""
        self._look, self._every = look, every
        self.latest = look()
        """what was seen last"""
        self._answered = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="kising-watch", daemon=True)
        self._thread.start()

    @property
    def silence(self) -> float:
        """Seconds since the last answer."""
        return time.monotonic() - self._answered

    def close(self) -> None:
        """Stop looking; do not wait long for a look that gets no answer."""
        self._over.set()
        self._thread.join(_EVERY_SECONDS)

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            with suppress(Exception):
                self.latest = self._look()
                self._answered = time.monotonic()
