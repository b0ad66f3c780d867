"""The conductor with a scripted executor: windows, retries, deadlines, commits, stops."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from support.sample_work import FakeRun, runs

from kising.errors import ExecutorError
from kising.sweep.drive import conductor
from kising.sweep.drive.conductor import Policy, conduct
from kising.sweep.drive.counts import Outcome
from kising.sweep.drive.progress import Snapshot
from kising.sweep.drive.signals import SIGNALS, StopRequest, stop_on_signals
from kising.sweep.execute.protocol import (
    Batch,
    Checkpoint,
    Event,
    Finished,
    Lost,
    LostKind,
    Need,
    Rows,
    Saved,
    Started,
)

SOON = Policy(timeout_grace=0.0, grace_seconds=0.2, report_seconds=0.0)


def row(run: FakeRun, status: str = "done") -> dict[str, object]:
    error = None if status == "done" else "it failed"
    return {"run_id": run.run_id, "status": status, "error": error, "seconds": 1e-3, "host": "h"}


def done(batch: Batch) -> list[Event]:
    rows = tuple(row(run) for run in batch.runs)
    return [Started(batch.batch_id, "h", 1), Rows(batch.batch_id, rows), Finished(batch.batch_id)]


class Scripted:
    """Answers every batch with the events of `script`; a batch without events runs for ever."""

    name = "scripted"

    def __init__(self, script: Callable[[Batch], list[Event]] = done, slots: int = 2) -> None:
        self.script, self.free = script, slots
        self.submitted: list[Batch] = []
        self.cancelled: list[int] = []
        self.waiting: list[Event] = []
        self.open: set[int] = set()
        self.most = 0

    def slots(self, need: Need) -> int:
        return self.free

    def potential_slots(self, need: Need) -> int:
        return self.free

    def cores(self) -> dict[str, float]:
        return {"h": float(self.free)}

    def refuse(self, need: Need) -> str | None:
        return "no node has 99 cpus" if need.cpus == 99 else None

    def submit(self, batch: Batch) -> None:
        self.submitted.append(batch)
        self.open.add(batch.batch_id)
        self.most = max(self.most, len(self.open))
        self.waiting.extend(self.script(batch))

    def events(self, timeout: float) -> list[Event]:
        if not self.waiting:
            threading.Event().wait(min(timeout, 0.01))
        events, self.waiting = self.waiting, []
        self.open -= {event.batch_id for event in events if isinstance(event, Finished | Lost)}
        return events

    def cancel(self, batch_id: int) -> None:
        if batch_id in self.open:
            self.cancelled.append(batch_id)
            self.waiting.append(Lost(batch_id, "killed", "cancelled"))

    def close(self) -> None:
        pass


class Committed(list[dict[str, object]]):
    """Committed rows, and the size of each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def commit(self, rows: list[dict[str, object]]) -> None:
        self.sizes.append(len(rows))
        self.extend(rows)

    @property
    def ids(self) -> list[str]:
        return sorted(str(row["run_id"]) for row in self)


def go(
    source: list[FakeRun] | Iterator[FakeRun],
    executor: Scripted,
    committed: Committed,
    *,
    need: Need | None = None,
    policy: Policy = SOON,
    stop: StopRequest | None = None,
    observe: Callable[[Snapshot], object] = lambda snapshot: None,
    total: int | None = None,
) -> Outcome:
    return conduct(
        source,
        executor,
        committed.commit,
        cost=lambda run: 1e-3,
        need=lambda run: need or Need(),
        total=len(source) if isinstance(source, list) else total or 0,
        policy=policy,
        stop=stop,
        observers=[observe],
    )


def ids(source: list[FakeRun]) -> list[str]:
    return sorted(run.run_id for run in source)


def die(batch: Batch, kind: LostKind, after: int = 0) -> list[Event]:
    rows = tuple(row(run) for run in batch.runs[:after])
    return [Started(batch.batch_id, "h", 1), Rows(batch.batch_id, rows), Lost(batch.batch_id, "boom", kind)]


