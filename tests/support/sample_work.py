"""Runs and their work for tests of execution; a module of its own because workers import it too."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kising.sweep.execute.protocol import LARGEST_STATE, RunTimeout


@dataclass(frozen=True)
class FakePoint:
    point_id: str = "00000000000000aa"

    def values(self) -> dict[str, object]:
        return {"model.visible": 7}


@dataclass(frozen=True)
class FakeRun:
    """A run that carries what its work is to do."""

    realization: int
    act: str = "square"
    where: str = ""
    point: FakePoint = field(default_factory=FakePoint)

    @property
    def run_id(self) -> str:
        return f"{self.realization:016x}"


def runs(count: int, act: str = "square", where: str | Path = "") -> list[FakeRun]:
    return [FakeRun(number, act, str(where)) for number in range(count)]


def work(
    run: FakeRun, threads: int, timeout: float | None, saved: bytes | None
) -> Generator[Callable[[], bytes], None, dict[str, object]]:
    """Do what the run asks, and return its row; only runs that count have states to resume from."""
    match run.act:
        case "raise":
            raise ValueError(f"no solution\nat {run.realization}")
        case "raise in a kernel":
            _refuse_below(1.0)(float(-run.realization))
        case "nan":
            return _row(run, float("nan"))
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
        case "count" | "count and die":
            # Squares by adding odd numbers, a tenth of a second each; notes where each attempt starts.
            total, begun = map(int, saved.split()) if saved else (0, 0)
            with (Path(run.where) / run.run_id).open("a") as notes:
                notes.write(f"{begun} ")
            for number in range(begun, run.realization):
                time.sleep(0.1)
                total += 2 * number + 1
                yield f"{total} {number + 1}".encode
                if run.act == "count and die" and number == begun + 7 and number < run.realization - 1:
                    # States that took long to send are rare: this one is offered until a test has noted enough of them.
                    while _noted(Path(run.where) / "saved") < begun + 3:
                        time.sleep(0.05)
                        yield f"{total} {number + 1}".encode
                    os.kill(os.getpid(), signal.SIGKILL)
            return _row(run, float(total))
        case "large":
            for _ in range(3):
                time.sleep(0.3)
                yield partial(bytes, LARGEST_STATE + run.realization)
        case "hog":
            held = []
            for _ in range(100):
                held.append(bytearray(b"x") * 100_000_000)
                time.sleep(0.1)
        case "told timeout":
            return _row(run, timeout or 0.0)
        case "mark":
            (Path(run.where) / run.run_id).touch()
        case "threads":
            return _row(run, _threads_in_force(threads))
    return _row(run, float(run.realization) ** 2)


def _noted(saved: Path) -> int:
    """The number of steps in the last checkpoint that a test has noted."""
    return int(saved.read_text() or 0) if saved.exists() else 0


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


def _refuse_below(least: float) -> Callable[[float], float]:
    """A kernel that raises."""
    import numba

    @numba.njit(nogil=True)
    def check(x: float) -> float:
        if x < least:
            raise ValueError("below")
        return x

    return check


def _threads_in_force(asked: int) -> float:
    """1.0 if all libraries are limited to the number asked for."""
    import numba
    from threadpoolctl import threadpool_info

    libraries = {library["num_threads"] for library in threadpool_info()}
    return float(libraries <= {asked} and numba.get_num_threads() == asked)
