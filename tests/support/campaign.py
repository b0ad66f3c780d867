"""Kill sweeps in every way there is, resume them until they are done, and judge what they have come to.

A life is one sweep from nothing to its last row, through any number of killed drivers. After every death the
parts are read: a row that was there once and is not there any more is lost, one that differs in any bit from
the row of an undisturbed sweep is wrong. Nobody ever touches the directory between two drivers.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd

import kising
from kising import run_sweep
from kising.sweep.plan import Plan
from kising.sweep.spec import read_spec
from kising.sweep.store.columns import DETERMINISTIC_COLUMNS
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.run_store import Store
from kising.sweep.store.verify import verify
from support.saboteur import NOTES, STEPS

HERE = Path(__file__).parent
PATHS = os.pathsep.join([str(Path(kising.__file__).parents[1]), str(HERE.parent)])
PATIENCE = 180.0  # seconds after which a driver counts as stuck
LONGEST_SESSION = 0.35  # seconds before a driver in process is killed
UNDISTURBED = 150  # drivers of one life after which the next is left in peace

# A sweep holds the libraries of its process to some number of threads: two at once would undo each other's.
_ONE_AT_A_TIME = threading.Lock()

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


@dataclass
class Tally:
    """What a campaign has come to."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)  # by where and whom
    steps: set[str] = field(default_factory=set)  # at which something was killed
    lives: int = 0
    drivers: int = 0
    runs: int = 0  # of all lives
    begun: int = 0  # beginnings of runs, resumed ones included
    resumed: int = 0  # of these, from a checkpoint
    lost: int = 0
    wrong: int = 0
    seconds: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        """Of two campaigns that went on at the same time."""
        return Tally(
            self.seed,
            self.kills + other.kills,
            self.steps | other.steps,
            *(
                getattr(self, name) + getattr(other, name)
                for name in ("lives", "drivers", "runs", "begun", "resumed", "lost", "wrong")
            ),
            seconds=max(self.seconds, other.seconds),
        )

    def line(self) -> str:
        ray = sum(count for name, count in self.kills.items() if name.startswith("Ray "))
        whom = ", ".join(f"{count} {name}" for name, count in sorted(self.kills.items()))
        return (
            f"faults: {self.kills.total()} kills, {ray} of them on Ray ({whom}), at "
            f"{len(self.steps)} of {len(STEPS)} steps; {self.lives} sweeps of "
            f"{self.runs} runs, {self.drivers - self.lives} restarts, {self.begun - self.runs} runs repeated, "
            f"{self.resumed} resumed from a checkpoint; {self.lost} rows lost, {self.wrong} wrong; "
            f"seed {self.seed}, {self.seconds / 60:.1f} min"
        )


class Sweep:
    """A sweep to be disturbed, and what it comes to undisturbed."""

    def __init__(self, place: Path, text: str) -> None:
        place.mkdir(parents=True)
        self.file = place / "sweep.yaml"
        self.file.write_text(text)
        self.plan = Plan.of(read_spec(self.file))
        with _ONE_AT_A_TIME:
            start = time.monotonic()
            self.reference = run_sweep(self.file, out=place / "reference", in_process=True).runs
            self.seconds = time.monotonic() - start
        assert (self.reference["status"] == "done").all()


