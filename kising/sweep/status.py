"""What `kising plan` and `kising status` print, without running anything. Loads no compiler, no Ray, no pandas."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kising.messages import plural
from kising.sweep.drive.cost import CostModel, kind_of, memory, most_iterations
from kising.sweep.drive.progress import duration, speed
from kising.sweep.failures import Failure, failure_of, failures_in
from kising.sweep.labels import varied_keys
from kising.sweep.plan import Plan, Point
from kising.sweep.remaining import Standing
from kising.sweep.resuming import recorded_flags, recorded_resume_command
from kising.sweep.spec import SweepSpec, read_spec, recording_of
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.inventory import take_inventory
from kising.sweep.store.liveness import OVER, WATCH_SECONDS, Liveness, liveness
from kising.sweep.store.records import Progress
from kising.version import NUMERICS

if TYPE_CHECKING:
    from kising.sweep.store.index import Scan
    from kising.sweep.store.run_store import Store

# What `kising report` calls itself while it holds the lock.
REPORT = "kising report"
# Of the batches in flight, and of the failed runs, the first ones.
SHOWN = 5
# Runs for calibration: long enough to time, short enough to wait for.
CALIBRATION_RUNS = 3
CALIBRATION_LENGTH = 3000
CALIBRATION_ITERATIONS = 10


def describe_plan(spec: SweepSpec, path: Path) -> Iterator[str]:
    """Points, runs, how many are done, and the core-hours and memory of the rest."""
    plan = Plan.of(spec)
    points, realizations = plural(len(plan.points), "point"), plural(spec.realizations, "realization")
    product = f"{points} x {realizations} = {plural(plan.n_runs, 'run')}"
    yield f"{spec.name}: task {spec.task}, {product}"
    for axis in spec.axes:
        yield f"  {' and '.join(axis.keys)}: {plural(len(axis), 'value')}"
    opened = _open(path)
    if SweepDirectory(path).is_published:
        done, failed, _ = _published(plan, path)
        yield (
            f"{path} holds published tables with {done + failed} of these {plan.n_runs} runs, and `kising run` refuses "
            f"to replace them: choose another directory with --out; there, --reuse {path} takes finished runs over"
        )
        left = np.full(len(plan.points), spec.realizations)
    elif opened is None:
        yield f"nothing is done yet; results will go to {path}"
        left = np.full(len(plan.points), spec.realizations)
    else:
        standing = Standing.of(plan, *opened, numerics=NUMERICS)
        yield f"{int(standing.done().sum())} of {plan.n_runs} runs are done in {path}"
        left = _by_point(plan, standing.to_do())
        failed = int(standing.failed.sum())
        if failed:
            yield f"{plural(failed, 'run')} failed: `kising run` repeats failed runs only with --retry-failed"
        if standing.stale.any():
            seconds = _seconds(plan, _by_point(plan, standing.stale), CostModel.load())
            yield (
                f"{standing.stale_note(NUMERICS)}: `kising run` asks for --stale keep, or for --stale redo, which "
                f"takes about {seconds / 3600:.3g} core-hours more"
            )
        yield from _shrinking(plan, *opened)
    yield from _costs(plan, left)


def _by_point(plan: Plan, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many runs of every point a mask has."""
    found: NDArray[np.int64] = mask.reshape(len(plan.points), plan.spec.realizations).sum(axis=1)
    return found


def _seconds(plan: Plan, counts: NDArray[np.int64], costs: CostModel) -> float:
    """Expected seconds on one core of this many runs of every point."""
    pairs = zip(plan.points, map(int, counts), strict=True)
    return sum(costs.seconds(point) * count for point, count in pairs if count)


def _costs(plan: Plan, left: NDArray[np.int64]) -> Iterator[str]:
    costs = CostModel.load()
    seconds, largest, unknown = _seconds(plan, left, costs), 0, set()
    for point, count in zip(plan.points, left.tolist(), strict=True):
        if count:
            largest = max(largest, memory(point, plan.spec.resources.cpus))
            if not costs.knows(point):
                unknown.add(kind_of(point))
    if not left.any():
        yield "nothing is left to do"
        return
    cores = os.cpu_count() or 1
    yield (
        f"estimated cost of what is left: {seconds / 3600:.3g} core-hours "
        f"({duration(seconds / cores)} on {plural(cores, 'core')} of this machine)"
    )
    yield f"estimated memory: {largest / 1e6:.0f} MB per run at most"
    if unknown:
        yield (
            f"never measured on this machine: {', '.join(sorted(unknown))}. So the estimate is rough; it gets better "
            "with the first runs, or with `kising plan --calibrate`"
        )
        yield "kernels that are not compiled yet take up to half a minute more per worker"


