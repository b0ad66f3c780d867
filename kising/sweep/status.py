"""A sweep in words, without running anything: what `plan` and `status` say. Loads no compiler, no Ray, no
pandas.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kising.sweep.drive.cost import CostModel, kind_of, memory
from kising.sweep.drive.progress import duration
from kising.sweep.plan import Plan, Point
from kising.sweep.spec import SweepSpec, read_spec
from kising.sweep.store.artifacts import lacking_artifacts
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.records import Progress
from kising.version import NUMERICS

# A driver writes progress.json about once a second; on another host, silence for this long is taken for its
# end.
SILENCE_SECONDS = 60.0
# Of the batches in flight, the oldest: the others are younger.
SHOWN_BATCHES = 5
# Runs made to measure a machine: long enough to time, short enough to wait for.
CALIBRATION_LENGTH = 3000
CALIBRATION_ITERATIONS = 10


def describe_plan(spec: SweepSpec, path: Path) -> Iterator[str]:
    """Points, runs, how many are done, and what is left in core-hours and memory."""
    plan = Plan.of(spec)
    product = f"{len(plan.points)} points x {spec.realizations} realizations = {plan.n_runs} runs"
    yield f"{spec.name}: task {spec.task}, {product}"
    for axis in spec.axes:
        yield f"  {' and '.join(axis.keys)}: {len(axis)} values"
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
        f"({duration(seconds / cores)} on the {cores} cores of this machine)"
    )
    yield f"estimated memory: {largest / 1e6:.0f} MB a run, at most"
    if unknown:
        yield (
            f"never measured on this machine: {', '.join(sorted(unknown))}; "
            "the estimate is rough until the first run, or `kising plan --calibrate`; kernels that "
            "were never used are compiled first, up to half a minute a worker"
        )


def _done(plan: Plan, path: Path) -> NDArray[np.bool_] | None:
    """Which runs of the plan are done, None where there is no directory of results."""
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
    """Measure what runs of this sweep cost here, by short ones of each kind in this process."""
    from dataclasses import replace

    from kising.sweep.plan import Run, run_id_of
    from kising.sweep.task import execute

    costs = CostModel.load()
    kinds: dict[str, Point] = {}
    for point in Plan.of(spec).points:
        kinds.setdefault(kind_of(point), point)
    for point in kinds.values():
        data = point.data.model_copy(update={"length": min(point.data.length, CALIBRATION_LENGTH)})
        cap = min(point.learner.max_iterations, CALIBRATION_ITERATIONS)
        learner = point.learner.model_copy(update={"max_iterations": cap})
        short = replace(point, data=data, learner=learner)
        for realization in range(3):
            run = Run(run_id_of(short.point_id, realization), short, realization)
            start = time.perf_counter()
            row = execute(run, 1, None)
            if realization:  # the first compiles
                costs.learn(short, {**row, "status": "done", "seconds": time.perf_counter() - start})
    known = dict(costs.iterations)
    costs.settle()
    # Iterations were cut short: they say nothing of how many a whole run takes.
    costs.iterations = known
    costs.save()


def describe_status(path: Path) -> Iterator[str]:
    """How a sweep stands; from what its driver last wrote, or, where that is missing, from its parts."""
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
        rate = f"{progress.rate:.3g} runs a second" if progress.rate else "no rate yet"
        eta = f", {duration(progress.eta)} to go" if progress.eta is not None else ""
        yield f"  {progress.running} runs in flight on {progress.workers} workers, {rate}{eta}"
        yield f"  driver: pid {progress.pid} on {progress.host}, heard of {_ago(progress.updated)} ago"
        yield from _nodes(progress)
    elif state != "finished":
        yield f"  to go on: kising run {path}"


def _nodes(progress: Progress) -> Iterator[str]:
    """A line a node: cores in use, runs in flight, throughput; then what has been in flight longest."""
    width = max(map(len, progress.nodes), default=0)
    for host, node in sorted(progress.nodes.items()):
        cores = "gone" if node.cores is None else f"{node.busy} of {node.cores:g} cores in use"
        rate = f"{node.rate:.3g} runs a second" if node.rate else "no rate yet"
        yield f"  {host:{width}}  {cores}, {node.runs} runs in flight, {node.finished} finished, {rate}"
    for batch in progress.oldest[:SHOWN_BATCHES]:
        plural = "" if batch.runs == 1 else "s"
        yield f"  in flight for {duration(batch.seconds)} on {batch.host}: {batch.runs} run{plural}"


def is_running(path: Path) -> bool:
    """Whether a driver is at work on the sweep."""
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
