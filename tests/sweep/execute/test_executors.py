"""One suite for every executor: single batches, and whole sweeps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import types
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support import sample_work
from support.nodes import PATHS
from support.sample_work import FakeRun, runs

from kising.errors import ExecutorError
from kising.sweep.drive.conductor import Policy, conduct
from kising.sweep.drive.counts import Outcome
from kising.sweep.drive.progress import Snapshot
from kising.sweep.drive.signals import StopRequest
from kising.sweep.execute.in_process import InProcessExecutor
from kising.sweep.execute.protocol import (
    LARGEST_STATE,
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
    Work,
)
from kising.sweep.execute.ray_cluster import RayCluster
from kising.sweep.execute.ray_executor import RayExecutor

Build = Callable[[Work], Executor]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """One Ray for all of these tests: it takes seconds to start. Its workers find sample_work by PYTHONPATH."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PATHS)
        cluster = RayCluster.start(cpus=2)
    yield cluster
    cluster.close()


@pytest.fixture(params=["in process", "ray"])
def executor(request: pytest.FixtureRequest) -> Executor:
    """An executor of the sample work."""
    if request.param == "in process":
        return InProcessExecutor(sample_work.work)
    return RayExecutor(sample_work.work, request.getfixturevalue("cluster"))


@pytest.fixture
def killable(executor: Executor) -> Executor:
    """An executor whose runs may kill their process."""
    if isinstance(executor, InProcessExecutor):
        pytest.skip("in process, a run that kills its process kills the tests, and one that hangs hangs them")
    return executor


def test_a_run_never_uses_more_cores_than_its_host_shows() -> None:
    executor = InProcessExecutor(sample_work.work)
    (cores,) = executor.cores().values()
    assert executor.refuse(Need(cpus=int(cores))) is None
    assert "lower resources.cpus" in (executor.refuse(Need(cpus=int(cores) + 1)) or "")


def go(
    source: list[FakeRun],
    executor: Executor,
    rows: list[dict[str, object]],
    *,
    need: Need | None = None,
    policy: Policy | None = None,
    stop: StopRequest | None = None,
    observe: Callable[[Snapshot], object] = lambda snapshot: None,
    checkpoint_store: MemoryStore | None = None,
) -> Outcome:
    return conduct(
        source,
        executor,
        rows.extend,
        cost=lambda run: 1e-3,
        need=lambda run: need or Need(),
        total=len(source),
        policy=policy,
        stop=stop,
        observers=[observe],
        checkpoint_store=checkpoint_store,
    )


def settle(executor: Executor, batches: int, seconds: float = 60.0) -> list[Event]:
    """Collect events until this many batches have ended."""
    events: list[Event] = []
    end = time.monotonic() + seconds
    while sum(isinstance(event, Finished | Lost) for event in events) < batches:
        assert time.monotonic() < end, events
        events.extend(executor.events(1.0))
    return events


def by_id(committed: list[dict[str, object]]) -> dict[str, dict[str, object]]:
    rows = {str(row["run_id"]): row for row in committed}
    assert len(rows) == len(committed), "a run was committed twice"
    return rows


def test_every_run_gives_its_row(executor: Executor) -> None:
    source, committed = runs(3000), []
    outcome = go(source, executor, committed)
    rows = by_id(committed)
    assert {run.run_id: rows[run.run_id]["rmse_J"] for run in source} == {
        run.run_id: run.realization**2 for run in source
    }
    assert all(
        row["status"] == "done" and row["host"] and row["seconds"] >= 0 and row["cpu_seconds"] >= 0
        for row in committed
    )
    assert (outcome.done, outcome.failed, outcome.lost) == (3000, 0, 0)
    assert outcome.batches < 100


def test_events_of_a_batch_come_in_order(executor: Executor) -> None:
    executor.submit(Batch(7, tuple(runs(300)), 1, None, None))
    first, *middle, last = settle(executor, 1)
    assert isinstance(first, Started)
    assert (first.batch_id, first.host != "", first.pid > 0) == (7, True, True)
    assert last == Finished(7)
    assert len(middle) > 1  # in chunks that travel lightly
    assert all(isinstance(event, Rows) and event.batch_id == 7 for event in middle)
    assert [row["realization"] for event in middle for row in event.rows] == list(range(300))


def test_a_slow_batch_hands_over_rows_as_it_goes(executor: Executor) -> None:
    executor.submit(Batch(1, tuple(runs(12, "pause")), 1, None, None))
    assert sum(isinstance(event, Rows) for event in settle(executor, 1)) > 1