def test_every_run_is_committed_once() -> None:
    source, committed = runs(5000), Committed()
    outcome = go(source, Scripted(), committed)
    assert committed.ids == ids(source)
    assert (outcome.done, outcome.failed, outcome.unfinished, outcome.interrupted) == (5000, 0, 0, False)


def test_nothing_to_do() -> None:
    committed = Committed()
    assert go([], Scripted(), committed).done == 0
    assert committed.sizes == []


def test_the_window_is_bounded() -> None:
    executor = Scripted(slots=4)
    go(runs(5000), executor, Committed())
    assert executor.most == 4 + 2
    executor = Scripted(slots=100)
    go(runs(5000), executor, Committed())
    assert executor.most == 100 + 25


def test_slots_that_come_late_are_used() -> None:
    executor = Scripted(slots=0)

    def grow(batch: Batch) -> list[Event]:
        executor.free = 1 if batch.batch_id < 4 else 8
        return done(batch)

    executor.script = grow
    go(runs(5000), executor, Committed())
    assert executor.most == 8 + 2


def test_runs_are_taken_as_they_are_needed() -> None:
    taken = 0
    stop = StopRequest()

    def stream() -> Iterator[FakeRun]:
        nonlocal taken
        for number in range(10**9):
            taken += 1
            yield FakeRun(number)

    def answer(batch: Batch) -> list[Event]:
        if batch.batch_id == 20:
            stop.ask()
        return done(batch)

    executor, committed = Scripted(answer), Committed()
    outcome = go(stream(), executor, committed, stop=stop, total=10**9)
    assert taken == sum(len(batch.runs) for batch in executor.submitted) + 1
    assert outcome.done == len(committed)
    assert outcome.interrupted


def test_a_request_that_cannot_be_met_is_refused_before_anything_runs() -> None:
    executor = Scripted()
    with pytest.raises(ExecutorError, match="no node has 99 cpus"):
        go(runs(3), executor, Committed(), need=Need(cpus=99))
    assert executor.submitted == []


def test_rows_that_arrived_before_a_death_are_kept() -> None:
    def answer(batch: Batch) -> list[Event]:
        return die(batch, "crashed", after=3) if batch.batch_id == 0 else done(batch)

    executor, committed, source = Scripted(answer), Committed(), runs(8)
    outcome = go(source, executor, committed)
    assert committed.ids == ids(source)
    assert (outcome.lost, outcome.repeated) == (1, 5)
    assert [len(batch.runs) for batch in executor.submitted] == [8, 1, 1, 1, 1, 1]


def test_a_run_that_kills_its_worker_fails_and_its_mates_do_not() -> None:
    def answer(batch: Batch) -> list[Event]:
        poisoned = [number for number, run in enumerate(batch.runs) if run.act == "kill"]
        return die(batch, "crashed", after=poisoned[0]) if poisoned else done(batch)

    source = [FakeRun(number, "kill" if number == 5 else "square") for number in range(8)]
    committed = Committed()
    outcome = go(source, Scripted(answer), committed)
    assert committed.ids == ids(source)
    assert [(one.run_id, one.error) for one in outcome.failures] == [
        (source[5].run_id, "its worker process died 3 times")
    ]
    (failed,) = (row for row in committed if row["status"] == "failed")
    assert failed["traceback"] == "boom"
    assert failed["model.visible"] == 7  # a failed row has the columns of its point
    assert outcome.lost == 3


def test_after_a_death_only_the_suspects_go_on_one_by_one() -> None:
    def answer(batch: Batch) -> list[Event]:
        return die(batch, "crashed") if len(batch.runs) > 500 else done(batch)

    executor, committed, source = Scripted(answer), Committed(), runs(3000)
    go(source, executor, committed)
    assert committed.ids == ids(source)
    lengths = Counter(len(batch.runs) for batch in executor.submitted)
    assert 256 <= lengths[1] <= 1024
    assert any(100 < length < 500 for length in lengths)


