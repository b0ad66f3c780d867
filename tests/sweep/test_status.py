"""What `plan` and `status` print of a directory."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from kising.bench.simulated_workers import sample_row
from kising.sweep.execute.batch_loop import failed_row
from kising.sweep.plan import Plan
from kising.sweep.spec import dump_spec, parse_spec
from kising.sweep.status import describe_plan, describe_status, is_running
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.records import BatchProgress, NodeProgress, Progress
from kising.sweep.store.run_store import Store
from kising.version import NUMERICS, __version__

SPEC = parse_spec({"name": "tiny", "seed": 1, "realizations": 6, "model": {"visible": 5, "hidden": 2},
                   "data": {"length": 100}})  # fmt: skip


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
    assert list(describe_status(directory.path)) == [f"{directory.path}: 2 of 6 runs done, not running"]


def progress(directory: SweepDirectory, *, host: str, updated: float, pid: int, workers: int) -> None:
    node = NodeProgress(cores=4.0, busy=workers, runs=workers, finished=3, rate=2.0)
    batches = [BatchProgress(host=host, runs=1, seconds=70.0), BatchProgress(host=host, runs=2, seconds=3.0)]
    directory.write_progress(
        Progress(state="running", total=6, done=2, failed=1, running=workers, rate=0.5, eta=90.0, workers=workers,
                 nodes={host: node}, oldest=batches, pid=pid, host=host, updated=updated)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("workers", "flight"), [(1, "1 run in flight on 1 worker"), (2, "2 runs in flight on 2 workers")]
)
def test_a_running_sweep(directory: SweepDirectory, workers: int, flight: str) -> None:
    host = socket.gethostname()
    progress(directory, host=host, updated=time.time() - 3, pid=os.getpid(), workers=workers)
    assert is_running(directory.path)
    assert list(describe_status(directory.path)) == [
        f"{directory.path}: running, 2 of 6 runs done, 1 failed",
        f"  {flight}, 0.5 runs/s, 1 min 30 s to go",
        f"  driver: pid {os.getpid()} on {host}, last update 3 s ago",
        f"  {host}  {workers} of 4 cores in use, {flight.partition(' on')[0]}, 3 finished, 2 runs/s",
        f"  in flight for 1 min 10 s on {host}: 1 run",
        f"  in flight for 3 s on {host}: 2 runs",
    ]


def test_a_driver_elsewhere_that_is_silent_has_ended(directory: SweepDirectory) -> None:
    progress(directory, host="elsewhere", updated=time.time() - 3, pid=1, workers=1)
    assert is_running(directory.path)
    progress(directory, host="elsewhere", updated=time.time() - 100, pid=1, workers=1)
    assert not is_running(directory.path)
    assert list(describe_status(directory.path)) == [
        f"{directory.path}: interrupted, 2 of 6 runs done, 1 failed",
        f"  to go on: kising run {directory.path}",
    ]