def test_a_run_that_raises_is_a_failed_row(executor: Executor) -> None:
    source, committed = [*runs(10), FakeRun(10, "raise"), FakeRun(11, "exit"), FakeRun(12)], []
    outcome = go(source, executor, committed)
    assert (outcome.done, outcome.failed) == (11, 2)
    rows = by_id(committed)
    failed = rows[source[10].run_id]
    assert failed["status"] == "failed"
    assert failed["error"] == "ValueError: no solution at 10"
    assert "sample_work.py" in str(failed["traceback"])
    assert "batch_loop.py" not in str(failed["traceback"])
    assert (failed["point_id"], failed["model.visible"], failed["realization"]) == (
        source[10].point.point_id,
        7,
        10,
    )
    assert rows[source[11].run_id]["error"] == "SystemExit: 3"
    assert rows[source[12].run_id]["status"] == "done"


def test_a_kernel_that_raises_is_a_failed_row_and_nan_is_a_number(executor: Executor) -> None:
    committed: list[dict[str, object]] = []
    outcome = go([FakeRun(0, "raise in a kernel"), FakeRun(1, "nan"), FakeRun(2)], executor, committed)
    assert tuple(one[:2] for one in outcome.failures) == ((FakeRun(0).run_id, "ValueError: below"),)
    rows = by_id(committed)
    assert rows[FakeRun(1).run_id]["status"] == "done"
    assert np.isnan(rows[FakeRun(1).run_id]["rmse_J"])
    assert rows[FakeRun(2).run_id]["rmse_J"] == 4.0


def test_a_run_that_gives_up_in_time_is_a_failed_row(executor: Executor) -> None:
    committed: list[dict[str, object]] = []
    outcome = go([FakeRun(0), FakeRun(1, "late")], executor, committed, need=Need(timeout=5.0))
    assert outcome.done == 1
    assert tuple(one[:2] for one in outcome.failures) == (
        (FakeRun(1).run_id, "timed out after 5 s (resources.timeout)"),
    )
    assert outcome.lost == 0


def test_a_run_has_the_threads_it_asked_for(executor: Executor) -> None:
    for cpus in (1, 2):
        executor.submit(Batch(cpus, tuple(runs(1, "threads")), cpus, None, None))
        (rows,) = (event.rows for event in settle(executor, 1) if isinstance(event, Rows))
        assert rows[0]["rmse_J"] == 1.0


class MemoryStore(dict[str, Saved]):
    """Checkpoints in memory, and the number of those that were too large."""

    def __init__(self) -> None:
        super().__init__()
        self.too_large = 0

    def put(self, run_id: str, saved: Saved | None) -> None:
        if saved is None:
            self.too_large += 1
        else:
            self[run_id] = saved


def test_a_long_run_sends_its_states_and_resumes_from_one(executor: Executor, tmp_path: Path) -> None:
    run = FakeRun(8, "count", str(tmp_path))
    executor.submit(Batch(0, (run,), 1, None, None, checkpoint=0.25))
    events = settle(executor, 1)
    saved = [event.saved for event in events if isinstance(event, Checkpoint)]
    (row,) = (row for event in events if isinstance(event, Rows) for row in event.rows)
    assert row["rmse_J"] == 64.0
    assert 1 <= len(saved) <= row["seconds"] / 0.25
    assert all(one is not None and one.seconds < row["seconds"] for one in saved)
    executor.submit(Batch(1, (run,), 1, None, None, saved={run.run_id: saved[-1]}))
    events = settle(executor, 1)
    (row,) = (row for event in events if isinstance(event, Rows) for row in event.rows)
    assert row["rmse_J"] == 64.0
    assert row["seconds"] > saved[-1].seconds
    assert row["cpu_seconds"] > saved[-1].cpu_seconds > 0
    assert not any(isinstance(event, Checkpoint) for event in events)  # none were requested
    assert (tmp_path / run.run_id).read_text().split() == ["0", saved[-1].state.split()[1].decode()]


def test_rows_do_not_wait_for_a_long_run(executor: Executor, tmp_path: Path) -> None:
    executor.submit(
        Batch(0, (FakeRun(1), FakeRun(6, "count", str(tmp_path))), 1, None, None, checkpoint=0.15)
    )
    kinds = [type(event) for event in settle(executor, 1)]
    assert kinds[:3] == [Started, Rows, Checkpoint]


