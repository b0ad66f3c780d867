"""The loop that takes a sweep from its runs to committed rows, with any executor.

It keeps a bounded number of batches in flight, commits rows as they arrive, and retries lost batches. A run is
repeated a bounded number of times and then fails with the reason. No run is ever dropped: it ends as a committed
row, or is still to do when the same command runs again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from kising.errors import ExecutorError
from kising.sweep.drive.batching import Cutter
from kising.sweep.drive.counts import Counts, Flight, Outcome
from kising.sweep.drive.progress import Snapshot
from kising.sweep.drive.retries import Retries
from kising.sweep.drive.signals import StopRequest
from kising.sweep.execute.protocol import (
    CHUNK_SECONDS,
    Batch,
    Checkpoint,
    Event,
    Executor,
    Finished,
    Lost,
    Need,
    Rows,
    Saved,
    Started,
)

if TYPE_CHECKING:
    from kising.sweep.drive.forecast import Forecast
    from kising.sweep.plan import Run

Commit = Callable[[Sequence[dict[str, object]]], object]
Observer = Callable[[Snapshot], object]


class CheckpointStore(Protocol):
    """Keeps the states of unfinished runs. Nothing here raises: a lost state costs time and nothing else."""

    def get(self, run_id: str) -> Saved | None:
        """Return the state that a run can resume from, if there is one."""

    def put(self, run_id: str, saved: Saved | None) -> None:
        """Replace the state of a run; None: the new state was too large to send."""


_WAIT_SECONDS: Final = 0.5
_CANCEL_SECONDS: Final = 5.0  # that the sweep waits for the end of cancelled batches
_UNREACHABLE_SECONDS: Final = 60.0  # after which a cancelled batch that has not ended is given up
_CHECKPOINT_SECONDS_PER_SLOT: Final = 0.1  # so that the driver writes at most ten checkpoints per second
_CHUNK_SECONDS_PER_SLOT: Final = 3e-3  # so that it reads about three hundred messages of rows per second
_MAX_FAILED_STARTS: Final = 10  # in a row: then the workers are broken, not the runs


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How a sweep is conducted."""

    fail_fast: bool = False  # end the sweep at the first failed run
    batch_seconds: float = 2.0  # the duration of a batch of short runs
    scale_up_seconds: float = 300.0  # of work that justify one more process of a growing cluster
    prefetch: float = 0.25  # batches waiting for a process, as a fraction of the processes; at least two
    commit_seconds: float = 2.0  # the longest time that rows wait for their commit,
    commit_rows: int = 5_000  # and the most that wait
    max_attempts: int = 3  # how often the process of a run may die before the run fails
    max_node_losses: int = 20  # how often the host of a run may be lost before the run fails
    timeout_slack: float = 0.1  # a run that did not stop by itself is killed this fraction of its timeout
    timeout_grace: float = 10.0  # plus this many seconds after the timeout
    grace_seconds: float = 10.0  # for work in flight to finish after a stop request
    report_seconds: float = 1.0  # between two snapshots
    checkpoint_seconds: float | None = 60.0  # between two checkpoints of a run; None: no checkpoints


def conduct(
    runs: Iterable[Run],
    executor: Executor,
    commit: Commit,
    *,
    cost: Callable[[Run], float],
    need: Callable[[Run], Need],
    total: int,
    done_before: int = 0,
    failed_before: int = 0,
    stamp: Mapping[str, object] | None = None,
    policy: Policy | None = None,
    stop: StopRequest | None = None,
    observers: Sequence[Observer] = (),
    checkpoint_store: CheckpointStore | None = None,
    forecast: Forecast | None = None,
) -> Outcome:
    """Execute runs and commit their rows; return when all are finished or after a stop request.

    runs: `total` of them, taken as needed and never held all at once.
    commit: makes rows durable; an error ends the sweep, and work in flight is cancelled.
    cost, need: estimated seconds of a run, and what it needs.
    done_before, failed_before: runs finished in earlier sessions, for the snapshots only.
    stamp: columns added to rows that do not have them (versions).
    observers: get a snapshot every `policy.report_seconds`, and one at the end.
    checkpoint_store: keeps checkpoints; without it every interrupted run starts over.
    forecast: how long the runs will take; without it the time left is that of the recent rate.

    Raises ExecutorError when the executor can never run a run, or breaks down. Rows that have arrived are
    committed in every case.
    """
    policy = policy or Policy()
    cutter = Cutter(runs, cost, need, total=total, target_seconds=policy.batch_seconds)
    counts = Counts(total, done_before, failed_before, forecast)
    stop = stop or StopRequest()
    return _Conductor(
        executor, commit, cutter, counts, stamp or {}, policy, stop, observers, checkpoint_store
    ).run()


