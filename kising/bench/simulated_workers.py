"""Simulated workers that only sleep: an executor that shows the load of a large cluster on its driver.

Batches take as long as real ones and send the same events at the same times. The driver is charged the measured
price of each event on Ray. The clock is that of a driver with a core of its own: its cpu time, plus the time it
sleeps, which passes at once.
"""

from __future__ import annotations

import heapq
import random
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kising.sweep.execute.protocol import Batch, Event, Finished, Lost, Need, Rows, Started

if TYPE_CHECKING:
    from kising.sweep.plan import Run

CORES: Final = 64
"""Cores per host."""

_FRACTIONS: Final = (
    "rmse_J",
    "rmse_K",
    "rmse_L",
    "baseline_rmse",
    "bp_converged",
    "corrected",
    "log_likelihood",
)
_MEASURED: Final = {
    **dict.fromkeys(_FRACTIONS, 0.123456789),
    **dict.fromkeys(("converged_J", "converged_K", "converged_L"), True),
    "outcome": "converged",
    "iterations": 34,
}


def sample_row(run: Run, seconds: float, host: str) -> dict[str, object]:
    """A row like that of a learning run."""
    return {
        "run_id": run.run_id,
        "point_id": run.point.point_id,
        **run.point.values(),
        "realization": run.realization,
        **_MEASURED,
        "status": "done",
        "seconds": seconds,
        "host": host,
    }


def instant(
    run: Run, threads: int, timeout: float | None, state: bytes | None
) -> Generator[Any, None, Mapping[str, object]]:
    """A work that is done at once; workers of a real Ray run it to measure the cost of Ray."""
    yield from ()
    return sample_row(run, 0.0, "")


class Clock:
    """The clock of a process with a core of its own: it advances while the process works or sleeps."""

    def __init__(self) -> None:
        self._slept = self._charged = 0.0

    def cpu(self) -> float:
        """Seconds that the process has worked, plus those it was charged."""
        return time.process_time() + self._charged

    def now(self) -> float:
        """Seconds of work and of sleep."""
        return self.cpu() + self._slept

    def sleep(self, seconds: float) -> None:
        """Advance the clock by a sleep, without sleeping."""
        self._slept += seconds

    def charge(self, seconds: float) -> None:
        """Advance the clock by cpu time, without working."""
        self._charged += seconds


@contextmanager
def own_core() -> Iterator[Clock]:
    """Replace the clock and the sleep of this process."""
    monotonic, sleep, clock = time.monotonic, time.sleep, Clock()
    time.monotonic, time.sleep = clock.now, clock.sleep  # type: ignore[assignment]
    try:
        yield clock
    finally:
        time.monotonic, time.sleep = monotonic, sleep


@dataclass(frozen=True)
class Prices:
    """What Ray costs the driver, in seconds of cpu time."""

    batch: float  # per batch, from its submission to its end
    message: float  # per message of rows
    row: float  # per row in a message


@dataclass
class _Flight:
    batch: Batch
    worker: tuple[str, int]  # host and number
    due: list[float]  # when each of its runs ends
    sent: int = 0  # rows


class SimulatedWorkers:
    """`workers` workers on hosts of 64 cores; a run takes `seconds` seconds, up to half more or less."""

    name = "simulated workers"

    def __init__(self, workers: int, seconds: float, prices: Prices, clock: Clock) -> None:
        self._seconds, self._prices, self._clock = seconds, prices, clock
        self._free = [(f"host{number // CORES:03}", number) for number in range(workers)]
        self._workers = workers
        self._random = random.Random(2015)
        self._queue: deque[Batch] = deque()
        self._flights: dict[int, _Flight] = {}
        self._next: list[tuple[float, int]] = []  # when a batch sends its next event
        self._events: list[Event] = []
        self.batches = self.messages = self.rows = 0

    def slots(self, need: Need) -> int:
        """Return the number of workers."""
        return self._workers

    def potential_slots(self, need: Need) -> int:
        """Return the number of workers."""
        return self._workers

    def cores(self) -> Mapping[str, float]:
        """Return the hosts."""
        return {f"host{number:03}": CORES for number in range(-(-self._workers // CORES))}

    def refuse(self, need: Need) -> str | None:
        """Refuse nothing."""
        return None

    def submit(self, batch: Batch) -> None:
        """Take a batch."""
        began = time.thread_time()
        self._queue.append(batch)
        self._begin()
        self._charge(self._prices.batch, began)

    def events(self, timeout: float) -> list[Event]:
        """Sleep until something has happened."""
        end = time.monotonic() + timeout
        while not self._events and (now := time.monotonic()) < end:
            wake = min(end, self._next[0][0]) if self._next else end
            time.sleep(max(wake - now, 0.0))
            began = time.thread_time()
            self._send()
            messages = sum(isinstance(event, Rows) for event in self._events)
            rows = sum(len(event.rows) for event in self._events if isinstance(event, Rows))
            self.messages, self.rows = self.messages + messages, self.rows + rows
            self._charge(messages * self._prices.message + rows * self._prices.row, began)
        events, self._events = self._events, []
        return events

    def cancel(self, batch_id: int) -> None:
        """Drop a batch."""
        flight = self._flights.pop(batch_id, None)
        if flight is not None:
            self._free.append(flight.worker)
        self._events.append(Lost(batch_id, "cancelled", "cancelled"))

    def close(self) -> None:
        """Drop everything."""
        self._flights.clear()

    def _begin(self) -> None:
        """Give waiting batches to free workers."""
        while self._free and self._queue:
            batch, worker, now = self._queue.popleft(), self._free.pop(), time.monotonic()
            due = []
            for _ in batch.runs:
                now += self._seconds * (0.5 + self._random.random())
                due.append(now)
            self._flights[batch.batch_id] = _Flight(batch, worker, due)
            self._events.append(Started(batch.batch_id, *worker))
            self.batches += 1
            self._schedule(batch.batch_id)

    def _schedule(self, batch_id: int) -> None:
        """Schedule the next rows of a batch, as `run_batch` sends them."""
        flight = self._flights[batch_id]
        since = flight.due[flight.sent - 1] if flight.sent else flight.due[0] - self._seconds
        last = len(flight.due) - 1
        number = flight.sent
        while number < last and flight.due[number] - since < flight.batch.chunk_seconds:
            number += 1
        heapq.heappush(self._next, (flight.due[number], batch_id))

    def _send(self) -> None:
        """Send the rows that are due."""
        now = time.monotonic()
        while self._next and self._next[0][0] <= now:
            due, batch_id = heapq.heappop(self._next)
            flight = self._flights.get(batch_id)
            if flight is None:
                continue
            until = next((n for n, end in enumerate(flight.due) if end > due), len(flight.due))
            before = flight.due[flight.sent - 1] if flight.sent else due - self._seconds
            rows = []
            for number in range(flight.sent, until):
                rows.append(
                    sample_row(flight.batch.runs[number], flight.due[number] - before, flight.worker[0])
                )
                before = flight.due[number]
            flight.sent = until
            self._events.append(Rows(batch_id, tuple(rows)))
            if until == len(flight.due):
                del self._flights[batch_id]
                self._free.append(flight.worker)
                self._events.append(Finished(batch_id))
                self._begin()
            else:
                self._schedule(batch_id)

    def _charge(self, price: float, began: float) -> None:
        """Charge the price of Ray, less the cpu time spent here instead."""
        self._clock.charge(price - (time.thread_time() - began))
