"""Session counters: what is in flight and what has finished, as a snapshot or as the outcome of the session."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kising.sweep.drive.progress import BatchAge, HostLoad, Meter, Snapshot
from kising.sweep.execute.protocol import Batch, Need, Started
from kising.sweep.failures import Failure, failure_of

if TYPE_CHECKING:
    from kising.sweep.drive.forecast import Forecast
    from kising.sweep.plan import Run

_LISTED: Final = 20


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a session ended. Counts are for this session."""

    done: int  # runs
    failed: int  # runs
    unfinished: int  # runs: a stop, or fail_fast, came first
    failures: tuple[Failure, ...]  # the first few failed runs
    interrupted: bool  # a stop was requested before all runs were finished
    lost: int  # batches whose process died or was killed
    repeated: int  # runs that were submitted again
    batches: int  # submitted
    seconds: float


@dataclass
class Flight:
    """A batch in flight. Times are those of the monotonic clock."""

    batch: Batch
    need: Need
    pending: dict[str, Run]  # runs whose rows have not arrived
    started: Started | None = None
    since: float = 0.0  # when it started
    alive: float = 0.0  # last sign of life
    warming: bool = False  # a new process has not finished its first run, which loads and compiles
    cancelled: float | None = None  # when it was cancelled
    overdue: bool = False  # cancelled for taking too long


class Counts:
    """The counters of a session."""

    def __init__(
        self, total: int, done_before: int, failed_before: int, forecast: Forecast | None = None
    ) -> None:
        self.forecast = forecast
        self.total, self.done_before, self.failed_before = total, done_before, failed_before
        self.done = self.failed = self.lost = self.repeated = self.batches = 0
        self._failures: list[Failure] = []
        self._hosts: Counter[str] = Counter()
        self._rates: dict[str, Meter] = {}
        self._begin = time.monotonic()
        self._meter = Meter(self._begin)

    @property
    def unfinished(self) -> int:
        """Runs without a row."""
        return self.total - self.done - self.failed

    def add(self, row: Mapping[str, object]) -> None:
        """Count a row."""
        if row["status"] == "done":
            self.done += 1
        else:
            self.failed += 1
            if len(self._failures) < _LISTED:
                self._failures.append(failure_of(row))
        if row["host"] is not None:
            self._hosts[str(row["host"])] += 1

    def snapshot(
        self, flights: Collection[Flight], slots: int, cores: Mapping[str, float] | None = None
    ) -> Snapshot:
        """Return the current state; rates are over earlier snapshots. `cores`: of the hosts that are there."""
        now = time.monotonic()
        self._meter.add(now, self.done + self.failed)
        rate = self._meter.rate
        running = [(flight, flight.started.host) for flight in flights if flight.started is not None]
        loads = self._loads(running, cores or {}, now)
        running_runs = sum(len(flight.pending) for flight, _ in running)
        oldest = heapq.nsmallest(_LISTED, running, key=lambda pair: pair[0].since)
        return Snapshot(
            total=self.total + self.done_before + self.failed_before,
            done=self.done + self.done_before,
            failed=self.failed + self.failed_before,
            running=running_runs,
            queued=sum(len(flight.pending) for flight in flights) - running_runs,
            rate=rate,
            eta=self._eta(flights, slots, rate, now),
            workers=len(running),
            slots=slots,
            seconds=now - self._begin,
            hosts=loads,
            oldest=tuple(
                BatchAge(
                    batch_id=flight.batch.batch_id,
                    host=host,
                    runs=len(flight.pending),
                    seconds=now - flight.since,
                    run=next(iter(flight.pending.values()), None),
                )
                for flight, host in oldest
            ),
            failures=tuple(self._failures),
        )

    def _eta(self, flights: Collection[Flight], slots: int, rate: float | None, now: float) -> float | None:
        if self.forecast is not None:
            return self.forecast.seconds_left(flights, slots, self.unfinished, now)
        return self.unfinished / rate if rate else None

    def _loads(
        self, running: Sequence[tuple[Flight, str]], cores: Mapping[str, float], now: float
    ) -> dict[str, HostLoad]:
        workers, busy, runs = Counter[str](), Counter[str](), Counter[str]()
        for flight, host in running:
            workers[host] += 1
            busy[host] += flight.need.cpus
            runs[host] += len(flight.pending)
        for host in self._hosts:
            self._rates.setdefault(host, Meter(self._begin)).add(now, self._hosts[host])
        return {
            host: HostLoad(
                workers=workers[host],
                finished=self._hosts[host],
                cores=cores.get(host),
                busy=busy[host],
                runs=runs[host],
                rate=self._rates[host].rate if host in self._rates else None,
            )
            for host in sorted(workers.keys() | self._hosts.keys() | cores.keys())
        }

    def outcome(self, *, stopped: bool) -> Outcome:
        """Return how the session ended; `stopped`: a stop was requested."""
        return Outcome(
            done=self.done,
            failed=self.failed,
            unfinished=self.unfinished,
            failures=tuple(self._failures),
            interrupted=stopped and self.unfinished > 0,
            lost=self.lost,
            repeated=self.repeated,
            batches=self.batches,
            seconds=time.monotonic() - self._begin,
        )
