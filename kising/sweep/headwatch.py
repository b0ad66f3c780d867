"""Whether the head of a cluster still answers, asked now and then by a thread.

Ray itself keeps calling a head that is gone, and after a minute ends the calling process without a word.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from kising.sweep.executor import ExecutorError

_EVERY_SECONDS: Final = 2.0


class HeadWatch:
    """Asks until `close`."""

    def __init__(self, ask: Callable[[], None], *, every: float = _EVERY_SECONDS) -> None:
        """Call `ask` every so many seconds; it raises ExecutorError when it gets no answer."""
        self._ask, self._every = ask, every
        self._over = threading.Event()
        self._answered = time.monotonic()
        self.answers = True
        """whether the last question was answered"""
        self._thread = threading.Thread(target=self._watch, name="kising-head-watch", daemon=True)
        self._thread.start()

    @property
    def silence(self) -> float:
        """Seconds since the last answer; 0 while it answers."""
        return 0.0 if self.answers else time.monotonic() - self._answered

    def close(self) -> None:
        """Stop asking."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            try:
                self._ask()
            except ExecutorError:
                self.answers = False
            else:
                self._answered = time.monotonic()
                self.answers = True