def test_running_out_of_memory_names_the_memory() -> None:
    committed = Committed()
    outcome = go(
        runs(1), Scripted(lambda batch: die(batch, "memory")), committed, need=Need(memory=2 * 10**9)
    )
    assert (
        outcome.failures[0].error
        == "out of memory 3 times; it asks for 2 GB of memory: raise resources.memory"
    )
    committed.clear()
    outcome = go(runs(1), Scripted(lambda batch: die(batch, "memory")), committed)
    assert outcome.failures[0].error == "out of memory 3 times; it asks for no memory: set resources.memory"

    def told(batch: Batch) -> list[Event]:
        return [*die(batch, "memory")[:-1], Lost(batch.batch_id, "Task was killed (it used 3.2GB)", "memory")]

    outcome = go(runs(1), Scripted(told), committed, need=Need(memory=2 * 10**9))
    assert outcome.failures[0].error == (
        "out of memory 3 times, the last time at 3.2GB; it asks for 2 GB of memory: raise resources.memory"
    )


def test_a_lost_host_is_not_held_against_its_runs() -> None:
    losses = 10

    def answer(batch: Batch) -> list[Event]:
        return die(batch, "node") if batch.batch_id < losses else done(batch)

    executor, committed, source = Scripted(answer, slots=1), Committed(), runs(8)
    outcome = go(source, executor, committed)
    assert (outcome.done, outcome.failed) == (8, 0)
    assert len(executor.submitted[1].runs) == 8  # together the first times


def test_a_run_whose_host_is_always_lost_fails_in_the_end() -> None:
    committed = Committed()
    outcome = go(
        runs(1), Scripted(lambda batch: die(batch, "node")), committed, policy=Policy(max_node_losses=7)
    )
    assert outcome.lost == 7
    assert outcome.failures[0].error == "its host was lost 7 times"


def test_workers_that_die_before_they_begin_are_not_held_against_the_runs() -> None:
    committed = Committed()
    with pytest.raises(ExecutorError, match="10 workers in a row died before they began: no kising"):
        go(runs(2000), Scripted(lambda batch: [Lost(batch.batch_id, "no kising", "crashed")]), committed)
    assert not committed


def test_a_run_that_hangs_is_killed_and_fails() -> None:
    def answer(batch: Batch) -> list[Event]:
        hanging = [number for number, run in enumerate(batch.runs) if run.act == "sleep"]
        if not hanging:
            return done(batch)
        rows = tuple(row(run) for run in batch.runs[: hanging[0]])
        return [Started(batch.batch_id, "h", 1), Rows(batch.batch_id, rows)]

    source = [FakeRun(number, "sleep" if number == 3 else "square") for number in range(6)]
    executor, committed = Scripted(answer), Committed()
    outcome = go(source, executor, committed, need=Need(timeout=0.2))
    assert committed.ids == ids(source)
    assert tuple(one[:2] for one in outcome.failures) == (
        (source[3].run_id, "timed out after 0.2 s (resources.timeout)"),
    )
    assert len(executor.cancelled) == 2  # once in company, once alone


def test_waiting_for_a_process_is_not_hanging() -> None:
    executor, committed = Scripted(lambda batch: []), Committed()
    ticks = 0

    def observe(snapshot: Snapshot) -> None:
        nonlocal ticks
        ticks += 1
        if snapshot.seconds > 1.5 and executor.script is not done:
            executor.script = done
            for batch in executor.submitted:
                executor.waiting.extend(done(batch))

    outcome = go(runs(20), executor, committed, need=Need(timeout=0.1), observe=observe)
    assert executor.cancelled == []
    assert outcome.done == 20


def test_rows_are_a_sign_of_life() -> None:
    executor, committed = Scripted(lambda batch: [Started(batch.batch_id, "h", 1)]), Committed()
    sent = 0

    def observe(snapshot: Snapshot) -> None:
        nonlocal sent
        batch = executor.submitted[0]
        if sent < 8 and snapshot.seconds > 0.3 * sent:
            executor.waiting.append(Rows(0, (row(batch.runs[sent]),)))
            sent += 1
            if sent == 8:
                executor.waiting.append(Finished(0))

    # All of them together take longer than the timeout of one, which leaves room for a busy machine.
    outcome = go(runs(8), executor, committed, need=Need(timeout=1.6), observe=observe)
    assert (outcome.done, executor.cancelled) == (8, [])


