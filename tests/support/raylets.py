"""Kills the raylet under drivers at random moments: each must end with a line and an exit code."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from kising.atomic import atomic_write
from support.drivers import RayDriver

ENDINGS = {
    "broke down": "Ray broke down",
    "did not start": "Ray does not start",
    "was ended by Ray": "this process ended before its sweep",
    "broken workers": "the workers cannot run batches",
    "no workers": "workers in a row died before they began",
}
SWEEP = """
name: raylets
seed: 9
realizations: 40
model: {visible: 8, hidden: 2}
learner: {estimator: bp, max_iterations: 50, tolerance: 1.0e-12}
axes: {data.length: [500, 2000, 20000]}
resources: {checkpoint: 0.2}
"""
STARTING, WORKING = 6.0, 2.0  # most seconds that a raylet lives while Ray starts, and after work has begun


@dataclass
class RayletCounts:
    """How drivers ended whose raylet was killed."""

    seed: int
    endings: Counter[str] = field(default_factory=Counter)
    silent: list[str] = field(default_factory=list)  # what is known of those that ended without a line
    finished: int = 0  # drivers that were done first

    def line(self) -> str:
        ends = ", ".join(f"{count} {ending}" for ending, count in sorted(self.endings.items()))
        return (
            f"raylets: {self.endings.total() + len(self.silent)} killed ({ends}), {len(self.silent)} drivers ended "
            f"without a line or an exit code, {self.finished} were done first; seed {self.seed}"
        )


def kill_raylets(place: Path, seed: int, count: int, file: Path | None = None) -> RayletCounts:
    """Kill the raylets of drivers, one after another; sweeps go on from driver to driver. Counters go to `file`."""
    place.mkdir(parents=True, exist_ok=True)
    sweep_file = place / "raylets.yaml"
    sweep_file.write_text(SWEEP)
    generator, counts, sweep = random.Random(seed), RayletCounts(seed), 0
    while counts.endings.total() + len(counts.silent) < count:
        with RayDriver(sweep_file, place / f"out-{sweep}", "-", 1) as driver:
            while driver.is_running and not driver.processes("raylet"):
                time.sleep(0.1)
            if generator.random() < 0.5:
                driver.wait(generator.uniform(0.0, STARTING))
            else:
                driver.wait_for_work()
                driver.wait(generator.uniform(0.0, WORKING))
            killed = driver.kill("raylet")
            status = driver.end()
            time.sleep(0.3)  # the notice of an end comes just after it
            errors = driver.errors()
        if status == 0 or not killed:
            counts.finished += 1
            sweep += status == 0
            continue
        ending = next((name for name, words in ENDINGS.items() if words in errors), None)
        if ending is None or "Traceback" in errors or status in (0, -signal.SIGKILL):
            counts.silent.append(f"status {status}: {errors[-500:]}")
        else:
            counts.endings[ending] += 1
        if file is not None:
            atomic_write(file, f"{counts.line()}\n".encode())
    return counts
