"""Asking a sweep to stop: once to end in good order, twice to end at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class StopRequest:
    """How urgently a stop has been asked for.

    level 0: not at all. 1: submit no more, keep what finishes within the grace time. 2: return at once.
    """

    def __init__(self) -> None:
        self.level = 0
        self.reason = ""
        self._interruptible = False

    def ask(self, reason: str = "") -> None:
        """Raise the level by one; interrupts the wait for results when that makes it 2."""
        self.level = min(self.level + 1, 2)
        self.reason = self.reason or reason
        if self.level == 2 and self._interruptible:
            self._interruptible = False
            raise KeyboardInterrupt(reason)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let the second request raise KeyboardInterrupt inside the block, be it in the middle of a long run.

        Nowhere else: what is being committed gets committed.
        """
        self._interruptible = True
        try:
            if self.level == 2:
                raise KeyboardInterrupt(self.reason)
            yield
        finally:
            self._interruptible = False


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn Ctrl-C, SIGTERM and SIGHUP into stop requests inside the block.

    Outside the main thread, where Python takes no signals, the request is there but nothing asks by itself.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: FrameType | None) -> None:
        stop.ask(signal.Signals(number).name)

    # None: a handler that Python did not install and cannot put back. Ignored: by nohup, on purpose.
    before = {number: signal.getsignal(number) for number in SIGNALS}
    ours = [number for number, handler in before.items() if handler not in (None, signal.SIG_IGN)]
    for number in ours:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        for number in ours:
            signal.signal(number, before[number])