class _Conductor:
    """One session."""

    def __init__(
        self,
        executor: Executor,
        commit: Commit,
        cutter: Cutter,
        counts: Counts,
        stamp: Mapping[str, object],
        policy: Policy,
        stop: StopRequest,
        observers: Sequence[Observer],
        checkpoint_store: CheckpointStore | None,
    ) -> None:
        self._executor, self._commit, self._cutter, self._counts = executor, commit, cutter, counts
        self._stamp, self._policy, self._stop, self._observers = stamp, policy, stop, observers
        self._checkpoint_store = checkpoint_store
        self._retries = Retries(max_attempts=policy.max_attempts, max_node_losses=policy.max_node_losses)
        self._flights: dict[int, Flight] = {}
        self._to_repeat: deque[tuple[tuple[Run, ...], Need]] = deque()
        self._accepted: set[Need] = set()
        self._rows: list[dict[str, object]] = []
        self._processes: set[tuple[str, int]] = set()
        self._slots = self._failed_starts = 0
        self._committed = self._reported = self._checked = time.monotonic()
        self._stop_at: float | None = None  # when work in flight is cancelled, once stopping

    def run(self) -> Outcome:
        """Step until nothing is left to do; commit what has arrived, however that ends."""
        try:
            while self._step():
                pass
        except KeyboardInterrupt:
            if self._stop.level < 2:  # not from the stop request: for the caller to handle
                raise
        except ExecutorError:
            # A signal to a whole process group or job ends the workers too: a stop, not a breakdown.
            if not self._stop.level:
                raise
        finally:
            try:
                self._commit_rows()
            finally:
                self._cancel(self._flights.values())
        self._report()
        return self._counts.outcome(stopped=self._stop.level > 0)

    def _step(self) -> bool:
        now = time.monotonic()
        if self._stop_at is None:
            if self._stop.level or (self._policy.fail_fast and self._counts.failed):
                self._stop_at = now + self._policy.grace_seconds
                self._cancel(flight for flight in self._flights.values() if flight.started is None)
            else:
                self._fill()
        elif now >= self._stop_at:
            self._cancel(self._flights.values())
            if now >= self._stop_at + _CANCEL_SECONDS:
                return False
        if not self._flights:
            return False
        with self._stop.interruptible():
            events = self._executor.events(_WAIT_SECONDS)
        for event in events:
            self._take(event)
        self._kill_overdue()
        due = time.monotonic() - self._committed >= self._policy.commit_seconds
        if due or len(self._rows) >= self._policy.commit_rows:
            self._commit_rows()
        if time.monotonic() - self._reported >= self._policy.report_seconds:
            self._report()
        return True

    def _fill(self) -> None:
        """Submit batches while the window has room."""
        while not self._stop.level:
            need = self._to_repeat[0][1] if self._to_repeat else self._cutter.next_need
            if need is None:
                return
            if need not in self._accepted:
                refusal = self._executor.refuse(need)
                if refusal is not None:
                    raise ExecutorError(refusal)
                self._accepted.add(need)
            self._slots = self._executor.slots(need)
            # A growing cluster starts hosts for waiting batches, so submit as many as deserve new hosts.
            worthwhile = self._cutter.worthwhile_slots(self._counts.unfinished, self._policy.scale_up_seconds)
            slots = max(self._slots, min(self._executor.potential_slots(need), worthwhile))
            if len(self._flights) >= slots + max(2, int(self._policy.prefetch * slots)):
                return
            cut = self._to_repeat.popleft() if self._to_repeat else self._cutter.cut(slots)
            if cut is not None:
                self._submit(*cut)

    def _submit(self, runs: tuple[Run, ...], need: Need) -> None:
        interval, saved = None, {}
        if self._checkpoint_store is not None:
            saved = {
                run.run_id: found
                for run in runs
                if (found := self._checkpoint_store.get(run.run_id)) is not None
            }
            if self._policy.checkpoint_seconds is not None:
                interval = max(self._policy.checkpoint_seconds, _CHECKPOINT_SECONDS_PER_SLOT * self._slots)
        batch = Batch(
            self._counts.batches,
            runs,
            need.cpus,
            need.memory,
            need.timeout,
            chunk_seconds=max(CHUNK_SECONDS, _CHUNK_SECONDS_PER_SLOT * self._slots),
            checkpoint=interval,
            saved=saved,
        )
        self._counts.batches += 1
        # The states are large and not kept: a retry reads its state from the store.
        stateless = replace(batch, saved={})
        self._flights[batch.batch_id] = Flight(stateless, need, {run.run_id: run for run in runs})
        self._executor.submit(batch)

    def _take(self, event: Event) -> None:
        flight = self._flights.get(event.batch_id)
        if flight is None:  # given up before
            return
        if not isinstance(event, Checkpoint):  # saving its state does not extend a run's timeout
            flight.alive = time.monotonic()
        match event:
            case Started():
                flight.started, flight.since, self._failed_starts = event, flight.alive, 0
                flight.warming = (event.host, event.pid) not in self._processes
                self._processes.add((event.host, event.pid))
            case Rows():
                self._receive(flight, event.rows)
            case Checkpoint():
                if self._checkpoint_store is not None and event.run_id in flight.pending:
                    self._checkpoint_store.put(event.run_id, event.saved)
                    # Losses count from here: a run that makes progress is not what kills its workers.
                    self._retries.forget(event.run_id)
            case Finished():
                del self._flights[event.batch_id]
                if flight.pending:
                    self._lose(flight, Lost(event.batch_id, "it ended without all of its rows", "crashed"))
            case Lost():
                del self._flights[event.batch_id]
                self._lose(flight, event)

    def _receive(self, flight: Flight, rows: Iterable[dict[str, object]]) -> None:
        for row in rows:
            run = flight.pending.pop(str(row["run_id"]), None)
            if run is None:
                continue
            seconds = row["seconds"]
            known = seconds if row["status"] == "done" and isinstance(seconds, float) else None
            if known is not None and not flight.warming:
                self._cutter.measured(run, known)
            if self._counts.forecast is not None:
                self._counts.forecast.finished(run, known, _process(flight))
            flight.warming = False
            self._keep(row)

    def _keep(self, row: dict[str, object]) -> None:
        for name, value in self._stamp.items():
            row.setdefault(name, value)
        self._rows.append(row)
        self._counts.add(row)
        self._retries.forget(str(row["run_id"]))

    def _lose(self, flight: Flight, lost: Lost) -> None:
        self._counts.lost += 1
        if self._stop_at is not None:  # the next session repeats it
            return
        if flight.started is None and lost.kind == "crashed":
            self._failed_starts += 1
            if self._failed_starts >= _MAX_FAILED_STARTS:
                raise ExecutorError(
                    f"{_MAX_FAILED_STARTS} workers in a row died before they began: {lost.reason}"
                )
        left = list(flight.pending.values())
        again, failed = self._retries.after(flight.batch, left, lost, overdue=flight.overdue)
        self._to_repeat.extend((runs, flight.need) for runs in again)
        self._counts.repeated += sum(len(runs) for runs in again)
        for row in failed:
            if self._counts.forecast is not None:
                run = flight.pending[str(row["run_id"])]
                self._counts.forecast.finished(run, None, None)
            self._keep(row)

    def _kill_overdue(self) -> None:
        """Kill batches whose run should have ended by now; the clock starts at the last sign of life."""
        now = time.monotonic()
        if now - self._checked < _WAIT_SECONDS:
            return
        self._checked = now
        for flight in list(self._flights.values()):
            timeout = flight.batch.timeout
            if flight.cancelled is not None:
                if now - flight.cancelled > _UNREACHABLE_SECONDS:
                    self._take(Lost(flight.batch.batch_id, "its worker does not answer", "cancelled"))
            elif flight.started is not None and timeout is not None:
                allowed = timeout * (1 + self._policy.timeout_slack) + self._policy.timeout_grace
                if now - flight.alive > allowed:
                    flight.overdue = True
                    self._cancel([flight])

    def _cancel(self, flights: Iterable[Flight]) -> None:
        for flight in flights:
            if flight.cancelled is None:
                flight.cancelled = time.monotonic()
                with suppress(ExecutorError):  # a batch out of reach needs no killing
                    self._executor.cancel(flight.batch.batch_id)

    def _commit_rows(self) -> None:
        # The list is emptied first: a failed commit must not be tried again on the way out.
        rows, self._rows = self._rows, []
        if rows:
            self._commit(rows)
        self._committed = time.monotonic()

    def _report(self) -> None:
        self._reported = time.monotonic()
        snapshot = self._counts.snapshot(self._flights.values(), self._slots, self._executor.cores())
        for observer in self._observers:
            observer(snapshot)


def _process(flight: Flight) -> tuple[str, int] | None:
    """The host and the pid of the process that a batch runs in."""
    return None if flight.started is None else (flight.started.host, flight.started.pid)