class MemoryStore(dict[str, Saved]):
    """Checkpoints in memory."""

    put = dict.__setitem__


def conducted(
    source: list[FakeRun], executor: Scripted, store: MemoryStore | None, policy: Policy = SOON
) -> Outcome:
    return conduct(
        source,
        executor,
        Committed().commit,
        cost=lambda run: 1e-3,
        need=lambda run: Need(timeout=0.4),
        total=len(source),
        policy=policy,
        checkpoint_store=store,
    )


def test_checkpoints_are_kept_and_given_to_the_next_attempt() -> None:
    source, store = (
        runs(3),
        MemoryStore({FakeRun(2).run_id: Saved(b"old", 1.0, 0.5), FakeRun(9).run_id: Saved(b"x", 1.0, 0.5)}),
    )

    def answer(batch: Batch) -> list[Event]:
        if batch.batch_id:
            return done(batch)
        told = [
            Checkpoint(0, source[0].run_id, Saved(b"too late", 1.0, 0.5)),  # its row is there already
            Checkpoint(0, source[1].run_id, Saved(b"one", 1.0, 0.5)),
            Checkpoint(0, source[1].run_id, Saved(b"two", 2.0, 0.5)),
            Checkpoint(7, source[2].run_id, Saved(b"stray", 1.0, 0.5)),  # of no batch in flight
        ]
        started, rows, lost = die(batch, "crashed", after=1)
        return [started, rows, *told, lost]

    executor = Scripted(answer, slots=3)
    assert conducted(source, executor, store, Policy(checkpoint_seconds=0.25)).done == 3
    first, *others = executor.submitted
    assert (first.checkpoint, set(first.saved)) == (
        pytest.approx(0.3),
        {source[2].run_id},
    )  # a tenth of a second per slot
    assert [dict(batch.saved) for batch in others] == [
        {source[1].run_id: Saved(b"two", 2.0, 0.5)},
        {source[2].run_id: Saved(b"old", 1.0, 0.5)},
    ]
    assert source[0].run_id not in store


def test_without_a_store_or_an_interval_there_are_no_checkpoints() -> None:
    for store, policy in ((None, Policy()), (MemoryStore(), Policy(checkpoint_seconds=None))):
        executor = Scripted()
        conducted(runs(3), executor, store, policy)
        assert {batch.checkpoint for batch in executor.submitted} == {None}


def test_a_checkpoint_is_no_sign_that_a_run_will_end() -> None:
    executor = Scripted(lambda batch: [Started(batch.batch_id, "h", 1)])
    executor.free = 1

    class Busy(MemoryStore):
        def put(self, run_id: str, saved: Saved) -> None:
            threading.Event().wait(0.01)
            again = Checkpoint(0, run_id, Saved(b"", saved.seconds + 0.01, 0.5))
            executor.waiting.extend([again] if saved.seconds < 5 else done(executor.submitted[0]))

    store = Busy()
    executor.waiting.append(Checkpoint(0, FakeRun(0).run_id, Saved(b"", 0.0, 0.5)))
    assert conducted(runs(1), executor, store).failed == 1


def test_deaths_count_from_the_last_checkpoint() -> None:
    def answer(batch: Batch) -> list[Event]:
        told = Checkpoint(batch.batch_id, batch.runs[0].run_id, Saved(b"", 1.0, 0.5))
        if batch.batch_id == 7:
            return done(batch)
        return [Started(batch.batch_id, "h", 1), told, Lost(batch.batch_id, "boom", "crashed")]

    assert conducted(runs(1), Scripted(answer), MemoryStore()).done == 1
    assert conducted(runs(1), Scripted(answer), None).failed == 1


def test_a_cancelled_batch_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductor, "_UNREACHABLE_SECONDS", 0.1)
    executor, committed = Scripted(lambda batch: [Started(batch.batch_id, "h", 1)]), Committed()
    executor.cancel = executor.cancelled.append  # type: ignore[method-assign]
    outcome = go(runs(1), executor, committed, need=Need(timeout=0.1))
    assert outcome.failed == 1


