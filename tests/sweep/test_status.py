"""What `plan` and `status` print of a directory."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from kising.bench.simulated_workers import sample_row
from kising.sweep.drive.cost import CostModel
from kising.sweep.drive.progress import BatchAge, Snapshot
from kising.sweep.drive.progress_file import ProgressFile
from kising.sweep.execute.batch_loop import failed_row
from kising.sweep.plan import Plan
from kising.sweep.spec import dump_spec, parse_spec
from kising.sweep.status import REPORT, calibrate, describe_plan, describe_status, is_running
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.liveness import is_locked, liveness
from kising.sweep.store.records import BatchProgress, NodeProgress, Progress, RunProgress
from kising.sweep.store.run_store import Store
from kising.version import NUMERICS, __version__

SPEC = parse_spec({"name": "tiny", "seed": 1, "realizations": 6, "model": {"visible": 5, "hidden": 2},
                   "data": {"length": 100}})  # fmt: skip


OTHERS = f"2 finished runs were made by numerics version {NUMERICS - 1}, {NUMERICS + 1}, this is version {NUMERICS}"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def directory(tmp_path: Path) -> SweepDirectory:
    """A sweep of six runs: two done, one failed, two done by other numerics, one not run."""
    directory = SweepDirectory.create(tmp_path / "r")
    runs = list(Plan.of(SPEC).runs())
    rows = [sample_row(run, 1.0, "h") for run in runs[:2]]
    rows += [failed_row(runs[2], "it failed")]
    rows += [{**sample_row(runs[3], 1.0, "h"), "numerics": NUMERICS - 1}]
    rows += [{**sample_row(runs[4], 1.0, "h"), "numerics": NUMERICS + 1}]
    with directory.lock():
        directory.write_sweep(dump_spec(SPEC))
        Store.open(directory).commit([{"numerics": NUMERICS, "version": __version__, **row} for row in rows])
    return directory


def test_only_runs_of_these_numerics_are_done(directory: SweepDirectory) -> None:
    assert f"2 of 6 runs are done in {directory.path}" in list(describe_plan(SPEC, directory.path))
    failed = Plan.of(SPEC).run(2).run_id
    assert list(describe_status(directory.path)) == [
        f"{directory.path}: 2 of 6 runs done, not running",
        f"  not counted: {OTHERS}",
        f"  failed: {failed}, realization 2: it failed",
        f"  `kising show {directory.path} RUN` shows everything about a run",
    ]


def test_what_is_left_is_what_run_would_make(directory: SweepDirectory) -> None:
    """Of one run that is not there, one that failed, and two of other numerics: the first."""
    lines = list(describe_plan(SPEC, directory.path))
    assert "1 run failed: `kising run` repeats failed runs only with --retry-failed" in lines
    (stale,) = [line for line in lines if line.startswith(OTHERS)]
    (point,) = Plan.of(SPEC).points
    hours = CostModel().seconds(point) / 3600
    assert stale.removeprefix(OTHERS) == (
        f": `kising run` asks for --stale keep, or for --stale redo, which takes about {2 * hours:.3g} core-hours more"
    )
    assert any(line.startswith(f"estimated cost of what is left: {hours:.3g} core-hours") for line in lines)


def test_after_a_kill_rows_count_that_the_session_kept(directory: SweepDirectory) -> None:
    progress(directory, done=4, failed=1)
    assert headline(directory) == "interrupted, 2 of 6 runs done, 1 failed"
    assert f"  not counted: {OTHERS}" in list(describe_status(directory.path))
    directory.write_manifest(numerics=NUMERICS, command="kising run tiny.yaml --stale redo")
    assert headline(directory) == "interrupted, 2 of 6 runs done, 1 failed"
    directory.write_manifest(numerics=NUMERICS, command="kising run tiny.yaml --stale keep")
    assert headline(directory) == "interrupted, 4 of 6 runs done, 1 failed"
    assert not any("not counted" in line for line in describe_status(directory.path))
    directory.progress_file.unlink()
    assert headline(directory) == "4 of 6 runs done, not running"


def progress(directory: SweepDirectory, **changed: object) -> Progress:
    host = str(changed.get("host", socket.gethostname()))
    workers = changed.pop("workers", 1)
    assert isinstance(workers, int)
    node = NodeProgress(cores=4.0, busy=workers, runs=workers, finished=3, rate=2.0)
    run = RunProgress(run_id="0123456789abcdef", label="data.length=200, realization 3", error=None)
    failed = RunProgress(run_id="fedcba9876543210", label="data.length=100, realization 0", error="it broke")
    batches = [
        BatchProgress(host=host, runs=1, seconds=70.0, run=run),
        BatchProgress(host=host, runs=2, seconds=3.0),
    ]
    found = Progress(
        state="running", total=6, done=2, failed=1, running=workers, rate=0.5, eta=90.0, workers=workers,
        nodes={host: node}, oldest=batches, failures=[failed], pid=os.getpid(), host=host, updated=time.time() - 3,
    ).model_copy(update=changed)  # fmt: skip
    directory.write_progress(found)
    return found


@pytest.mark.parametrize(
    ("workers", "flight"), [(1, "1 run in flight on 1 worker"), (2, "2 runs in flight on 2 workers")]
)
def test_a_running_sweep(directory: SweepDirectory, workers: int, flight: str) -> None:
    host = socket.gethostname()
    with directory.lock("kising run"):
        progress(directory, workers=workers)
        assert is_running(directory.path)
        lines = list(describe_status(directory.path))
    assert lines == [
        f"{directory.path}: running, 2 of 6 runs done, 1 failed",
        f"  {flight}, 2 s per run, 1 min 30 s to go",
        f"  driver: pid {os.getpid()} on {host}, last update 3 s ago",
        f"  {host}  {workers} of 4 cores in use, {flight.partition(' on')[0]}, 3 finished, 2 runs/s",
        f"  in flight for 1 min 10 s on {host}: 1 run, now 0123456789abcdef, data.length=200, realization 3",
        f"  in flight for 3 s on {host}: 2 runs",
        "  failed: fedcba9876543210, data.length=100, realization 0: it broke",
        f"  `kising show {directory.path} RUN` shows everything about a run",
    ]


def headline(directory: SweepDirectory) -> str:
    return next(iter(describe_status(directory.path))).removeprefix(f"{directory.path}: ")


def test_who_holds_the_lock_is_running_before_it_has_written_anything(directory: SweepDirectory) -> None:
    with directory.lock("kising run"):
        assert headline(directory) == "2 of 6 runs done, starting"
        progress(directory, state="finished")  # of the session before
        assert headline(directory) == "starting, 2 of 6 runs done, 1 failed"
        assert is_running(directory.path)
    assert headline(directory) == "finished, 2 of 6 runs done, 1 failed"
    with directory.lock(REPORT):
        assert headline(directory) == "finished, being reported, 2 of 6 runs done, 1 failed"


def test_a_process_that_has_the_drivers_pid_by_now_is_not_the_driver(directory: SweepDirectory) -> None:
    progress(directory, pid=os.getpid())
    assert not is_running(directory.path)
    assert headline(directory) == "interrupted, 2 of 6 runs done, 1 failed"
    assert f"  to resume: kising run {directory.path}" in list(describe_status(directory.path))
    directory.write_manifest(numerics=NUMERICS, command="kising run tiny.yaml --mirror s3://b/p --stale keep")
    resume = f"kising run {directory.path} --mirror s3://b/p --stale keep"
    assert f"  to resume: {resume}" in list(describe_status(directory.path))


def test_after_a_kill_only_written_rows_count(directory: SweepDirectory) -> None:
    with directory.lock("kising run"):
        progress(directory, done=4, failed=2)
        assert headline(directory) == "running, 4 of 6 runs done, 2 failed"
    assert headline(directory) == "interrupted, 2 of 6 runs done, 1 failed"
    progress(directory, done=2, failed=1, state="interrupted")  # by Ctrl-C: all was written
    assert headline(directory) == "interrupted, 2 of 6 runs done, 1 failed"
    progress(directory, done=4, failed=2, state="interrupted")  # and then somebody has removed rows
    assert headline(directory) == "damaged, 2 of 6 runs done, 1 failed"


def test_looking_at_the_lock_takes_it_from_nobody(directory: SweepDirectory) -> None:
    assert is_locked(directory.lock_file) is False
    assert is_locked(directory.path / "no such file") is False
    # A look that lasts is waited for, as one that is over in a moment.
    look = os.open(directory.lock_file, os.O_RDONLY)
    fcntl.flock(look, fcntl.LOCK_SH)
    threading.Timer(0.05, os.close, (look,)).start()
    with directory.lock():
        assert is_locked(directory.lock_file)
    assert is_locked(directory.lock_file) is False


@pytest.mark.parametrize("clock", [-7200.0, 0.0, 7200.0])
def test_a_driver_elsewhere_is_known_by_its_heartbeat_whatever_its_clock_says(
    directory: SweepDirectory, clock: float
) -> None:
    # Its lock is not seen here. It writes what it always wrote, but for the beat.
    stop = threading.Event()

    def beat() -> None:
        count = 0
        while not stop.wait(0.05):
            progress(directory, host="elsewhere", beat=(count := count + 1), updated=time.time() + clock)

    driver = threading.Thread(target=beat)
    progress(directory, host="elsewhere", updated=time.time() + clock)
    driver.start()
    try:
        assert liveness(directory, watch_seconds=5.0) == "running"
    finally:
        stop.set()
        driver.join()
    # It has died. Only a date that is near says that it may not have.
    found = liveness(directory, watch_seconds=0.2)
    assert found == ("silent" if clock == 0 else "ended")


def test_a_driver_elsewhere_that_is_silent_may_have_ended(
    directory: SweepDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kising.sweep.store.liveness.liveness.__kwdefaults__", {"watch_seconds": 0.2})
    progress(directory, host="elsewhere")
    lines = list(describe_status(directory.path))
    assert lines[0] == f"{directory.path}: running?, 2 of 6 runs done, 1 failed"
    assert "no sign of its driver" in lines[1]
    progress(directory, host="elsewhere", updated=time.time() - 100)
    assert headline(directory) == "interrupted, 2 of 6 runs done, 1 failed"


def test_the_file_beats_while_no_snapshot_arrives(
    directory: SweepDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kising.sweep.drive.progress_file.BEAT_SECONDS", 0.02)
    file = ProgressFile(directory)
    beats = set()
    with file.session(total=6, done=2, failed=1):
        deadline = time.monotonic() + 30
        while len(beats) < 3 and time.monotonic() < deadline:
            found = directory.read_progress()
            assert found is not None
            assert (found.state, found.total, found.done, found.failed) == ("starting", 6, 2, 1)
            beats.add(found.beat)
        file.end("finished")
    assert len(beats) == 3
    last = directory.read_progress()
    assert last is not None
    assert last.state == "finished"
    time.sleep(0.1)
    assert directory.read_progress() == last
    with pytest.raises(RuntimeError, match="broken"), file.session(total=6, done=2, failed=1):
        raise RuntimeError("broken")
    last = directory.read_progress()
    assert last is not None
    assert last.state == "failed"


def test_batches_without_a_run_in_flight_are_not_named(directory: SweepDirectory) -> None:
    file = ProgressFile(directory)
    ages = tuple(BatchAge(batch_id=n, host="h", runs=n, seconds=2.0) for n in (0, 3))
    with file.session(total=6, done=0, failed=0):
        file(
            Snapshot(
                total=6, done=2, failed=0, running=3, queued=1, rate=None, eta=None, workers=2, slots=2, seconds=2.0,
                hosts={}, oldest=ages,
            )
        )  # fmt: skip
        found = directory.read_progress()
    assert found is not None
    assert [batch.runs for batch in found.oldest] == [3]


@pytest.mark.parametrize("folds", [2, 5])
def test_a_recording_is_calibrated_on_folds_that_it_has(tmp_path: Path, folds: int) -> None:
    np.save(tmp_path / "spins.npy", np.random.default_rng(1).choice([-1, 1], (300, 4)).astype(np.int8))
    mapping = {"name": "recording", "seed": 1, "model": {"hidden": 1}, "learner": {"estimator": "exact"},
               "data": {"file": str(tmp_path / "spins.npy"), "folds": folds}}  # fmt: skip
    spec = parse_spec(mapping)
    calibrate(spec)
    assert all(CostModel.load().knows(point) for point in Plan.of(spec).points)