def test_time_spent_before_counts_towards_the_timeout(executor: Executor) -> None:
    saved = {FakeRun(0).run_id: Saved(b"", 7.0, 0.5)}
    executor.submit(Batch(0, tuple(runs(1, "told timeout")), 1, None, 9.0, saved=saved))
    (rows,) = (event.rows for event in settle(executor, 1) if isinstance(event, Rows))
    assert rows[0]["rmse_J"] == 2.0


def test_states_too_large_to_send_are_counted(executor: Executor) -> None:
    store = MemoryStore()
    committed: list[dict[str, object]] = []
    policy = Policy(checkpoint_seconds=0.2)
    outcome = go(runs(2, "large"), executor, committed, policy=policy, checkpoint_store=store)
    assert (outcome.done, store.too_large) == (2, 1)
    assert {run_id: len(saved.state) for run_id, saved in store.items()} == {FakeRun(0).run_id: LARGEST_STATE}


def test_a_batch_in_the_queue_can_be_cancelled(executor: Executor, tmp_path: Path) -> None:
    for number in range(6):
        act = "mark" if number == 5 else "pause"
        executor.submit(Batch(number, tuple(runs(3, act, tmp_path)), 1, None, None))
    executor.cancel(5)
    ends = [event for event in settle(executor, 6) if isinstance(event, Finished | Lost)]
    assert {event.batch_id for event in ends if isinstance(event, Finished)} == {0, 1, 2, 3, 4}
    (lost,) = (event for event in ends if isinstance(event, Lost))
    assert (lost.batch_id, lost.kind) == (5, "cancelled")
    assert list(tmp_path.iterdir()) == []


def test_cancelling_what_has_ended_does_nothing(executor: Executor) -> None:
    executor.submit(Batch(0, tuple(runs(1)), 1, None, None))
    settle(executor, 1)
    executor.cancel(0)
    executor.cancel(12345)
    assert executor.events(0.1) == []


def test_what_can_never_run_is_refused(executor: Executor) -> None:
    assert executor.refuse(Need()) is None
    assert executor.slots(Need()) >= 1
    reason = executor.refuse(Need(cpus=1000))
    assert reason is not None
    assert "1000 cpus" in reason
    assert "resources.cpus" in reason
    with pytest.raises(ExecutorError, match="1000 cpus"):
        go(runs(3), executor, [], need=Need(cpus=1000))


def test_fail_fast(executor: Executor) -> None:
    source, committed = [FakeRun(0, "raise"), *(FakeRun(n, "pause") for n in range(1, 200))], []
    outcome = go(source, executor, committed, policy=Policy(fail_fast=True, grace_seconds=5.0))
    assert outcome.failed == 1
    assert outcome.unfinished > 100
    assert not outcome.interrupted
    assert len(by_id(committed)) == outcome.done + outcome.failed


@pytest.mark.parametrize("level", [1, 2])
def test_stop_and_resume(executor: Executor, level: int) -> None:
    source, committed = runs(60, "pause"), []
    stop = StopRequest()

    def observe(snapshot: Snapshot) -> None:
        while snapshot.done and stop.level < level:
            stop.ask("SIGINT")

    policy = Policy(grace_seconds=20.0, report_seconds=0.1, commit_seconds=1000.0)
    outcome = go(source, executor, committed, stop=stop, observe=observe, policy=policy)
    assert outcome.interrupted
    assert 0 < len(by_id(committed)) == outcome.done < 60
    left = [run for run in source if run.run_id not in by_id(committed)]
    go([FakeRun(run.realization) for run in left], executor, committed)
    assert by_id(committed).keys() == {run.run_id for run in source}


def test_a_killed_worker_is_replaced(killable: Executor, tmp_path: Path) -> None:
    source = [FakeRun(n, "kill once" if n in (3, 30) else "square", str(tmp_path)) for n in range(60)]
    committed: list[dict[str, object]] = []
    outcome = go(source, killable, committed)
    assert by_id(committed).keys() == {run.run_id for run in source}
    assert (outcome.done, outcome.failed, outcome.lost) == (60, 0, 2)


def test_a_run_that_always_kills_its_worker_fails_alone(killable: Executor) -> None:
    source = [FakeRun(n, "kill" if n == 5 else "square") for n in range(40)]
    committed: list[dict[str, object]] = []
    outcome = go(source, killable, committed)
    assert by_id(committed).keys() == {run.run_id for run in source}
    assert tuple(one[:2] for one in outcome.failures) == (
        (source[5].run_id, "its worker process died 3 times"),
    )
    assert outcome.done == 39


