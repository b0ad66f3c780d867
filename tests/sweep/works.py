"""Runs and works for the tests of execution; a module of its own, because workers import it too."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from kising.sweep.executor import RunTimeout


@dataclass(frozen=True)
class FakePoint:
    point_id: str = "00000000000000aa"

    def values(self) -> dict[str, object]:
        return {"model.visible": 7}


@dataclass(frozen=True)
class FakeRun:
    """A run that carries what its work shall do."""

    realization: int
    act: str = "square"
    where: str = ""
    point: FakePoint = field(default_factory=FakePoint)

    @property
    def run_id(self) -> str:
        return f"{self.realization:016x}"


def runs(count: int, act: str = "square", where: str | Path = "") -> list[FakeRun]:
    return [FakeRun(number, act, str(where)) for number in range(count)]


def work(run: FakeRun, threads: int, timeout: float | None) -> dict[str, object]:
    """Do what the run says, and return its row."""
    match run.act:
        case "raise":
            raise ValueError(f"no solution\nat {run.realization}")
        case "exit":
            raise SystemExit(3)
        case "late":
            raise RunTimeout
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "kill once":
            marker = Path(run.where) / run.run_id
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        case "sleep":
            time.sleep(1000)
        case "loop":
            _loop_for_ever()
        case "pause":
            time.sleep(0.2)
        case "mark":
            (Path(run.where) / run.run_id).touch()
        case "threads":
            return _row(run, _threads_in_force(threads))
    return _row(run, float(run.realization) ** 2)


def _row(run: FakeRun, value: float) -> dict[str, object]:
    return {
        "run_id": run.run_id,
        "point_id": run.point.point_id,
        "realization": run.realization,
        "rmse_J": value,
    }


def _loop_for_ever() -> None:
    """A kernel that never returns and never lets Python's signal handlers run."""
    import numba

    @numba.njit(nogil=True)
    def spin(x: float) -> float:
        while x >= 0.0:
            x = x + 1.0 if x < 1e9 else 0.0
        return x

    spin(1.0)


def _threads_in_force(asked: int) -> float:
    import numba
    from threadpoolctl import threadpool_info

    libraries = {library["num_threads"] for library in threadpool_info()}
    return float(libraries <= {asked} and numba.get_num_threads() == asked)
