"""Kills sweeps in every way there is, resumes them until they are done, and judges the results.

A sweep goes from nothing to its last row through any number of killed drivers. After every kill its parts are read:
a row that has vanished is lost, and one that differs in any bit from that of an undisturbed sweep is wrong. Nothing
touches the directory between two drivers.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from itertools import cycle
from pathlib import Path
from typing import Self

from support.drivers import ForkingServer, RayDriver
from support.fault_injector import MIRROR_STEPS, STEPS
from support.judging import CampaignCounts, Judge, ReferencedSweep

LONGEST_SESSION = 0.35  # seconds before a driver in process is killed
MOST_KILLS = 150  # of the drivers of one sweep; the next driver is left alone

SHORT = {
    "learn": """
name: learn
seed: 7
realizations: 4
model: {visible: 6, hidden: 2}
learner: {max_iterations: 40, tolerance: 1.0e-12}
axes:
  - {learner.estimator: [exact, bp]}
  - {data.length: [200, 400, 10000]}
keep: {couplings: true, trace: true, realizations: 2}
resources: {checkpoint: 0.05}
""",
    "infer": """
name: infer
task: infer
seed: 8
realizations: 24
model: {visible: 6, hidden: 2, connectivity: 0.5}
score: {exact: true}
learner: {correlations: corrected}
axes: {learner.estimator: [bp, tap, mean-field], data.length: [500, 4000]}
""",
}

ON_RAY = """
name: ray
seed: 9
realizations: 12
model: {visible: 8, hidden: 2}
learner: {estimator: bp, max_iterations: 50, tolerance: 1.0e-12}
axes: {data.length: [500, 2000, 12000]}
resources: {checkpoint: 0.2}
"""


class Campaign:
    """Sweeps, one after another, until enough has been killed."""

    def __init__(self, place: Path, seed: int, *, realizations: int | None = None) -> None:
        """Work in a directory; `realizations` replaces that of the sweeps, to shorten them."""
        self.counts = CampaignCounts(seed)
        self._place, self._realizations = place, realizations
        self._random = random.Random(seed)
        self._start = time.monotonic()
        self._use_steps(STEPS)

    def _use_steps(self, steps: tuple[str, ...]) -> None:
        self._every_step = set(steps)
        self._steps = cycle(self._random.sample(steps, len(steps)))

    def in_process(self, kills: int, *, mirrors: bool = False) -> Self:
        """Kill drivers that run everything in their own process: at random times, and at every step in turn.

        mirrors: each sweep has one, and some machines are lost with their driver and all that is on their disk.
        """
        if mirrors:
            self._use_steps(MIRROR_STEPS)
        sweeps = [self._sweep(name, text) for name, text in SHORT.items()]
        with ForkingServer([sweep.file for sweep in sweeps]) as server:
            for number, sweep in enumerate(cycle(sweeps)):
                if self._killed("in process") >= kills:
                    break
                judge = Judge(sweep, self._place / f"in-process-{number}", self.counts)
                mirror = str(self._place / f"mirror-{number}") if mirrors else None
                for driver in range(MOST_KILLS + 1):
                    step, nth, after = self._fault(
                        sweep.seconds, undisturbed=driver == MOST_KILLS or self._killed("in process") >= kills
                    )
                    self.counts.drivers += 1
                    signals = [(after, int(signal.SIGKILL))] if after is not None else []
                    status, sent = server.run_driver(sweep.file, judge.out, step, nth, signals, mirror=mirror)
                    timed = sent and after is not None
                    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                        self.counts.kills[f"in process at {'a random time' if timed else 'a step'}"] += 1
                        if not timed:
                            self.counts.steps.add(step)
                        judge.check_rows()
                        if mirrors and self._random.random() < 0.4:
                            judge.lose_machine()
                    else:
                        assert status == 0, server.errors(judge.out)
                        break
                else:
                    raise AssertionError(f"{judge.out}: not finished by an undisturbed driver")
                judge.check_finished()
        return self._timed()

    def on_ray(self, kills: int) -> Self:
        """Kill drivers, their workers, their Ray or everything at once."""
        sweep = self._sweep("ray", ON_RAY)
        number = 0
        while self._killed("Ray") < kills:
            judge = Judge(sweep, self._place / f"ray-{number}", self.counts)
            number += 1
            for driver in range(MOST_KILLS + 1):
                self.counts.drivers += 1
                undisturbed = driver == MOST_KILLS or self._killed("Ray") >= kills
                if self._run_on_ray(sweep, judge, undisturbed=undisturbed):
                    break
            else:
                raise AssertionError(f"{judge.out}: not finished by an undisturbed driver")
            judge.check_finished()
        return self._timed()

    def _sweep(self, name: str, text: str) -> ReferencedSweep:
        if self._realizations is not None:
            text = re.sub(r"(?m)^realizations: \d+$", f"realizations: {self._realizations}", text)
        return ReferencedSweep(self._place / name, text)

    @property
    def _all_steps(self) -> bool:
        """Whether something was killed at every step; until then missing steps come first."""
        return self.counts.steps >= self._every_step

    def _killed(self, where: str) -> int:
        return sum(count for name, count in self.counts.kills.items() if name.startswith(where))

    def _timed(self) -> Self:
        self.counts.seconds = time.monotonic() - self._start
        return self

    def _fault(self, seconds: float, *, undisturbed: bool) -> tuple[str, int, float | None]:
        """The step at which the driver kills itself, at which occurrence, and the seconds until it is killed."""
        if undisturbed:
            return "-", 1, None
        if self._random.random() < 0.6:
            step = next(step for step in self._steps if step not in self.counts.steps or self._all_steps)
            # Some steps come once per session, tables only at its end; and a driver that never reaches its step
            # must not finish.
            once = step.startswith(("sweep", "manifest", "tables"))
            nth = 1 if once or not self._all_steps else self._random.choice((1, 1, 1, 2, 4))
            late = step.startswith("tables")
            return step, nth, None if late else self._random.uniform(2, 3) * LONGEST_SESSION
        return "-", 1, self._random.uniform(0, min(seconds, LONGEST_SESSION))

    def _run_on_ray(self, sweep: ReferencedSweep, judge: Judge, *, undisturbed: bool) -> bool:
        """Run one driver; return whether it has finished the sweep."""
        if undisturbed:
            with RayDriver(sweep.file, judge.out, "-", 1) as driver:
                assert driver.end() == 0, driver.errors()
            return True
        last = self._random.choice(("driver", "driver", "raylet", "gcs_server", "everything", "step"))
        step, nth = (next(self._steps), self._random.choice((1, 2, 3))) if last == "step" else ("-", 1)
        # A run fails when it loses three workers, so busy workers are killed at most twice under one driver.
        victims = ["workers", "workers", *([last] if last != "step" else [])]
        if self._random.random() < 0.15:
            victims = [last]  # while Ray starts, or soon after
        with RayDriver(sweep.file, judge.out, step, nth) as driver:
            for victim in victims:
                if len(victims) > 1:
                    driver.wait_for_work()
                    driver.wait(self._random.uniform(0.1, 2.0))
                else:
                    driver.wait(self._random.uniform(0.5, 12.0))
                killed = driver.kill(victim)
                name = "worker" if victim == "workers" else victim
                self.counts.kills[f"Ray {name}"] += min(killed, 1) if victim == "everything" else killed
            status = driver.end()
            if status == -signal.SIGKILL and step != "-":
                self.counts.kills["Ray driver at a step"] += 1
                self.counts.steps.add(step)
            errors = driver.errors()
        judge.check_rows()
        assert "Traceback" not in errors, errors
        broken = status == 1 and ("Ray broke down" in errors or "Ray does not start" in errors)
        assert status in (0, -signal.SIGKILL) or broken, (status, errors)
        return status == 0