def test_events_of_a_batch_given_up_and_rows_sent_twice_are_ignored() -> None:
    def answer(batch: Batch) -> list[Event]:
        again = Rows(batch.batch_id, tuple(row(run) for run in batch.runs))
        stray = Rows(10**6, (row(FakeRun(10**6)),))
        return [*done(batch)[:-1], again, stray, Finished(batch.batch_id), again]

    source, committed = runs(50), Committed()
    go(source, Scripted(answer), committed)
    assert committed.ids == ids(source)


def test_a_batch_that_ends_without_its_rows_is_repeated() -> None:
    def answer(batch: Batch) -> list[Event]:
        return (
            [Started(batch.batch_id, "h", 1), Finished(batch.batch_id)] if not batch.batch_id else done(batch)
        )

    source, committed = runs(8), Committed()
    assert go(source, Scripted(answer), committed).lost == 1
    assert committed.ids == ids(source)


def test_failing_runs_do_not_stop_the_others() -> None:
    def answer(batch: Batch) -> list[Event]:
        rows = tuple(row(run, "failed" if run.realization % 2 else "done") for run in batch.runs)
        return [Started(batch.batch_id, "h", 1), Rows(batch.batch_id, rows), Finished(batch.batch_id)]

    committed = Committed()
    outcome = go(runs(100), Scripted(answer), committed)
    assert (outcome.done, outcome.failed, len(committed)) == (50, 50, 100)
    assert len(outcome.failures) == 20  # the first


def test_fail_fast_ends_the_sweep_at_the_first_failure() -> None:
    def answer(batch: Batch) -> list[Event]:
        return [Started(batch.batch_id, "h", 1), Rows(batch.batch_id, (row(batch.runs[0], "failed"),))]

    executor, committed = Scripted(answer), Committed()
    outcome = go(runs(1000), executor, committed, policy=Policy(fail_fast=True, grace_seconds=0.1))
    assert len(executor.submitted) == executor.most
    assert sorted(executor.cancelled) == [batch.batch_id for batch in executor.submitted]
    assert outcome.failed == len(committed) == len(executor.submitted)
    assert (outcome.unfinished, outcome.interrupted) == (1000 - len(committed), False)


def test_rows_are_committed_by_time_and_by_number() -> None:
    committed = Committed()
    go(runs(500), Scripted(), committed, policy=Policy(commit_seconds=0.0))
    assert len(committed.sizes) > 1
    committed = Committed()
    go(runs(500), Scripted(), committed, policy=Policy(commit_seconds=1000.0, commit_rows=10**9))
    assert committed.sizes == [500]
    committed = Committed()
    go(runs(500), Scripted(slots=1), committed, policy=Policy(commit_seconds=1000.0, commit_rows=100))
    assert len(committed.sizes) > 1
    assert all(size >= 100 for size in committed.sizes[:-1])


def test_a_commit_that_fails_ends_the_sweep_and_kills_the_work() -> None:
    executor, calls = Scripted(), []

    def answer(batch: Batch) -> list[Event]:
        return done(batch)[:-1]

    def commit(rows: list[dict[str, object]]) -> None:
        calls.append(len(rows))
        raise OSError("no space left")

    executor.script = answer
    with pytest.raises(OSError, match="no space left"):
        conduct(
            runs(1000),
            executor,
            commit,
            cost=lambda run: 1.0,
            need=lambda run: Need(),
            total=1000,
            policy=Policy(commit_seconds=0.0),
        )
    assert len(calls) == 1
    assert sorted(executor.cancelled) == sorted(executor.open)


def test_rows_are_committed_when_the_executor_breaks_down() -> None:
    class Breaking(Scripted):
        def events(self, timeout: float) -> list[Event]:
            events = super().events(timeout)
            if not events:
                raise ExecutorError("Ray broke down")
            return events

    executor, committed = Breaking(lambda batch: done(batch)[:-1]), Committed()
    with pytest.raises(ExecutorError, match="broke down"):
        go(runs(1000), executor, committed, policy=Policy(commit_seconds=1000.0))
    assert committed.ids == ids([run for batch in executor.submitted for run in batch.runs])


