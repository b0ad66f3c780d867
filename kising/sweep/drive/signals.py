"""Requests to stop a sweep: the first lets work in flight finish, the second ends the sweep at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final

from kising.messages import plural

if TYPE_CHECKING:
    from kising.sweep.drive.progress import Snapshot

SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class StopRequest:
    """How urgently a stop is requested.

    level 0: not at all. 1: submit no more, keep what finishes within the grace period. 2: return at once.
    """

    def __init__(self) -> None:
        self.level = 0
        self.reason = ""
        self._interruptible = False

    def ask(self, reason: str = "") -> None:
        """Raise the level by one; level 2 interrupts the wait for results."""
        self.level = min(self.level + 1, 2)
        self.reason = self.reason or reason
        if self.level == 2 and self._interruptible:
            self._interruptible = False
            raise KeyboardInterrupt(reason)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let the second request raise KeyboardInterrupt inside the block, even in the middle of a long run.

        Nowhere else: a commit is never interrupted.
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

    Outside the main thread Python receives no signals: the request exists, but no signal raises its level.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: FrameType | None) -> None:
        stop.ask(signal.Signals(number).name)

    # None is a handler that Python did not install and cannot restore. Ignored signals stay so (nohup).
    before = {number: signal.getsignal(number) for number in SIGNALS}
    ours = [number for number, handler in before.items() if handler not in (None, signal.SIG_IGN)]
    for number in ours:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        for number in ours:
            signal.signal(number, before[number])


def announced(stop: StopRequest, say: Callable[[str], object]) -> Callable[[Snapshot], None]:
    """An observer that confirms, once, that the sweep is stopping, and says what happens until it ends."""
    told: list[str] = []

    def observe(snapshot: Snapshot) -> None:
        if stop.level and not told:
            told.append(stop.reason)
            say(
                f"stopping ({stop.reason}): waiting some seconds for {plural(snapshot.running, 'run')} in flight; "
                "Ctrl-C again stops at once"
            )

    return observe