class Watch:
    """Looks at the parts of one life."""

    def __init__(self, sweep: Sweep, out: Path, tally: Tally) -> None:
        self.out, self._sweep, self._tally = out, sweep, tally
        self._seen: set[str] = set()
        self._listed: list[str] = []

    def look(self) -> None:
        """Compare every row there is with the reference, bit by bit, and miss those that are gone."""
        listed = sorted(path.name for path in (self.out / "parts").glob("*"))
        if listed == self._listed:
            return
        self._listed = listed
        rows = Store.open(SweepDirectory(self.out), writable=False).read_runs(self._sweep.plan.ids)
        now = set(rows["run_id"])
        self._tally.lost += len(self._seen - now)
        self._seen |= now
        self._tally.wrong += count_wrong(rows, self._sweep.reference)

    def finish(self) -> None:
        """Judge a sweep that says it is done: its parts, its table, and what `verify` says of it."""
        self._listed = []
        self.look()
        plan = self._sweep.plan
        self._tally.lost += plan.n_runs - len(self._seen)
        table = pd.read_parquet(self.out / "runs.parquet")
        self._tally.lost += plan.n_runs - len(table)
        self._tally.wrong += count_wrong(table, self._sweep.reference)
        report = verify(SweepDirectory(self.out), plan)
        assert report.sound, report.lines()
        assert report.complete, report.lines()
        assert (report.temporaries, report.quarantined, report.runs_file) == ((), (), "current")
        assert not list((self.out / "checkpoints").glob("*"))
        begun = [line.split() for line in notes_of(self.out).read_text().splitlines()]
        self._tally.begun += len(begun)
        self._tally.resumed += sum(iteration != "0" for _, iteration in begun)
        self._tally.runs += plan.n_runs
        self._tally.lives += 1


def notes_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.notes")


def count_wrong(rows: pd.DataFrame, reference: pd.DataFrame) -> int:
    """Rows that differ in a bit of any column that is not about time and place."""
    wanted = reference.set_index("run_id", drop=False).loc[list(rows["run_id"])]
    wrong = np.zeros(len(rows), dtype=bool)
    for name in DETERMINISTIC_COLUMNS:
        ours, theirs = rows[name], wanted[name]
        missing = ours.isna().to_numpy()
        wrong |= missing != theirs.isna().to_numpy()
        if ours.dtype == np.float64:
            bits = ours.to_numpy().view(np.uint64) != theirs.to_numpy().view(np.uint64)
            wrong |= bits & ~missing
        else:
            pairs = zip(ours.astype(object), theirs.astype(object), missing, strict=True)
            wrong |= np.array([not gone and one != other for one, other, gone in pairs], dtype=bool)
    return int(wrong.sum())


