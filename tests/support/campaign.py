"""Kills sweeps and fits in every way there is, resumes them until they are done, and judges the results.

A sweep goes from nothing to its last row through any number of killed drivers. After every kill its parts are read:
a row that has vanished is lost, and one that differs in any bit from that of an undisturbed sweep is wrong. Nothing
touches the directory between two drivers, except that machines with a mirror are sometimes lost with their disk.

Campaigns with different seeds add up. Each writes its counters to a file, also when it is interrupted:

    cd tests && python -m support.campaign FILE...

prints the line of them all, and the steps at which nothing was killed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from support.drivers import ForkingServer, RayDriver
from support.fault_injector import ALL_STEPS, FIT_STEPS, MIRROR_STEPS, STEPS
from support.judging import CampaignCounts, FitJudge, Judge, ReferencedFit, ReferencedSweep
from support.victims import FITS, ON_RAY, SHORT, shortened, write_recording

# Every kind of victim has its turn soon: after this number of kills the next driver of a sweep is left alone.
MOST_KILLS = 100  # of the drivers of one sweep
MOST_ON_RAY = 120  # of one sweep on Ray
MOST_ROUNDS = 25  # in which the workers of one driver are killed
LAST = ("tables", "fit results")  # steps at the end of a session
BROKEN = (
    "Ray broke down",
    "Ray does not start",
    "this process ended",
    "workers in a row",
    "cannot run batches",
)


class Campaign:
    """Sweeps and fits, one after another, until enough has been killed."""

    def __init__(
        self, place: Path, seed: int, *, realizations: int | None = None, file: Path | None = None
    ) -> None:
        """Work in a directory; `realizations` replaces that of the sweeps, to shorten them. Counters go to `file`."""
        self.counts = CampaignCounts(seed)
        self._place, self._realizations, self._file = place, realizations, file
        self._random = random.Random(seed)
        self._start = time.monotonic()

    def in_process(self, kills: int, *, mirrors: bool | None = None) -> Self:
        """Kill drivers that run everything in their own process: at random times, and at every step in turn.

        mirrors: each sweep has one, and some machines are lost with their driver and all that is on their disk. None:
        with and without, and fits too.
        """
        sweeps = [self._sweep(name, text) for name, text in SHORT.items()]
        return self._kill_in_turn(sweeps, self._fits() if mirrors is None else [], kills, mirrors)

    def fits(self, kills: int) -> Self:
        """Kill `kising fit`."""
        return self._kill_in_turn([], self._fits(), kills, None)

    def _fits(self) -> list[ReferencedFit]:
        self._place.mkdir(parents=True, exist_ok=True)
        recording = write_recording(self._place / "spins.npy")
        return [ReferencedFit(recording, self._place / name, options) for name, options in FITS.items()]

    def _kill_in_turn(
        self, sweeps: list[ReferencedSweep], fits: list[ReferencedFit], kills: int, mirrors: bool | None
    ) -> Self:
        with ForkingServer([sweep.file for sweep in sweeps], [fit.arguments for fit in fits]) as server:
            # Campaigns that are cut short begin with different ones.
            turns = list(self._victims(sweeps, fits, mirrors))
            number = self.counts.seed
            while self._killed("in process") < kills:
                victim = turns[number % len(turns)]
                if isinstance(victim, ReferencedFit):
                    self._kill_fit(server, victim, fits, kills)
                else:
                    self._kill_sweep(server, *victim, self._place / f"in-process-{number}", kills)
                number += 1
                self._note()
        return self

    @staticmethod
    def _victims(
        sweeps: list[ReferencedSweep], fits: list[ReferencedFit], mirrors: bool | None
    ) -> Iterator[tuple[ReferencedSweep, bool] | ReferencedFit]:
        """Those of one turn: all fits, which end after a few kills, after every kind of sweep."""
        for sweep in sweeps:
            for mirrored in (False, True) if mirrors is None else (mirrors,):
                yield sweep, mirrored
            yield from fits
        if not sweeps:
            yield from fits

    def _kill_sweep(
        self, server: ForkingServer, sweep: ReferencedSweep, mirrored: bool, out: Path, kills: int
    ) -> None:
        judge = Judge(sweep, out, self.counts, mirrored=mirrored)
        steps = (*STEPS, *MIRROR_STEPS, *MIRROR_STEPS) if mirrored else STEPS

        def drive(step: str, nth: int, cpu: float | None) -> int:
            return server.run_driver(sweep.file, out, step, nth, cpu=cpu, mirror=judge.mirror)[0]

        self._kill_until_done(drive, judge, steps, kills, lambda: server.errors(out))

    def _kill_fit(
        self, server: ForkingServer, fit: ReferencedFit, fits: list[ReferencedFit], kills: int
    ) -> None:
        # Fits of two kinds replace each other in one folder, or begin with none.
        judge = FitJudge(fit, fits, self._place / "folder", self.counts)
        if self._random.random() < 0.5:
            shutil.rmtree(judge.out, ignore_errors=True)
        arguments = [*fit.arguments, "--out", str(judge.out)]

        def drive(step: str, nth: int, cpu: float | None) -> int:
            status, _ = server.run_driver(fit.recording, judge.out, step, nth, cpu=cpu, arguments=arguments)
            return 0 if os.WIFEXITED(status) and os.WEXITSTATUS(status) == fit.status else status

        self._kill_until_done(drive, judge, FIT_STEPS, kills, lambda: server.errors(judge.out))

    def _kill_until_done(
        self,
        drive: Callable[[str, int, float | None], int],
        judge: Judge | FitJudge,
        steps: tuple[str, ...],
        kills: int,
        errors: Callable[[], str],
    ) -> None:
        """Start drivers and kill them, until one gets to the end."""
        for driver in range(MOST_KILLS + 1):
            enough = driver == MOST_KILLS or self._killed("in process") >= kills
            step, nth, cpu = ("-", 1, None) if enough else self._fault(steps, judge)
            self.counts.drivers += 1
            status = drive(step, nth, cpu)
            timed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF
            if not timed and not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
                assert status == 0, (status, errors())
                judge.check_finished()
                return
            self.counts.kills[f"in process at {'a random time' if timed else 'a step'}"] += 1
            self.counts.victims[judge.kind] += 1
            if not timed:
                self.counts.steps.add(step)
            judge.check_rows()
            if self._random.random() < 0.4:
                judge.lose_machine()
        raise AssertionError(f"{judge.out}: not finished by an undisturbed driver")

    def on_ray(self, kills: int) -> Self:
        """Kill drivers, their workers, their Ray or everything at once."""
        sweeps = [self._sweep(name, text) for name, text in ON_RAY.items()]
        # Every sweep with and without a mirror, in turn; campaigns that are cut short begin with different ones.
        turns = [(sweep, mirrored) for sweep in sweeps for mirrored in (False, True)]
        number = self.counts.seed
        while self._killed("Ray") < kills:
            sweep, mirrored = turns[number % len(turns)]
            judge = Judge(sweep, self._place / f"ray-{number}", self.counts, mirrored=mirrored)
            number += 1
            before = self._killed("Ray")
            for driver in range(MOST_KILLS + 1):
                self.counts.drivers += 1
                undisturbed = driver == MOST_KILLS or self._killed("Ray") >= min(kills, before + MOST_ON_RAY)
                if self._run_on_ray(sweep, judge, kills, undisturbed=undisturbed):
                    break
                if self._random.random() < 0.4:
                    judge.lose_machine()
                self._note()
            else:
                raise AssertionError(f"{judge.out}: not finished by an undisturbed driver")
            judge.check_finished()
            self._note()
        return self

    def _sweep(self, name: str, text: str) -> ReferencedSweep:
        return ReferencedSweep(self._place / name, shortened(text, self._realizations))

    def _killed(self, where: str) -> int:
        return sum(count for name, count in self.counts.kills.items() if name.startswith(where))

    def _note(self) -> None:
        self.counts.seconds = time.monotonic() - self._start
        if self._file is not None:
            self.counts.write(self._file)

    def _next_step(self, steps: tuple[str, ...]) -> str:
        """A step at which to die; half of the time one at which nothing was killed yet, if there is one."""
        missing = [step for step in steps if step not in self.counts.steps]
        return self._random.choice(missing if missing and self._random.random() < 0.5 else steps)

    def _fault(self, steps: tuple[str, ...], judge: Judge | FitJudge) -> tuple[str, int, float | None]:
        """The step at which the driver kills itself, at which occurrence, and the seconds of computing until it is
        killed, None: it may finish. Where only the end is left to do, it is disturbed at most there.
        """
        if judge.is_nearly_done:
            last = [step for step in steps if step.startswith(LAST)]
            missing = [step for step in last if step not in self.counts.steps]
            return (
                (self._random.choice(missing or last) if missing or self._random.random() < 0.5 else "-"),
                1,
                None,
            )
        if self._random.random() < 0.4:
            return "-", 1, self._random.uniform(0, judge.longest_session)
        step = self._next_step(tuple(step for step in steps if not step.startswith(LAST)))
        often = step in self.counts.steps
        return step, self._random.choice((1, 1, 1, 2, 4)) if often else 1, 1.5 * judge.longest_session

    def _run_on_ray(self, sweep: ReferencedSweep, judge: Judge, kills: int, *, undisturbed: bool) -> bool:
        """Run one driver; return whether it has finished the sweep."""
        if undisturbed:
            with RayDriver(sweep.file, judge.out, "-", 1, mirror=judge.mirror) as driver:
                assert driver.end() == 0, driver.errors()
            return True
        last = self._random.choice(("driver", "raylet", "gcs_server", "everything", "step"))
        steps = STEPS if judge.mirror is None else (*STEPS, *MIRROR_STEPS, *MIRROR_STEPS)
        step, nth = (self._next_step(steps), self._random.choice((1, 1, 2))) if last == "step" else ("-", 1)
        with RayDriver(sweep.file, judge.out, step, nth, mirror=judge.mirror) as driver:
            if self._random.random() < 0.2:
                driver.wait(self._random.uniform(0.3, 6.0))  # while Ray starts, or soon after
            else:
                self._kill_workers(driver, judge, kills)
            if last != "step":
                killed = driver.kill(last)
                self._count_on_ray(last, judge, min(killed, 1))
            status = driver.end()
            if status == -signal.SIGKILL and step != "-":
                self._count_on_ray("driver at a step", judge, 1)
                self.counts.steps.add(step)
            errors = driver.errors()
        judge.check_rows()
        assert "Traceback" not in errors, errors
        broken = status == 1 and any(words in errors for words in BROKEN)
        assert status in (0, -signal.SIGKILL) or broken, (status, errors)
        return status == 0

    def _kill_workers(self, driver: RayDriver, judge: Judge, kills: int) -> None:
        """Kill busy workers again and again: some while they start, some in a run, some when it has a checkpoint."""
        driver.wait_for_work()
        for _ in range(self._random.randint(1, MOST_ROUNDS)):
            if not driver.is_running or self._killed("Ray") >= kills:
                return
            moment = self._random.random()
            if moment < 0.15:
                driver.wait_for_state(judge.out)
            elif moment < 0.35:
                driver.wait_for_work()
                driver.wait(self._random.uniform(0.0, 1.0))
            else:
                driver.wait_for_workers()
                driver.wait(self._random.uniform(0.0, 0.5))
            self._count_on_ray("worker", judge, driver.kill("workers"))

    def _count_on_ray(self, name: str, judge: Judge, count: int) -> None:
        self.counts.kills[f"Ray {name}"] += count
        self.counts.victims[f"{judge.kind} on Ray"] += count


if __name__ == "__main__":
    found = [CampaignCounts.read(Path(name)) for name in sys.argv[1:]]
    total = sum(found[1:], start=found[0])
    print(total.line())
    missing = [step for step in ALL_STEPS if step not in total.steps]
    print(f"steps at which nothing was killed: {', '.join(missing) or 'none'}")
