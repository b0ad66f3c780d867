"""`kising bench --driver`: the cost of a driver, here and, by simulation, with thousands of workers.

Ray's share of the cost is measured on a Ray of two workers that answer at once. The simulation runs the real
conductor, store, tables and progress file against simulated workers that charge Ray's prices. It leaves out
Ray's own processes on the head, and waiting for the disk.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kising.bench.simulated_workers import Prices, SimulatedWorkers, instant, own_core
from kising.sweep.drive import batching
from kising.sweep.drive.conductor import Policy, conduct
from kising.sweep.execute.in_process import InProcessExecutor
from kising.sweep.execute.protocol import Batch, Executor, Finished, Need, Rows
from kising.sweep.plan import Plan
from kising.sweep.spec import SweepSpec, parse_spec
from kising.version import NUMERICS, __version__

if TYPE_CHECKING:
    from kising.sweep.drive.progress import Snapshot
    from kising.sweep.execute.ray_executor import RayExecutor
    from kising.sweep.plan import Run

CASES: Final = ((1_000, 1.0), (1_000, 10.0), (10_000, 10.0), (10_000, 60.0))
"""Workers, seconds per run."""

RUNS: Final = 40
"""Learning runs per worker."""


def _spec(realizations: int, length: int = 1000) -> SweepSpec:
    return parse_spec(
        {
            "name": "bench",
            "seed": 1,
            "realizations": realizations,
            "model": {"visible": 10, "hidden": 4},
            "learner": {"max_iterations": 40, "tolerance": 1e-12, "estimator": "exact"},
            "data": {"length": length},
        }
    )


@dataclass(frozen=True)
class Simulated:
    """A driver of `workers` workers in the steady state."""

    workers: int
    run_seconds: float
    batches: float  # per second
    runs: float  # per second
    cpu: float  # cores that the driver used
    memory: float  # bytes of the driver, without Ray's library

    @property
    def batch_seconds(self) -> float:
        """Seconds per batch."""
        return self.workers / self.batches if self.batches else float("inf")


def bench_driver(
    cases: Sequence[tuple[int, float]] = CASES, *, window: float = 60.0, rounds: int = 5
) -> Iterator[str]:
    """Measure everything; yield lines as they are known."""
    from kising.messages import plural
    from kising.sweep.execute.ray_cluster import RayCluster
    from kising.sweep.execute.ray_executor import RayExecutor
    from kising.sweep.task import perform

    cluster = RayCluster.start(cpus=2)
    executor = RayExecutor(instant, cluster)
    prices, size = ray_prices(executor, rounds=rounds)
    resident = _resident()
    executor.close()
    yield (
        f"Ray costs the driver {1e3 * prices.batch:.2f} ms per batch, {1e3 * prices.message:.2f} ms per message "
        f"of rows, {1e6 * prices.row:.1f} µs per run (of {size:.0f} bytes, {1e9 * prices.row / size:.0f} ns each)"
    )
    yield f"the driver with Ray's library takes {resident / 1e6:.0f} MB"
    alone, _ = _rate(InProcessExecutor(perform), 1)
    yield f"learning runs, one after another in this process: {alone:.2f} per second"
    for cpus in (1, 2):
        rate, busy = _rate(RayExecutor(perform, RayCluster.start(cpus=cpus)), cpus)
        yield (
            f"on {plural(cpus, 'worker')}: {rate:.2f} per second, efficiency {rate / (cpus * alone):.0%}; "
            f"workers spend {busy:.0%} of the time in runs"
        )
    yield "  workers     run      batch  batches/s   runs/s  driver's cpu  memory"
    spawn = multiprocessing.get_context("spawn")
    for workers, seconds in cases:
        # One process per case, so that its memory is its own.
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            yield line(pool.submit(simulate, workers, seconds, prices, window).result())


def line(case: Simulated) -> str:
    """One line of the table."""
    return (
        f"{case.workers:9d}{case.run_seconds:6.0f} s{case.batch_seconds:9.1f} s"
        f"{case.batches:11.1f}{case.runs:9.0f}{case.cpu:14.1%}{case.memory / 1e6:5.0f} MB"
    )


def ray_prices(executor: RayExecutor, *, rounds: int) -> tuple[Prices, float]:
    """What Ray costs this process, and the bytes of a row in a message. The executor runs `instant`."""
    runs = tuple(Plan.of(_spec(3_000)).runs())
    _spent(executor, runs[:1], 20)  # processes start, and import
    kinds = [
        (runs[:1], 300, 1.0),  # many batches,
        (runs[:300], 3, 0.0),  # many messages of one row each,
        (runs, 3, 1.0),  # many rows in few messages
    ]
    equations, costs, size = [], [], 0.0
    for chosen, count, chunk_seconds in kinds:
        spent = min(_spent(executor, chosen, count, chunk_seconds) for _ in range(rounds))
        equations.append((count, spent.messages, count * len(chosen)))
        costs.append(spent.cpu)
        size = spent.size
    batch, message, row = np.maximum(np.linalg.solve(np.array(equations), np.array(costs)), 0.0)
    return Prices(float(batch), float(message), float(row)), size


class _Spent(NamedTuple):
    cpu: float  # seconds
    messages: int
    size: float  # bytes per row, in its message


def _spent(executor: RayExecutor, runs: tuple[Run, ...], count: int, chunk_seconds: float = 1.0) -> _Spent:
    """The cost of `count` batches of these runs."""
    began, messages, size, left = time.process_time(), 0, 0.0, count
    for number in range(count):
        executor.submit(Batch(number, runs, 1, None, None, chunk_seconds=chunk_seconds))
    while left:
        for event in executor.events(1.0):
            left -= isinstance(event, Finished)
            if isinstance(event, Rows):
                messages += 1
                size = size or len(pickle.dumps(event, protocol=5)) / len(event.rows)
    return _Spent(time.process_time() - began, messages, size)


def _rate(executor: Executor, cpus: int) -> tuple[float, float]:
    """Learning runs per second on warm workers, and the fraction of time that workers spend in runs."""
    try:
        _sweep(executor, Plan.of(_spec(4 * cpus)))
        plan = Plan.of(_spec(RUNS * cpus, length=8_000))
        began = time.perf_counter()
        inside = _sweep(executor, plan)
        wall = time.perf_counter() - began
        return plan.n_runs / wall, inside / (cpus * wall)
    finally:
        executor.close()


def _sweep(executor: Executor, plan: Plan) -> float:
    """Run a plan; return the total seconds of its runs."""
    rows: list[dict[str, Any]] = []
    need = Need()
    conduct(
        plan.runs(), executor, rows.extend, cost=lambda run: 0.5, need=lambda run: need, total=plan.n_runs
    )
    return float(sum(row["seconds"] for row in rows))


def simulate(
    workers: int, seconds: float, prices: Prices, window: float, ramp: float | None = None
) -> Simulated:
    """Drive simulated workers for `window` seconds of the steady state; to be called in a process of its own."""
    from kising.report.tables import Tables
    from kising.sweep.drive.progress_file import ProgressFile
    from kising.sweep.drive.signals import StopRequest
    from kising.sweep.store.directory import SweepDirectory
    from kising.sweep.store.run_store import Store

    plan = Plan.of(_spec(max(2_000_000, int(workers * 1_000 / seconds))))
    stop, marks = StopRequest(), list[tuple[float, float, int, int]]()
    # The first batches start and end all at once; wait until they have spread out.
    ramp = 30.0 + 5 * seconds if ramp is None else ramp
    # Batches that began together end together: the window covers a whole batch.
    window = max(window, batching.SECONDS_PER_SLOT * workers)
    need = Need()

    with tempfile.TemporaryDirectory() as place:
        directory = SweepDirectory.create(Path(place))
        with directory.lock("kising bench"), own_core() as clock:
            executor = SimulatedWorkers(workers, seconds, prices, clock)
            store = Store.open(directory)
            tables = Tables(store, plan)

            def commit(rows: Sequence[dict[str, object]]) -> None:
                store.commit(rows)
                store.compact()
                tables.refresh()

            def observe(snapshot: Snapshot) -> None:
                if snapshot.seconds >= ramp + len(marks) * window:
                    marks.append((clock.now(), clock.cpu(), executor.batches, executor.rows))
                    if len(marks) == 2:
                        stop.ask("enough")

            conduct(
                plan.runs(),
                executor,
                commit,
                cost=lambda run: seconds,
                need=lambda run: need,
                total=plan.n_runs,
                stamp={"numerics": NUMERICS, "version": __version__},
                policy=Policy(grace_seconds=0.0),
                stop=stop,
                observers=(ProgressFile(directory), observe),
            )
    (began, cpu, batches, rows), (ended, cpu_after, batches_after, rows_after) = marks[:2]
    wall = ended - began
    return Simulated(
        workers=workers,
        run_seconds=seconds,
        batches=(batches_after - batches) / wall,
        runs=(rows_after - rows) / wall,
        cpu=(cpu_after - cpu) / wall,
        memory=_resident(),
    )


def _resident() -> float:
    """Resident memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE"))
