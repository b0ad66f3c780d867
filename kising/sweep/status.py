"""What `kising plan` and `kising status` print, without running anything. Loads no compiler, no Ray, no pandas."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kising.options import iteration_limit
from kising.sweep.drive.cost import CostModel, kind_of, memory
from kising.sweep.drive.progress import duration, plural
from kising.sweep.plan import Plan, Point
from kising.sweep.spec import SweepSpec, read_spec, recording_of
from kising.sweep.store.artifacts import lacking_artifacts
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.records import Progress
from kising.version import NUMERICS

# A driver writes progress.json about once a second; on another host, one silent for this long counts as ended.
SILENCE_SECONDS = 60.0
# Of the batches in flight, the oldest ones.
SHOWN_BATCHES = 5
# Runs for calibration: long enough to time, short enough to wait for.
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
    done = _done(plan, path)
    if done is None:
        yield f"nothing is done yet; results will go to {path}"
        left = np.full(len(plan.points), spec.realizations)
    else:
        yield f"{int(done.sum())} of {plan.n_runs} runs are done in {path}"
        left = (~done).reshape(len(plan.points), spec.realizations).sum(axis=1)
    yield from _costs(plan, left)


def _costs(plan: Plan, left: NDArray[np.int64]) -> Iterator[str]:
    costs = CostModel.load()
    seconds, largest, unknown = 0.0, 0, set()
    for point, count in zip(plan.points, left.tolist(), strict=True):
        if count:
            seconds += costs.seconds(point) * count
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
            f"never measured on this machine: {', '.join(sorted(unknown))}; "
            "the estimate is rough until the first run, or `kising plan --calibrate`; new kernels are "
            "compiled first, for up to half a minute per worker"
        )


def _done(plan: Plan, path: Path) -> NDArray[np.bool_] | None:
    """Which runs of the plan are done with the current numerics; None if there are no results."""
    if not SweepDirectory(path).parts.is_dir():
        return None
    from kising.sweep.store.run_store import Store

    store = Store.open(SweepDirectory(path), writable=False)
    scan = store.scan()
    if not len(scan.ids):
        return np.zeros(plan.n_runs, dtype=bool)
    place = scan.find(plan.ids)
    done: NDArray[np.bool_] = (place >= 0) & ~scan.failed[place] & (scan.numerics[place] == NUMERICS)
    return done & ~lacking_artifacts(plan, store)


def calibrate(spec: SweepSpec) -> None:
    """Measure the cost of this sweep's runs on this machine, with short runs of each kind in this process."""
    from dataclasses import replace

    from kising.sweep.plan import Run, run_id_of
    from kising.sweep.task import execute

    costs = CostModel.load()
    recording = recording_of(spec.data)
    kinds: dict[str, Point] = {}
    for point in Plan.of(spec).points:
        kinds.setdefault(kind_of(point), point)
    for point in kinds.values():
        data = point.data
        if recording is None:
            data = data.model_copy(update={"length": min(data.length, CALIBRATION_LENGTH)})
        cap = min(iteration_limit(point.learner, point.model.hidden), CALIBRATION_ITERATIONS)
        learner = point.learner.model_copy(update={"max_iterations": cap})
        short = replace(point, data=data, learner=learner)
        for realization in range(3):
            run = Run(run_id_of(short.point_id, realization), short, realization)
            start = time.perf_counter()
            row = execute(run, 1, None, recording)
            if realization:  # the first compiles
                costs.learn(short, {**row, "status": "done", "seconds": time.perf_counter() - start})
    known = dict(costs.iterations)
    costs.settle()
    # Iterations were cut short: they do not tell how many a whole run takes.
    costs.iterations = known
    costs.save()


def describe_status(path: Path) -> Iterator[str]:
    """The state of a sweep: what its driver last wrote or, if that is missing, what its parts hold."""
    directory = SweepDirectory.open(path)
    progress = directory.read_progress()
    if progress is None:
        plan = Plan.of(read_spec(directory.sweep_file))
        done = _done(plan, path)
        yield f"{path}: {0 if done is None else int(done.sum())} of {plan.n_runs} runs done, not running"
        return
    running = _alive(progress)
    state = progress.state
    if state == "running" and not running:
        state = "interrupted"
    yield f"{path}: {state}, {progress.done} of {progress.total} runs done, {progress.failed} failed"
    if running:
        flight = f"{plural(progress.running, 'run')} in flight on {plural(progress.workers, 'worker')}"
        eta = f", {duration(progress.eta)} to go" if progress.eta is not None else ""
        yield f"  {flight}, {_rate(progress.rate)}{eta}"
        yield f"  driver: pid {progress.pid} on {progress.host}, last update {_ago(progress.updated)} ago"
        yield from _nodes(progress)
    elif state != "finished":
        yield f"  to go on: kising run {path}"


def _nodes(progress: Progress) -> Iterator[str]:
    """One line per node: cores in use, runs in flight, throughput. Then the oldest batches in flight."""
    width = max(map(len, progress.nodes), default=0)
    for host, node in sorted(progress.nodes.items()):
        cores = "gone" if node.cores is None else f"{node.busy} of {node.cores:g} cores in use"
        runs = f"{plural(node.runs, 'run')} in flight, {node.finished} finished"
        yield f"  {host:{width}}  {cores}, {runs}, {_rate(node.rate)}"
    for batch in progress.oldest[:SHOWN_BATCHES]:
        yield f"  in flight for {duration(batch.seconds)} on {batch.host}: {plural(batch.runs, 'run')}"


def _rate(rate: float | None) -> str:
    return f"{rate:.3g} runs/s" if rate else "no rate yet"


def is_running(path: Path) -> bool:
    """Whether a driver is running the sweep."""
    progress = SweepDirectory.open(path).read_progress()
    return progress is not None and _alive(progress)


def _alive(progress: Progress) -> bool:
    if progress.state != "running":
        return False
    if progress.host != socket.gethostname():
        return time.time() - progress.updated < SILENCE_SECONDS
    try:
        os.kill(progress.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _ago(moment: float) -> str:
    return duration(max(time.time() - moment, 0.0))