def test_a_breakdown_while_stopping_is_part_of_the_stop() -> None:
    stop = StopRequest()

    class Breaking(Scripted):
        def events(self, timeout: float) -> list[Event]:
            if stop.level:
                raise ExecutorError("Ray broke down")
            stop.ask("SIGHUP")
            return super().events(timeout)

    executor = Breaking(lambda batch: [Started(batch.batch_id, "h", 1)])
    assert go(runs(1000), executor, Committed(), stop=stop).interrupted


def test_stopping_keeps_what_finishes_in_time() -> None:
    stop, executor, committed = (
        StopRequest(),
        Scripted(lambda batch: [Started(batch.batch_id, "h", 1)]),
        Committed(),
    )

    def observe(snapshot: Snapshot) -> None:
        if not stop.level:
            stop.ask("SIGINT")
        elif executor.submitted[0].batch_id in executor.open:
            executor.waiting.extend(done(executor.submitted[0])[1:])

    outcome = go(runs(1000), executor, committed, stop=stop, observe=observe)
    assert committed.ids == ids(list(executor.submitted[0].runs))
    assert sorted(executor.cancelled) == [batch.batch_id for batch in executor.submitted[1:]]
    assert (outcome.interrupted, outcome.done, outcome.failed) == (True, len(committed), 0)


def test_stopping_takes_back_what_has_not_begun() -> None:
    stop = StopRequest()
    executor = Scripted(lambda batch: [Started(0, "h", 1)] if batch.batch_id == 0 else [])

    def observe(snapshot: Snapshot) -> None:
        if not stop.level:
            stop.ask("SIGINT")
        elif len(executor.cancelled) == len(executor.submitted) - 1 and not executor.waiting:
            executor.waiting.extend(done(executor.submitted[0])[1:])

    committed = Committed()
    go(
        runs(1000),
        executor,
        committed,
        stop=stop,
        observe=observe,
        policy=Policy(grace_seconds=60.0, report_seconds=0),
    )
    assert 0 not in executor.cancelled
    assert len(committed) == len(executor.submitted[0].runs)


def test_a_stop_that_comes_after_the_last_run_interrupts_nothing() -> None:
    stop = StopRequest()

    def answer(batch: Batch) -> list[Event]:
        stop.ask()
        return done(batch)

    outcome = go(runs(5), Scripted(answer), Committed(), stop=stop)
    assert (outcome.done, outcome.interrupted) == (5, False)


def test_the_second_request_returns_at_once_with_the_rows_that_are_there() -> None:
    stop = StopRequest()

    class Impatient(Scripted):
        def events(self, timeout: float) -> list[Event]:
            events = super().events(timeout)
            if not events:
                stop.ask("SIGINT")
                stop.ask("SIGINT")  # raises here, as a signal's handler would in the middle of a run
            return events

    executor, committed = Impatient(lambda batch: done(batch)[:-1]), Committed()
    outcome = go(
        runs(1000), executor, committed, stop=stop, policy=Policy(commit_seconds=1000.0, grace_seconds=1e6)
    )
    assert outcome.interrupted
    assert committed.ids == ids([run for batch in executor.submitted for run in batch.runs])


def test_the_second_request_does_not_interrupt_a_commit() -> None:
    stop = StopRequest()
    committed = Committed()

    def commit(rows: list[dict[str, object]]) -> None:
        stop.ask()
        stop.ask()
        committed.commit(rows)

    outcome = conduct(
        runs(1000),
        Scripted(),
        commit,
        cost=lambda run: 1.0,
        need=lambda run: Need(),
        total=1000,
        stop=stop,
        policy=Policy(commit_seconds=0.0),
    )
    assert outcome.interrupted
    assert outcome.done == len(committed) > 0


def test_a_foreign_interrupt_is_passed_on_after_the_commit() -> None:
    class Interrupted(Scripted):
        def events(self, timeout: float) -> list[Event]:
            events = super().events(timeout)
            if not events:
                raise KeyboardInterrupt
            return events

    committed = Committed()
    with pytest.raises(KeyboardInterrupt):
        go(
            runs(1000),
            Interrupted(lambda batch: done(batch)[:-1]),
            committed,
            policy=Policy(commit_seconds=1000.0),
        )
    assert committed


