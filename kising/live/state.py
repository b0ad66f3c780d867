"""The state of a sweep for the live page: the content of progress.json as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kising.errors import KisingError
from kising.messages import plural
from kising.sweep.drive.progress import duration, speed
from kising.sweep.plan import Plan
from kising.sweep.resuming import recorded_resume_command
from kising.sweep.spec import read_spec
from kising.sweep.status import state_of
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.liveness import liveness
from kising.sweep.store.records import Progress


def live_state(path: Path) -> dict[str, Any]:
    """The state of the sweep in a directory, as JSON has it; also where there is none yet."""
    try:
        return _state(SweepDirectory.open(path))
    except KisingError as error:  # it is not there yet, or its sweep.yaml is being edited
        return _empty("waiting", str(error))


def _state(directory: SweepDirectory) -> dict[str, Any]:
    progress = directory.read_progress()
    alive = liveness(directory)
    if progress is None:
        total = Plan.of(read_spec(directory.sweep_file)).n_runs
        state = "not running" if alive == "ended" else "starting"
        return _empty(state, "") | {"total": total}
    state = state_of(directory, progress, alive)
    return _empty(state, _headline(progress) if alive == "running" else _hint(directory, state)) | {
        "done": progress.done,
        "failed": progress.failed,
        "total": progress.total,
        "nodes": [
            [
                host,
                "gone" if node.cores is None else f"{node.busy} of {node.cores:g} cores in use",
                f"{plural(node.runs, 'run')} in flight",
                f"{node.finished} finished",
                speed(node.rate),
            ]
            for host, node in sorted(progress.nodes.items())
            if alive == "running"
        ],
        "flights": [
            [
                f"{duration(batch.seconds)} on {batch.host}",
                plural(batch.runs, "run"),
                "" if batch.run is None else f"{batch.run.run_id}, {batch.run.label}",
            ]
            for batch in progress.oldest
            if alive == "running"
        ],
        "failures": [[run.run_id, run.label, run.error or ""] for run in progress.failures],
    }


def _empty(state: str, headline: str) -> dict[str, Any]:
    return {
        "state": state, "headline": headline, "done": 0, "failed": 0, "total": 0,
        "nodes": [], "flights": [], "failures": [],
    }  # fmt: skip


def _headline(progress: Progress) -> str:
    flight = f"{plural(progress.running, 'run')} in flight on {plural(progress.workers, 'worker')}"
    parts = [flight, speed(progress.rate)]
    if progress.eta is not None:
        parts.append(f"{duration(progress.eta)} left")
    return ", ".join(parts)


def _hint(directory: SweepDirectory, state: str) -> str:
    return "" if state.startswith("finished") else f"to resume: {recorded_resume_command(directory)}"