def test_a_killed_worker_costs_what_came_after_the_checkpoint(killable: Executor, tmp_path: Path) -> None:
    # 32 steps, and every process dies at its eighth: too many deaths for a run that makes no progress.
    class NotingStore(MemoryStore):
        """Notes what has arrived: a process dies when at least three of its steps are safe."""

        def put(self, run_id: str, saved: Saved | None) -> None:
            super().put(run_id, saved)
            assert saved is not None
            (tmp_path / "saved").write_text(saved.state.split()[1].decode())

    run, store, committed = FakeRun(32, "count and die", str(tmp_path)), NotingStore(), []
    outcome = go([run], killable, committed, policy=Policy(checkpoint_seconds=0.15), checkpoint_store=store)
    assert (outcome.done, outcome.failed) == (1, 0)
    assert outcome.lost >= 3
    assert committed[0]["rmse_J"] == 32.0**2
    begun = [int(word) for word in (tmp_path / run.run_id).read_text().split()]
    assert begun[0] == 0
    assert all(3 <= later - earlier <= 8 for earlier, later in pairwise(begun))


@pytest.mark.parametrize("act", ["sleep", pytest.param("loop", marks=pytest.mark.slow)])
def test_a_run_that_hangs_is_killed(killable: Executor, act: str) -> None:
    source = [FakeRun(n, act if n == 2 else "square") for n in range(12)]
    committed: list[dict[str, object]] = []
    # Long enough for the others: on a busy machine a worker may not get a core for a second.
    outcome = go(source, killable, committed, need=Need(timeout=1.5), policy=Policy(timeout_grace=1.5))
    assert by_id(committed).keys() == {run.run_id for run in source}
    assert tuple(one[:2] for one in outcome.failures) == (
        (source[2].run_id, "timed out after 1.5 s (resources.timeout)"),
    )


def test_a_running_batch_can_be_killed(killable: Executor) -> None:
    killable.submit(Batch(0, tuple(runs(1, "sleep")), 1, None, None))
    while not killable.events(1.0):
        pass
    killable.cancel(0)
    (lost,) = settle(killable, 1)
    assert isinstance(lost, Lost)
    assert lost.kind == "cancelled"


def test_work_in_flight_is_killed_when_the_grace_time_is_over(killable: Executor) -> None:
    stop = StopRequest()
    source = [FakeRun(0), *(FakeRun(n, "sleep") for n in range(1, 5))]
    committed: list[dict[str, object]] = []
    outcome = go(
        source,
        killable,
        committed,
        stop=stop,
        observe=lambda snapshot: snapshot.workers and not stop.level and stop.ask(),
        policy=Policy(grace_seconds=0.5, report_seconds=0.1),
    )
    assert outcome.interrupted
    killable.submit(Batch(10**6, tuple(runs(1)), 2, None, None))  # both cpus are free again
    settle(killable, 1)


def test_memory_that_no_node_has_is_refused(cluster: RayCluster) -> None:
    executor = RayExecutor(sample_work.work, cluster)
    reason = executor.refuse(Need(memory=10**15))
    assert reason is not None
    assert "resources.memory" in reason
    assert "1e+06 GB" in reason


