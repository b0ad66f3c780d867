"""`kising bench --driver`: what a driver costs, here and, by simulation, with thousands of workers.

Ray's share of the driver's cost is measured on a Ray of two workers that answer at once. The simulation is
the real conductor, store, tables and journal against workers that only sleep and that charge Ray's prices;
what Ray's own processes on the head need beside the driver, and waiting for the disk, are not in it.
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

from kising.bench.sleepers import Prices, Sleepers, instant, own_core
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
"""Workers, seconds of a run."""


RUNS: Final = 40
"""Learning runs for each worker."""


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
    """A driver of so many workers, in the steady state."""

    workers: int
    run_seconds: float
    batches: float  # a second
    runs: float  # a second
    cpu: float  # cores that the driver took
    memory: float  # bytes of the driver, Ray's library not included

    @property
    def batch_seconds(self) -> float:
        """Seconds that a batch takes."""
        return self.workers / self.batches if self.batches else float("inf")


def bench_driver(
    cases: Sequence[tuple[int, float]] = CASES, *, window: float = 60.0, rounds: int = 5
) -> Iterator[str]:
    """Measure everything; yields lines as they come."""
    from kising.sweep.execute.ray_executor import RayCluster, RayExecutor
    from kising.sweep.task import perform

    cluster = RayCluster.start(cpus=2)
    executor = RayExecutor(instant, cluster)
    prices, weight = ray_prices(executor, rounds=rounds)
    resident = _resident()
    executor.close()
    yield (
        f"Ray costs the driver {1e3 * prices.batch:.2f} ms a batch, {1e3 * prices.message:.2f} ms a message of rows, "
        f"{1e6 * prices.row:.1f} µs a run ({1e9 * prices.row / weight:.0f} ns a byte of its {weight:.0f})"
    )
    yield f"the driver with Ray's library holds {resident / 1e6:.0f} MB"
    alone, _ = _rate(InProcessExecutor(perform), 1)
    yield f"learning runs, one after another in this process: {alone:.2f} a second"
    for cpus in (1, 2):
        rate, busy = _rate(RayExecutor(perform, RayCluster.start(cpus=cpus)), cpus)
        yield (
            f"on {cpus} worker{'s' * (cpus > 1)}: {rate:.2f} a second, efficiency {rate / (cpus * alone):.0%}; "
            f"workers are in runs {busy:.0%} of the time"
        )
    yield "  workers   a run    a batch  batches/s   runs/s  driver's cpu  memory"
    spawn = multiprocessing.get_context("spawn")
    for workers, seconds in cases:
        # A process for each: memory is its own.
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            yield line(pool.submit(simulate, workers, seconds, prices, window).result())


def line(case: Simulated) -> str:
    """A case as a line of the table."""
    return (
        f"{case.workers:9d}{case.run_seconds:6.0f} s{case.batch_seconds:9.1f} s"
        f"{case.batches:11.1f}{case.runs:9.0f}{case.cpu:14.1%}{case.memory / 1e6:5.0f} MB"
    )


def ray_prices(executor: RayExecutor, *, rounds: int) -> tuple[Prices, float]:
    """What Ray costs this process, and the bytes of a row on its way; executor: of `instant`."""
    runs = tuple(Plan.of(_spec(3_000)).runs())
    _spent(executor, runs[:1], 20)  # processes start, and import
    kinds = [
        (runs[:1], 300, 1.0),  # many batches,
        (runs[:300], 3, 0.0),  # many messages of a row each,
        (runs, 3, 1.0),  # many rows in few messages
    ]
    equations, costs, weight = [], [], 0.0
    for chosen, count, chunk_seconds in kinds:
        spent = min(_spent(executor, chosen, count, chunk_seconds) for _ in range(rounds))
        equations.append((count, spent.messages, count * len(chosen)))
        costs.append(spent.cpu)
        weight = spent.weight
    batch, message, row = np.maximum(np.linalg.solve(np.array(equations), np.array(costs)), 0.0)
    return Prices(float(batch), float(message), float(row)), weight


class _Spent(NamedTuple):
    cpu: float  # seconds
    messages: int
    weight: float  # bytes a row, in its message


def _spent(executor: RayExecutor, runs: tuple[Run, ...], count: int, chunk_seconds: float = 1.0) -> _Spent:
    """What `count` batches of these runs cost."""
    began, messages, weight, left = time.process_time(), 0, 0.0, count
    for number in range(count):
        executor.submit(Batch(number, runs, 1, None, None, chunk_seconds=chunk_seconds))
    while left:
        for event in executor.events(1.0):
            left -= isinstance(event, Finished)
            if isinstance(event, Rows):
                messages += 1
                weight = weight or len(pickle.dumps(event, protocol=5)) / len(event.rows)
    return _Spent(time.process_time() - began, messages, weight)


def _rate(executor: Executor, cpus: int) -> tuple[float, float]:
    """Learning runs a second on warm workers, and the part of its time that a worker is in runs."""
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
    """Run a plan; return the seconds that its runs have taken together."""
    rows: list[dict[str, Any]] = []
    need = Need()
    conduct(
        plan.runs(), executor, rows.extend, cost=lambda run: 0.5, need=lambda run: need, total=plan.n_runs
    )
    return float(sum(row["seconds"] for row in rows))


def simulate(
    workers: int, seconds: float, prices: Prices, window: float, ramp: float | None = None
) -> Simulated:
    """Drive so many sleepers for `window` seconds of the steady state; in a process of its own."""
    from kising.report.tables import Tables
    from kising.sweep.drive.progress_file import Journal
    from kising.sweep.drive.signals import StopRequest
    from kising.sweep.store.directory import SweepDirectory
    from kising.sweep.store.run_store import Store

    plan = Plan.of(_spec(max(2_000_000, int(workers * 1_000 / seconds))))
    stop, marks = StopRequest(), list[tuple[float, float, int, int]]()
    # The first wave begins and ends all at once; wait until it has spread.
    ramp = 30.0 + 5 * seconds if ramp is None else ramp
    # Batches that began together end together: all of their time is looked at.
    window = max(window, batching.SECONDS_PER_SLOT * workers)
    need = Need()

    with tempfile.TemporaryDirectory() as place:
        directory = SweepDirectory.create(Path(place))
        with directory.lock("kising bench"), own_core() as clock:
            executor = Sleepers(workers, seconds, prices, clock)
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
                observers=(Journal(directory), observe),
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
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE"))