def _open(path: Path) -> tuple[Store, Scan] | None:
    """The parts of a directory, and what they hold; None if there are no results."""
    if not SweepDirectory(path).parts.is_dir():
        return None
    from kising.sweep.store.run_store import Store

    store = Store.open(SweepDirectory(path), writable=False)
    return store, store.scan()


def _published(plan: Plan, path: Path) -> tuple[int, int, list[Failure]]:
    """How many runs of the plan are done and how many have failed in published tables, and the first that failed."""
    from kising.sweep.store.parquet import failed_rows, outcomes_in, read_runs_table

    table = read_runs_table(SweepDirectory(path).runs_file)
    ids, failed = outcomes_in(table)
    count = int(np.isin(plan.ids, ids[failed]).sum())
    done = int(np.isin(plan.ids, ids[~failed]).sum())
    return done, count, [failure_of(row) for row in failed_rows(table, SHOWN)]


def _shrinking(plan: Plan, store: Store, scan: Scan) -> Iterator[str]:
    from kising.sweep.shrinking import runs_dropped

    dropped = runs_dropped(plan, scan, store.directory)
    if dropped:
        yield (
            f"{plural(dropped, 'finished run')} in {store.directory.path} would leave the tables: `kising run` asks "
            "for --shrink, or for another directory with --out"
        )


def calibrate(spec: SweepSpec) -> None:
    """Measure the cost of this sweep's runs on this machine, with short runs of each kind in this process."""
    from dataclasses import replace

    from kising.sweep.plan import Run, run_id_of
    from kising.sweep.task import execute

    costs = CostModel.load()
    recording = recording_of(spec.data)
    # Of a recording there are no more than its folds. None comes twice: its baselines are remembered, so that it would
    # seem cheap.
    repeats = CALIBRATION_RUNS if recording is None else min(CALIBRATION_RUNS, spec.data.folds)
    kinds: dict[str, Point] = {}
    for point in Plan.of(spec).points:
        kinds.setdefault(kind_of(point), point)
    for point in kinds.values():
        data = point.data
        if recording is None:
            data = data.model_copy(update={"length": min(data.length, CALIBRATION_LENGTH)})
        cap = min(most_iterations(point), CALIBRATION_ITERATIONS)
        learner = point.learner.model_copy(update={"max_iterations": cap})
        short = replace(point, data=data, learner=learner)
        for realization in range(repeats):
            run = Run(run_id_of(short.point_id, realization), short, realization)
            start = time.process_time()
            row = execute(run, 1, None, recording)
            if realization:  # the first compiles
                costs.learn(short, {**row, "status": "done", "cpu_seconds": time.process_time() - start})
    costs.settle_prices()
    costs.save()


def describe_status(path: Path) -> Iterator[str]:
    """The state of a sweep: what its driver last wrote or, if that is missing, what its parts hold."""
    directory = SweepDirectory.open(path)
    if directory.is_published:
        plan = Plan.of(read_spec(directory.sweep_file))
        done, failed, failures = _published(plan, path)
        yield f"{path}: published tables, {done} of {plan.n_runs} runs done, {failed} failed"
        yield from describe_failures(path, failures, varied_keys(plan.spec), failed)
        return
    progress, alive = directory.read_progress(), liveness(directory)
    if progress is None:
        yield from _without_progress(directory, alive)
        return
    state = state_of(directory, progress, alive)
    inventory = take_inventory(directory)
    vanished = inventory.vanished
    done, failed, more = progress.done, progress.failed, ""
    if alive == "ended":
        if progress.state not in OVER or inventory.logged_rows < done + failed:
            # It was killed, and what it had not written is lost; or somebody has removed parts, the log, or both.
            plan = Plan.of(read_spec(directory.sweep_file))
            done, failed, more = _written(directory, plan, _open(directory.path))
        if vanished or (progress.state in OVER and done + failed < progress.done + progress.failed):
            state = "damaged"
    yield f"{path}: {state}, {done} of {progress.total} runs done, {failed} failed"
    if more:
        yield f"  {more}"
    if vanished:
        rows = sum(vanished.values())
        yield f"  {plural(len(vanished), 'part')} with {plural(rows, 'row')} vanished: see `kising verify {path}`"
    if alive == "running" and progress.state not in OVER:
        flight = f"{plural(progress.running, 'run')} in flight on {plural(progress.workers, 'worker')}"
        eta = f", {duration(progress.eta)} to go" if progress.eta is not None else ""
        if progress.state == "running":
            yield f"  {flight}, {speed(progress.rate)}{eta}"
        yield f"  driver: pid {progress.pid} on {progress.host}, last update {_ago(progress.updated)} ago"
        yield from _nodes(progress)
    elif alive == "silent":
        yield (
            f"  no sign of its driver (pid {progress.pid} on {progress.host}) for {WATCH_SECONDS:g} s; its last update "
            f"was {_ago(progress.updated)} ago by its own clock: look again before you start another"
        )
    elif alive == "ended" and state != "finished":
        yield f"  to resume: {recorded_resume_command(directory)}"
    listed = [(run.run_id, run.label, run.error or "") for run in progress.failures]
    yield from _failed(path, listed, failed)


