"""The judge of disturbed sweeps: no row may vanish, and every bit must equal that of an undisturbed sweep."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from kising import run_sweep
from kising.messages import plural
from kising.report.tables import derived
from kising.sweep.plan import Plan
from kising.sweep.spec import read_spec
from kising.sweep.store.columns import DETERMINISTIC_COLUMNS
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.run_store import Store
from kising.sweep.store.verify import verify
from support.drivers import notes_of
from support.fault_injector import MIRROR_STEPS, STEPS

# A sweep limits the threads of its process's libraries: two sweeps at once would undo each other's limits.
_ONE_AT_A_TIME = threading.Lock()


@dataclass
class CampaignCounts:
    """The counters of a campaign."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)  # by place and victim
    steps: set[str] = field(default_factory=set)  # at which something was killed
    sweeps: int = 0
    drivers: int = 0
    runs: int = 0  # of all sweeps
    started: int = 0  # runs, including resumed ones
    resumed: int = 0  # of these, from a checkpoint
    lost: int = 0  # rows that have vanished
    wrong: int = 0  # rows that differ from the reference
    machines: int = 0  # lost with their disks
    seconds: float = 0.0

    def __add__(self, other: CampaignCounts) -> CampaignCounts:
        """The sum over two campaigns that ran at the same time."""
        return CampaignCounts(
            self.seed,
            self.kills + other.kills,
            self.steps | other.steps,
            *(
                getattr(self, name) + getattr(other, name)
                for name in ("sweeps", "drivers", "runs", "started", "resumed", "lost", "wrong", "machines")
            ),
            seconds=max(self.seconds, other.seconds),
        )

    def line(self) -> str:
        ray = sum(count for name, count in self.kills.items() if name.startswith("Ray "))
        victims = ", ".join(f"{count} {name}" for name, count in sorted(self.kills.items()))
        return (
            f"faults: {self.kills.total()} kills, {ray} of them on Ray ({victims}), at "
            f"{len(self.steps)} of {len(STEPS) + len(MIRROR_STEPS)} steps; {plural(self.sweeps, 'sweep')} of "
            f"{self.runs} runs, {self.drivers - self.sweeps} restarts, {self.started - self.runs} runs repeated, "
            f"{self.resumed} resumed from a checkpoint"
            + (
                f"; {self.machines} machines lost with their disks, and resumed from mirrors"
                if self.machines
                else ""
            )
            + f"; {self.lost} rows lost, {self.wrong} wrong; "
            f"seed {self.seed}, {self.seconds / 60:.1f} min"
        )


class ReferencedSweep:
    """A sweep to be disturbed, with its undisturbed rows as the reference."""

    def __init__(self, place: Path, text: str) -> None:
        place.mkdir(parents=True)
        self.file = place / "sweep.yaml"
        self.file.write_text(text)
        self.plan = Plan.of(read_spec(self.file))
        with _ONE_AT_A_TIME:
            start = time.monotonic()
            self.reference = run_sweep(self.file, out=place / "reference", in_process=True).runs
            self.seconds = time.monotonic() - start
        names = ("couplings.parquet", "traces.parquet")
        self.artifacts = {
            name: pd.read_parquet(place / "reference" / name)
            for name in names
            if (place / "reference" / name).exists()
        }
        assert (self.reference["status"] == "done").all()


class Judge:
    """Compares the rows of one disturbed sweep with the reference."""

    def __init__(self, sweep: ReferencedSweep, out: Path, counts: CampaignCounts) -> None:
        self.out, self._sweep, self._counts = out, sweep, counts
        self._seen: set[str] = set()
        self._listed: list[str] = []

    def check_rows(self) -> None:
        """Compare all rows with the reference, bit by bit, and count those that have vanished."""
        listed = sorted(path.name for path in (self.out / "parts").glob("*"))
        if listed == self._listed:
            return
        self._listed = listed
        rows = Store.open(SweepDirectory(self.out), writable=False).read_runs(self._sweep.plan.ids)
        now = set(rows["run_id"])
        self._counts.lost += len(self._seen - now)
        self._seen |= now
        self._counts.wrong += count_wrong(rows, self._sweep.reference)

    def lose_machine(self) -> None:
        """Let everything on the disk be gone; what only this disk had may be run again."""
        shutil.rmtree(self.out, ignore_errors=True)
        self._seen, self._listed = set(), []
        self._counts.machines += 1

    def check_finished(self) -> None:
        """Check a sweep that claims to be done: its parts, its table, and the verdict of `verify`."""
        self._listed = []
        self.check_rows()
        plan = self._sweep.plan
        self._counts.lost += plan.n_runs - len(self._seen)
        table = pd.read_parquet(self.out / "runs.parquet")
        self._counts.lost += plan.n_runs - len(table)
        self._counts.wrong += count_wrong(table, self._sweep.reference)
        for name, wanted in self._sweep.artifacts.items():
            self._counts.wrong += not pd.read_parquet(self.out / name).equals(wanted)
        report = verify(SweepDirectory(self.out), plan, derived)
        assert report.in_order, report.lines()
        assert report.complete, report.lines()
        assert (report.temporaries, report.quarantined) == ((), ())
        assert not list((self.out / "checkpoints").glob("*"))
        started = [line.split() for line in notes_of(self.out).read_text().splitlines()]
        self._counts.started += len(started)
        self._counts.resumed += sum(iteration != "0" for _, iteration in started)
        self._counts.runs += plan.n_runs
        self._counts.sweeps += 1


def count_wrong(rows: pd.DataFrame, reference: pd.DataFrame) -> int:
    """The number of rows that differ in a bit of any deterministic column."""
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