class Campaign:
    """Lives of sweeps, one after another, until enough has been killed."""

    def __init__(self, place: Path, seed: int, *, realizations: int | None = None) -> None:
        """Work in a directory; `realizations` replaces that of the sweeps, to make them shorter."""
        self.tally = Tally(seed)
        self._place, self._realizations = place, realizations
        self._random = random.Random(seed)
        self._steps = cycle(self._random.sample(STEPS, len(STEPS)))
        self._start = time.monotonic()

    def in_process(self, kills: int) -> Self:
        """Kill drivers that run everything in themselves: at random times, and at every step in turn."""
        sweeps = [self._sweep(name, text) for name, text in SHORT.items()]
        with Zygote([sweep.file for sweep in sweeps]) as zygote:
            for number, sweep in enumerate(cycle(sweeps)):
                if self._killed("in process") >= kills:
                    break
                watch = Watch(sweep, self._place / f"in-process-{number}", self.tally)
                for driver in range(UNDISTURBED + 1):
                    step, nth, after = self._fault(
                        sweep.seconds, in_peace=driver == UNDISTURBED or self._killed("in process") >= kills
                    )
                    self.tally.drivers += 1
                    signals = [(after, int(signal.SIGKILL))] if after is not None else []
                    status, sent = zygote.session(sweep.file, watch.out, step, nth, signals)
                    timed = sent and after is not None
                    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                        self.tally.kills[f"in process at {'a random time' if timed else 'a step'}"] += 1
                        if not timed:
                            self.tally.steps.add(step)
                        watch.look()
                    else:
                        assert status == 0, zygote.errors(watch.out)
                        break
                else:
                    raise AssertionError(f"{watch.out}: not done by a driver left in peace")
                watch.finish()
        return self._timed()

    def on_ray(self, kills: int) -> Self:
        """Kill drivers, their workers, their Ray or everything at once."""
        sweep = self._sweep("ray", ON_RAY)
        number = 0
        while self._killed("Ray") < kills:
            watch = Watch(sweep, self._place / f"ray-{number}", self.tally)
            number += 1
            for driver in range(UNDISTURBED + 1):
                self.tally.drivers += 1
                in_peace = driver == UNDISTURBED or self._killed("Ray") >= kills
                if self._ray_session(sweep, watch, in_peace=in_peace):
                    break
            else:
                raise AssertionError(f"{watch.out}: not done by a driver left in peace")
            watch.finish()
        return self._timed()

    def _sweep(self, name: str, text: str) -> Sweep:
        if self._realizations is not None:
            text = re.sub(r"(?m)^realizations: \d+$", f"realizations: {self._realizations}", text)
        return Sweep(self._place / name, text)

    @property
    def _all_steps(self) -> bool:
        """Whether something was killed at every step; until then those that are missing come first."""
        return self.tally.steps == set(STEPS)

    def _killed(self, where: str) -> int:
        return sum(count for name, count in self.tally.kills.items() if name.startswith(where))

    def _timed(self) -> Self:
        self.tally.seconds = time.monotonic() - self._start
        return self

    def _fault(self, seconds: float, *, in_peace: bool) -> tuple[str, int, float | None]:
        """The step to die at and at which of its occurrences, and the seconds after which to be killed."""
        if in_peace:
            return "-", 1, None
        if self._random.random() < 0.6:
            step = next(step for step in self._steps if step not in self.tally.steps or self._all_steps)
            # Some steps come once a session, tables only at its end; and a driver that never comes to its step
            # must not finish.
            once = step.startswith(("sweep", "manifest", "tables"))
            nth = 1 if once or not self._all_steps else self._random.choice((1, 1, 1, 2, 4))
            late = step.startswith("tables")
            return step, nth, None if late else self._random.uniform(2, 3) * LONGEST_SESSION
        return "-", 1, self._random.uniform(0, min(seconds, LONGEST_SESSION))

    def _ray_session(self, sweep: Sweep, watch: Watch, *, in_peace: bool) -> bool:
        """One driver from its start to its end; true if it has finished the sweep."""
        if in_peace:
            with RayDriver(sweep.file, watch.out, "-", 1) as driver:
                assert driver.end() == 0, driver.errors()
            return True
        last = self._random.choice(("driver", "driver", "raylet", "gcs_server", "everything", "step"))
        step, nth = (next(self._steps), self._random.choice((1, 2, 3))) if last == "step" else ("-", 1)
        # A run may lose three workers before it fails, so those at work are killed twice under one driver.
        victims = ["workers", "workers", *([last] if last != "step" else [])]
        if self._random.random() < 0.15:
            victims = [last]  # while Ray starts, or soon after
        with RayDriver(sweep.file, watch.out, step, nth) as driver:
            for victim in victims:
                if len(victims) > 1:
                    driver.wait_for_work()
                    driver.wait(self._random.uniform(0.1, 2.0))
                else:
                    driver.wait(self._random.uniform(0.5, 12.0))
                killed = driver.kill(victim)
                name = "worker" if victim == "workers" else victim
                self.tally.kills[f"Ray {name}"] += min(killed, 1) if victim == "everything" else killed
            status = driver.end()
            if status == -signal.SIGKILL and step != "-":
                self.tally.kills["Ray driver at a step"] += 1
                self.tally.steps.add(step)
            errors = driver.errors()
        watch.look()
        assert "Traceback" not in errors, errors
        broken = status == 1 and ("Ray broke down" in errors or "Ray does not start" in errors)
        assert status in (0, -signal.SIGKILL) or broken, (status, errors)
        return status == 0