def test_rows_are_stamped_unless_they_bring_their_own() -> None:
    def answer(batch: Batch) -> list[Event]:
        rows = (row(batch.runs[0]), {**row(batch.runs[1]), "numerics": 7})
        return [Started(batch.batch_id, "h", 1), Rows(batch.batch_id, rows), Finished(batch.batch_id)]

    committed = Committed()
    conduct(
        runs(2),
        Scripted(answer),
        committed.commit,
        cost=lambda run: 1e-3,
        need=lambda run: Need(),
        total=2,
        stamp={"numerics": 3, "version": "1"},
    )
    assert [(row["numerics"], row["version"]) for row in committed] == [(3, "1"), (7, "1")]


def test_the_first_run_of_a_process_is_not_measured() -> None:
    """It loads and compiles: if its time counted, the runs after it would travel alone."""

    def answer(batch: Batch) -> list[Event]:
        rows = [row(run) for run in batch.runs]
        if batch.batch_id < 2:
            rows[0]["seconds"] = 30.0
        started = Started(batch.batch_id, "h", batch.batch_id % 2)
        return [started, Rows(batch.batch_id, tuple(rows)), Finished(batch.batch_id)]

    executor = Scripted(answer)
    go(runs(3000), executor, Committed())
    assert len(executor.submitted) < 50


def test_snapshots_add_up() -> None:
    executor, seen = Scripted(), []

    def answer(batch: Batch) -> list[Event]:
        host = f"h{batch.batch_id % 2}"
        rows = tuple({**row(run), "host": host} for run in batch.runs)
        events: list[Event] = [Started(batch.batch_id, host, 1), Rows(batch.batch_id, rows)]
        return events if batch.batch_id < 2 else [*events, Finished(batch.batch_id)]

    def observe(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        if snapshot.seconds > 0.1:
            executor.waiting.extend(Finished(batch_id) for batch_id in executor.open)

    executor.script = answer
    outcome = conduct(
        runs(1000),
        executor,
        Committed().commit,
        cost=lambda run: 1e-3,
        need=lambda run: Need(),
        total=1000,
        done_before=300,
        failed_before=20,
        policy=SOON,
        observers=[observe],
    )
    assert {snapshot.total for snapshot in seen} == {1320}
    for snapshot in seen:
        finished = sum(load.finished for load in snapshot.hosts.values())
        assert finished == snapshot.done - 300 + snapshot.failed - 20
        assert snapshot.done + snapshot.failed + snapshot.running + snapshot.queued <= snapshot.total
        assert snapshot.workers == sum(load.workers for load in snapshot.hosts.values())
        assert [age.seconds for age in snapshot.oldest] == sorted(
            (a.seconds for a in snapshot.oldest), reverse=True
        )
    assert any({age.host for age in snapshot.oldest} == {"h0", "h1"} for snapshot in seen)
    last = seen[-1]
    assert (last.done, last.failed, last.running, last.queued) == (1300, 20, 0, 0)
    assert last.rate == pytest.approx(outcome.done / last.seconds, rel=0.5)
    assert last.eta == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_signals_are_requests(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with stop_on_signals() as stop:
        os.kill(os.getpid(), number)
        assert (stop.level, stop.reason) == (1, number.name)
        with pytest.raises(KeyboardInterrupt), stop.interruptible():
            os.kill(os.getpid(), number)
        assert stop.level == 2
        os.kill(os.getpid(), number)  # a third changes nothing, here or later
        assert stop.level == 2
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_ignored_signals_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.level == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_take_no_signals() -> None:
    levels = []

    def run() -> None:
        with stop_on_signals() as stop:
            levels.append(stop.level)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert levels == [0]


@pytest.mark.parametrize(("slots", "seconds"), [(2, 1.0), (1_000, 3.0), (10_000, 30.0)])
def test_rows_of_many_workers_travel_together(slots: int, seconds: float) -> None:
    executor = Scripted(slots=slots)
    go(runs(5), executor, Committed())
    assert {batch.chunk_seconds for batch in executor.submitted} == {seconds}
