"""Simulated workers send what real ones send, and charge the right prices."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kising.bench.scaling import Simulated, _spec, line, simulate
from kising.bench.simulated_workers import Clock, Prices, SimulatedWorkers, own_core, sample_row
from kising.sweep.drive.conductor import conduct
from kising.sweep.execute.protocol import Batch, Finished, Need, Rows, Started
from kising.sweep.plan import Plan
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.run_store import Store
from kising.version import NUMERICS, __version__

FREE = Prices(0.0, 0.0, 0.0)


def test_events_of_a_batch_come_in_order_and_no_row_is_missing() -> None:
    runs = tuple(Plan.of(_spec(7)).runs())
    workers = SimulatedWorkers(2, 0.01, FREE, Clock())
    for number in range(3):  # one waits for a worker
        workers.submit(Batch(number, runs, 1, None, None, chunk_seconds=0.02))
    events = []
    while sum(isinstance(event, Finished) for event in events) < 3:
        events.extend(workers.events(1.0))
    for number in range(3):
        first, *middle, last = [event for event in events if event.batch_id == number]
        assert isinstance(first, Started)
        assert last == Finished(number)
        assert len(middle) > 1
        assert all(isinstance(event, Rows) for event in middle)
        assert [row["run_id"] for event in middle for row in event.rows] == [run.run_id for run in runs]
    assert workers.events(0.0) == []


def test_a_sweep_on_simulated_workers_is_whole() -> None:
    plan, rows, need = Plan.of(_spec(500)), [], Need()
    workers = SimulatedWorkers(100, 0.005, FREE, Clock())
    outcome = conduct(plan.runs(), workers, rows.extend, cost=lambda _: 0.005, need=lambda _: need, total=500)
    assert (outcome.done, outcome.lost) == (500, 0)
    assert {row["run_id"] for row in rows} == {run.run_id for run in plan.runs()}
    assert (workers.rows, workers.batches) == (500, outcome.batches)


def test_the_driver_is_charged() -> None:
    runs = tuple(Plan.of(_spec(10)).runs())
    clock = Clock()
    workers = SimulatedWorkers(1, 0.0, Prices(batch=20.0, message=10.0, row=5.0), clock)
    workers.submit(Batch(0, runs, 1, None, None))
    events = []
    while not events or events[-1] != Finished(0):
        events.extend(workers.events(1.0))
    assert workers.messages == 1  # that it has started is not counted: the batch's price has that
    assert clock.cpu() - time.process_time() == pytest.approx(20.0 + 10.0 + 10 * 5.0, abs=1.0)


def test_a_core_of_ones_own_sleeps_in_no_time() -> None:
    began = time.perf_counter()
    with own_core() as clock:
        before, worked = time.monotonic(), clock.cpu()
        time.sleep(1e6)
        clock.charge(1e3)
        assert time.monotonic() - before >= 1e6 + 1e3
        assert 1e3 <= clock.cpu() - worked < 2e3
    assert time.perf_counter() - began < 1e6
    assert time.monotonic != clock.now


def test_a_sample_row_is_one_that_the_store_takes(tmp_path: Path) -> None:
    (run,) = Plan.of(_spec(1)).runs()
    directory = SweepDirectory.create(tmp_path)
    with directory.lock():
        store = Store.open(directory)
        store.commit([{**sample_row(run, 1.0, "h"), "numerics": NUMERICS, "version": __version__}])
        assert len(store.scan().ids) == 1


def test_a_simulation_counts_what_it_drives() -> None:
    case = simulate(20, 0.05, FREE, window=1.0, ramp=1.0)
    assert case.workers == 20
    assert case.batches < case.runs <= 20 / 0.025
    assert case.cpu > 0
    assert case.memory > 1e6


def test_a_line_of_the_table() -> None:
    text = line(Simulated(workers=1000, run_seconds=10, batches=50.0, runs=100.0, cpu=0.25, memory=3e8))
    assert text.split() == ["1000", "10", "s", "20.0", "s", "50.0", "100", "25.0%", "300", "MB"]