class Zygote:
    """The process that forks drivers."""

    def __init__(self, files: list[Path]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "zygote.py"), *map(str, files)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": PATHS},
        )  # fmt: skip
        assert self._answer() == "ready"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def session(
        self,
        file: Path,
        out: Path,
        step: str = "-",
        nth: int = 1,
        signals: list[tuple[float, int]] | None = None,
        *,
        at_work: bool = False,
    ) -> tuple[int, bool]:
        """Run a driver to its end, and send it signals, each so many seconds after its start.

        at_work: after the beginning of its first run instead. Returns what waitpid says, and whether all
        signals were sent.
        """
        request = {
            "step": step,
            "nth": nth,
            "signals": signals or [],
            "at_work": at_work,
            "words": ["run", str(file), "--out", str(out), "--local-debug"],
            "errors": str(self._errors(out)),
            "notes": str(notes_of(out)),
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status, sent = self._answer().split()
        return int(status), sent == "True"

    def errors(self, out: Path) -> str:
        return self._errors(out).read_text()

    def _errors(self, out: Path) -> Path:
        return out.with_name(f"{out.name}.errors")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


class RayDriver:
    """A driver with a Ray of its own, and all the processes that belong to it."""

    def __init__(self, file: Path, out: Path, step: str, nth: int) -> None:
        self._notes = notes_of(out)
        self._noted = self._size()
        self._errors = out.with_name(f"{out.name}.errors").open("w+")
        words = ["run", str(file), "--out", str(out), "--cpus", "2"]
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "saboteur.py"), step, str(nth), *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._errors,
            # Ray's workers stand back for other processes, by default, and on a busy machine would never be done.
            env={**os.environ, "PYTHONPATH": PATHS, NOTES: str(self._notes), "RAY_worker_niceness": "0"},
            start_new_session=True,
        )  # fmt: skip
        self._known: set[tuple[int, str]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing behind: a Ray whose driver was killed ends by itself, but not always at once."""
        self._family()
        self._process.kill()
        self._process.wait()
        end = time.monotonic() + 1
        while (left := [pid for pid, born in self._known if born_at(pid) == born]) and time.monotonic() < end:
            time.sleep(0.05)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._errors.close()

    def wait(self, seconds: float) -> None:
        """Let it work for a while, unless it ends first."""
        end = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)

    def wait_for_work(self) -> None:
        """Wait until it has begun a run."""
        end = time.monotonic() + PATIENCE
        while self._process.poll() is None and self._size() == self._noted:
            assert time.monotonic() < end, f"no run has begun: {self.errors()}"
            time.sleep(0.02)

    def kill(self, victim: str) -> int:
        """Kill one of its processes, those that are at work, or all; return how many."""
        if self._process.poll() is not None:
            return 0
        self._noted = self._size()
        family = dict(self._family())
        if victim == "driver":
            chosen = [self._process.pid]
        elif victim == "everything":
            chosen = [self._process.pid, *family]
        else:
            mark = {"workers": "ray::kising", "raylet": "raylet/raylet", "gcs_server": "gcs_server"}.get(
                victim
            )
            chosen = [pid for pid, command in family.items() if mark and mark in command.split("\0")[0]]
        for pid in chosen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(chosen)

    def end(self) -> int:
        """Wait for its end and return its exit status."""
        self._family()
        return self._process.wait(timeout=PATIENCE)

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def _size(self) -> int:
        return self._notes.stat().st_size if self._notes.exists() else 0

    def _family(self) -> list[tuple[int, str]]:
        """The processes below the driver, with their command lines; they are remembered."""
        family = list(descendants(self._process.pid))
        self._known |= {(pid, born) for pid, _ in family if (born := born_at(pid))}
        return family


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """Every process below a process, with its command line."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, IndexError, ValueError):
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry))
    waiting = list(children.get(pid, []))
    while waiting:
        one = waiting.pop()
        waiting.extend(children.get(one, []))
        with suppress(OSError):
            yield one, Path(f"/proc/{one}/cmdline").read_text(errors="replace")


def born_at(pid: int) -> str:
    """When a process began, in the kernel's ticks; empty if it is gone or a zombie."""
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    return ""