def _written(
    directory: SweepDirectory, plan: Plan, opened: tuple[Store, Scan] | None
) -> tuple[int, int, str]:
    """How many runs are done and how many have failed, by the rows in the parts; and what there is besides, in words.

    Rows of other numerics count where the last session kept them.
    """
    if opened is None:
        return 0, 0, ""
    standing = Standing.of(plan, *opened, numerics=NUMERICS)
    kept = recorded_flags(directory).get("--stale") == "keep"
    done = standing.done(stale="keep" if kept else None)
    more = "" if kept or not standing.stale.any() else f"not counted: {standing.stale_note(NUMERICS)}"
    return int(done.sum()), int(standing.failed.sum()), more


def state_of(directory: SweepDirectory, progress: Progress, alive: Liveness) -> str:
    """The state of the sweep, in a few words."""
    if alive == "silent":
        return "running?"
    if alive == "ended":
        return progress.state if progress.state in OVER else "interrupted"
    if progress.state not in OVER:
        return progress.state
    # The lock is held, and not by the session that wrote this.
    holder = directory.holder()
    reported = holder is not None and holder.command == REPORT
    return f"{progress.state}, being reported" if reported else "starting"


def _without_progress(directory: SweepDirectory, alive: Liveness) -> Iterator[str]:
    plan = Plan.of(read_spec(directory.sweep_file))
    opened = _open(directory.path)
    done, _, more = _written(directory, plan, opened)
    running = "not running" if alive == "ended" else "starting"
    yield f"{directory.path}: {done} of {plan.n_runs} runs done, {running}"
    if more:
        yield f"  {more}"
    if opened is not None:
        store, scan = opened
        failed = plan.ids[Standing.of(plan, store, scan, numerics=NUMERICS).failed]
        listed = failures_in(store, failed[:SHOWN])
        yield from describe_failures(directory.path, listed, varied_keys(plan.spec), len(failed))


def describe_failures(
    path: Path, failures: Sequence[Failure], keys: Sequence[str], count: int
) -> Iterator[str]:
    """One line per failed run, for the first of `count` of them; `keys` tell the runs of the sweep apart."""
    return _failed(path, [(one.run_id, one.label(keys), one.error) for one in failures], count)


def _failed(path: Path, failures: Sequence[tuple[str, str, str]], count: int) -> Iterator[str]:
    """One line per failed run: its id, its parameters, and why it failed."""
    for run_id, label, error in failures[:SHOWN]:
        yield f"  failed: {run_id}, {label}: {error}"
    if count > SHOWN:
        yield f"  ... and {count - SHOWN} more failed: runs.parquet has them all"
    if count:
        yield f"  `kising show {path} RUN` shows everything about a run"


def _nodes(progress: Progress) -> Iterator[str]:
    """One line per node: cores in use, runs in flight, throughput. Then the oldest batches in flight."""
    width = max(map(len, progress.nodes), default=0)
    for host, node in sorted(progress.nodes.items()):
        cores = "gone" if node.cores is None else f"{node.busy} of {node.cores:g} cores in use"
        runs = f"{plural(node.runs, 'run')} in flight, {node.finished} finished"
        yield f"  {host:{width}}  {cores}, {runs}, {speed(node.rate)}"
    for batch in progress.oldest[:SHOWN]:
        text = f"  in flight for {duration(batch.seconds)} on {batch.host}: {plural(batch.runs, 'run')}"
        yield text if batch.run is None else f"{text}, now {batch.run.run_id}, {batch.run.label}"


def is_running(path: Path) -> bool:
    """Whether a driver is running the sweep."""
    return liveness(SweepDirectory.open(path)) != "ended"


def _ago(moment: float) -> str:
    return duration(max(time.time() - moment, 0.0))