def test_slots_follow_cpus_and_memory(cluster: RayCluster) -> None:
    executor = RayExecutor(sample_work.work, cluster)
    assert executor.slots(Need()) == 2
    assert executor.slots(Need(cpus=2)) == 1
    memory = int(cluster.state.nodes[0].memory)
    assert executor.slots(Need(memory=memory)) == 1
    assert executor.slots(Need(memory=memory // 2)) == 2


def test_work_that_the_workers_cannot_load_ends_the_sweep_with_the_reason(
    cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("only_here")
    exec("def work(run, threads, timeout, saved): return {}", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    committed: list[dict[str, object]] = []
    with pytest.raises(ExecutorError, match=r"the workers cannot run batches: .*No module named 'only_here'"):
        go(runs(100), RayExecutor(module.work, cluster), committed)
    assert committed == []


JOIN = """
    import sys
    from support import sample_work
    from kising.sweep.drive.conductor import conduct
    from kising.sweep.execute.ray_cluster import RayCluster
    from kising.sweep.execute.ray_executor import RayExecutor
    from kising.errors import ExecutorError
    from kising.sweep.execute.protocol import Need

    try:
        executor = RayExecutor(sample_work.work, RayCluster.join(sys.argv[1]))
    except ExecutorError as error:
        sys.exit(str(error))
    rows = []
    conduct(sample_work.runs(50), executor, rows.extend, cost=lambda run: 1e-3, need=lambda run: Need(), total=50)
    executor.close()
    print(len(rows))
"""


@pytest.mark.parametrize("token", ["right", "wrong", "none"])
def test_a_running_cluster_is_joined_with_its_token_only(cluster: RayCluster, token: str) -> None:
    address = cluster.ray.get_runtime_context().gcs_address
    environment = {**os.environ, "PYTHONPATH": PATHS}
    if token == "wrong":
        environment["RAY_AUTH_TOKEN"] = "0" * 64
    elif token == "none":
        del environment["RAY_AUTH_MODE"], environment["RAY_AUTH_TOKEN"]
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(JOIN), address],
        capture_output=True,
        text=True,
        env=environment,
    )
    if token == "right":
        assert (child.returncode, child.stdout, child.stderr) == (0, "50\n", "")
    else:
        assert child.returncode == 1
        assert child.stderr == (
            f"cannot join the Ray cluster at {address}: it refused our token; "
            "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH\n"
        )


CHILD = """
    import os, signal, sys
    from support import sample_work
    from kising.sweep.drive.conductor import Policy, conduct
    from kising.sweep.execute import ray_internals
    from kising.sweep.execute.ray_cluster import RayCluster
    from kising.sweep.execute.ray_executor import RayExecutor
    from kising.errors import ExecutorError
    from kising.sweep.execute.protocol import Need

    def handler(number, frame): ...

    def go(source, executor):
        return conduct(source, executor, rows.extend, cost=lambda run: 1e-3, need=lambda run: Need(),
                       total=len(source), observers=[observe])

    signal.signal(signal.SIGTERM, handler)
    before, rows = dict(os.environ), []
    cluster = RayCluster.start(cpus=1)
    scratch = cluster._scratch.path
    executor = RayExecutor(sample_work.work, cluster)
    assert signal.getsignal(signal.SIGTERM) is handler
"""


def run_child(body: str) -> subprocess.CompletedProcess[str]:
    script = textwrap.dedent(CHILD) + textwrap.dedent(body)
    environment = {**os.environ, "PYTHONPATH": PATHS}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )


@pytest.mark.slow
def test_a_ray_of_our_own_is_quiet_and_leaves_nothing_behind() -> None:
    child = run_child("""
        observe = lambda snapshot: None
        assert go([sample_work.FakeRun(n, "kill" if n == 3 else "square") for n in range(20)], executor).failed == 1
        pid = ray_internals.process_id(cluster.ray, "raylet")
        executor.close()
        assert dict(os.environ) == before
        assert signal.getsignal(signal.SIGTERM) is handler
        assert not scratch.exists()
        assert not os.path.exists(f"/proc/{pid}/exe"), "the raylet lives"
    """)
    assert (child.returncode, child.stdout, child.stderr) == (0, "", "")


@pytest.mark.slow
def test_a_ray_that_was_imported_before_sees_the_token() -> None:
    script = """
        import ray
        from kising.sweep.execute.ray_cluster import RayCluster
        RayCluster.start(1).close()
        print("started")
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**environment, "PYTHONPATH": PATHS},
    )
    assert (child.returncode, child.stdout) == (0, "started\n"), child.stderr


@pytest.mark.parametrize("process", ["raylet", pytest.param("gcs_server", marks=pytest.mark.slow)])
def test_a_ray_that_breaks_down_ends_the_sweep_with_what_arrived(process: str) -> None:
    child = run_child(f"""
        def observe(snapshot):
            if snapshot.done:
                os.kill(ray_internals.process_id(cluster.ray, "{process}"), signal.SIGKILL)

        try:
            go(sample_work.runs(200, "pause"), executor)
        except ExecutorError as error:
            print(error)
        print(0 < len(rows) < 200)
        executor.close()
    """)
    assert child.stdout.splitlines() == [
        f"Ray broke down: its process {process} has ended; "
        "what is committed is safe, and the same command resumes",
        "True",
    ]
    assert (child.returncode, child.stderr) == (0, "")


def test_a_killed_driver_takes_its_ray_along_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    child = run_child("""
        def observe(snapshot):
            if snapshot.workers:
                print(scratch, ray_internals.process_id(cluster.ray, "raylet"), flush=True)
                os.kill(os.getpid(), signal.SIGKILL)

        go(sample_work.runs(50, "pause"), executor)
    """)
    assert child.returncode == -signal.SIGKILL
    scratch, pid = child.stdout.split()
    end = time.monotonic() + 20
    while os.path.exists(f"/proc/{pid}/exe") and time.monotonic() < end:
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{pid}/exe")
    assert Path(scratch).exists()
    from kising.sweep.execute.scratch import ScratchDirectory

    ScratchDirectory().remove()
    assert not Path(scratch).exists()
