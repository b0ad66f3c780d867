"""The executor that runs batches one at a time in the calling process: for debugging and for tests.

A debugger, a profiler or a print statement works as in any script. The price: a run that kills its process kills
the sweep, and a run that never returns cannot be killed (its own timeout still applies).
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Iterator, Mapping

from kising.sweep.execute.batch_loop import run_batch
from kising.sweep.execute.protocol import (
    Batch,
    Checkpoint,
    Event,
    Finished,
    Lost,
    Need,
    Rows,
    Started,
    Work,
)


class InProcessExecutor:
    """Runs batches in the order of submission, up to the next event at every call of `events`."""

    name = "in process"

    def __init__(self, work: Work) -> None:
        self._work = work
        self._queue: deque[Batch] = deque()
        self._current: tuple[int, Iterator[Started | Rows | Checkpoint]] | None = None
        self._cancelled: list[Event] = []

    def slots(self, need: Need) -> int:
        """Return 1: there is one process."""
        return 1

    def potential_slots(self, need: Need) -> int:
        """Return 1: there will be no second process."""
        return 1

    def cores(self) -> Mapping[str, float]:
        """Return the cpus of this machine: a run may use several."""
        return {socket.gethostname(): os.cpu_count() or 1}

    def refuse(self, need: Need) -> str | None:
        """Refuse more cpus than this machine has."""
        cpus = os.cpu_count() or 1
        if need.cpus > cpus:
            return f"a run asks for {need.cpus} cpus, this machine has {cpus}: lower resources.cpus"
        return None

    def submit(self, batch: Batch) -> None:
        """Queue a batch."""
        self._queue.append(batch)

    def events(self, timeout: float) -> list[Event]:
        """Run until the next event, however long that takes."""
        if self._cancelled:
            events, self._cancelled = self._cancelled, []
            return events
        if self._current is None:
            if not self._queue:
                return []
            batch = self._queue.popleft()
            self._current = batch.batch_id, run_batch(batch, self._work)
        batch_id, stream = self._current
        event = next(stream, None)
        if event is None:
            self._current = None
            return [Finished(batch_id)]
        return [event]

    def cancel(self, batch_id: int) -> None:
        """Drop a batch between two chunks of its rows."""
        queued = len(self._queue)
        self._queue = deque(batch for batch in self._queue if batch.batch_id != batch_id)
        if self._current is not None and self._current[0] == batch_id:
            self._current = None
        elif queued == len(self._queue):
            return
        self._cancelled.append(Lost(batch_id, "cancelled", "cancelled"))

    def close(self) -> None:
        """Drop everything."""
        self._queue.clear()
        self._current = None
