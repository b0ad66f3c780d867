"""The judge of disturbed sweeps: no row may vanish, and every bit must equal that of an undisturbed sweep."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from click.testing import CliRunner

from kising import load_fit, run_sweep
from kising.atomic import atomic_write
from kising.cli import main
from kising.fitting.command import CHECKPOINT
from kising.learning.checkpoint import load
from kising.report.tables import derived
from kising.sweep.plan import Plan
from kising.sweep.spec import read_spec
from kising.sweep.store.columns import DETERMINISTIC_COLUMNS
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.parquet import frame_of_runs, same_bits
from kising.sweep.store.run_store import Store
from kising.sweep.store.verify import VerifyReport, verify
from support.drivers import notes_of
from support.fault_injector import ALL_STEPS

# A sweep limits the threads of its process's libraries: two sweeps at once would undo each other's limits.
_ONE_AT_A_TIME = threading.Lock()
RESULTS = {"couplings.npz", "edges.csv", "fit.json", "index.html", ".kising-fit", ".lock"}
"""The files of a finished fit."""


@dataclass
class CampaignCounts:
    """The counters of a campaign, or of several that were added."""

    seed: int | str
    kills: Counter[str] = field(default_factory=Counter)  # by place and victim
    victims: Counter[str] = field(default_factory=Counter)  # kills by the sweep or fit that was disturbed
    steps: set[str] = field(default_factory=set)  # at which something was killed
    sweeps: int = 0  # and fits
    drivers: int = 0
    runs: int = 0  # of all sweeps
    started: int = 0  # runs, including resumed ones
    resumed: int = 0  # of these, from a checkpoint
    lost: int = 0  # rows that have vanished
    wrong: int = 0  # rows that differ from the reference
    machines: int = 0  # lost with their disks
    seconds: float = 0.0

    def __add__(self, other: CampaignCounts) -> CampaignCounts:
        """The sum of two campaigns."""
        return CampaignCounts(
            f"{self.seed}, {other.seed}",
            **{
                name: getattr(self, name) + getattr(other, name)
                for name in vars(self)
                if name not in ("seed", "steps")
            },
            steps=self.steps | other.steps,
        )

    def write(self, file: Path) -> None:
        atomic_write(file, json.dumps({**vars(self), "steps": sorted(self.steps)}, indent=1).encode())

    @classmethod
    def read(cls, file: Path) -> CampaignCounts:
        found = json.loads(file.read_text())
        counters = {name: Counter(found.pop(name)) for name in ("kills", "victims")}
        return cls(**found | counters | {"steps": set(found["steps"])})

    def line(self) -> str:
        ray = sum(count for name, count in self.kills.items() if name.startswith("Ray "))
        return (
            f"faults: {self.kills.total()} kills, {ray} of them on Ray ({_listed(self.kills)}; of "
            f"{_listed(self.victims)}), at {len(self.steps)} of {len(ALL_STEPS)} steps; {self.sweeps} sweeps and fits, "
            f"{self.runs} runs, {self.drivers - self.sweeps} restarts, {self.started - self.runs} runs repeated, "
            f"{self.resumed} resumed from a checkpoint"
            + (
                f"; {self.machines} machines lost with their disks, and resumed from mirrors"
                if self.machines
                else ""
            )
            + f"; {self.lost} rows lost, {self.wrong} wrong; seed {self.seed}, {self.seconds / 60:.1f} min"
        )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


class ReferencedSweep:
    """A sweep to be disturbed, with its undisturbed rows as the reference."""

    def __init__(self, place: Path, text: str) -> None:
        place.mkdir(parents=True)
        self.name = place.name
        self.file = place / "sweep.yaml"
        self.file.write_text(text)
        self.plan = Plan.of(read_spec(self.file))
        with _ONE_AT_A_TIME:
            start = time.monotonic()
            self.reference = run_sweep(self.file, out=place / "reference", in_process=True).runs
            self.seconds = time.monotonic() - start
        store = Store.open(SweepDirectory(place / "reference"), writable=False)
        self._table = store.table(self.plan.ids).select(list(DETERMINISTIC_COLUMNS))
        names = ("couplings.parquet", "traces.parquet")
        self.artifacts = {
            name: pd.read_parquet(place / "reference" / name)
            for name in names
            if (place / "reference" / name).exists()
        }
        assert (self.reference["status"] == "done").all()

    def rows_of(self, path: Path) -> tuple[set[str], int]:
        """The runs that a directory has rows of, and how many of these rows are wrong."""
        store = Store.open(SweepDirectory(path), writable=False)
        table = store.table(self.plan.ids)
        found = table["run_id"].to_pylist()
        places = self.plan.order(found)
        # The common case is quick: all columns at once, bit for bit.
        if same_bits(table.select(list(DETERMINISTIC_COLUMNS)), self._table.take(places)):
            return set(found), 0
        return set(found), count_wrong(frame_of_runs(table), self.reference)

    def verify(self, path: Path) -> VerifyReport:
        """The verdict on a directory."""
        return verify(SweepDirectory(path), self.plan, derived)

    def wrong_artifacts(self, out: Path) -> int:
        """The number of tables of couplings and traces that differ from the reference."""
        return sum(not pd.read_parquet(out / name).equals(wanted) for name, wanted in self.artifacts.items())


class Judge:
    """Compares the rows of one disturbed sweep with the reference."""

    longest_session = 0.14
    """seconds of computing before a driver is killed: enough for some commits"""

    def __init__(
        self, sweep: ReferencedSweep, out: Path, counts: CampaignCounts, *, mirrored: bool = False
    ) -> None:
        self.out, self._sweep, self._counts = out, sweep, counts
        self.kind = f"{sweep.name} with a mirror" if mirrored else sweep.name
        self.mirror = str(out.with_name(f"{out.name}.mirror")) if mirrored else None
        self._seen: set[str] = set()
        self._listed: list[str] = []

    @property
    def is_nearly_done(self) -> bool:
        """Whether only the tables are left to do."""
        return len(self._seen) == self._sweep.plan.n_runs

    def check_rows(self) -> None:
        """Compare all rows with the reference, bit by bit, and count those that have vanished."""
        listed = sorted(path.name for path in (self.out / "parts").glob("*"))
        if listed == self._listed:
            return
        self._listed = listed
        now, wrong = self._sweep.rows_of(self.out)
        self._counts.lost += len(self._seen - now)
        self._seen |= now
        self._counts.wrong += wrong

    def lose_machine(self) -> None:
        """Let everything on the disk be gone, where there is a mirror.

        What only this disk had may be run again; what the mirror has is the least that the next driver begins with.
        """
        if self.mirror is None:
            return
        shutil.rmtree(self.out, ignore_errors=True)
        self._counts.wrong += self._sweep.rows_of(Path(self.mirror))[1]
        self._seen, self._listed = set(), []
        self._counts.machines += 1

    def check_finished(self) -> None:
        """Check a sweep that claims to be done: its parts, its table, and the verdict of `verify`; then remove it."""
        self._listed = []
        self.check_rows()
        plan = self._sweep.plan
        self._counts.lost += plan.n_runs - len(self._seen)
        table = pd.read_parquet(self.out / "runs.parquet")
        self._counts.lost += plan.n_runs - len(table)
        self._counts.wrong += count_wrong(table, self._sweep.reference)
        self._counts.wrong += self._sweep.wrong_artifacts(self.out)
        report = self._sweep.verify(self.out)
        assert report.in_order, report.lines()
        assert report.complete, report.lines()
        assert (report.temporaries, report.quarantined) == ((), ())
        assert not list((self.out / "checkpoints").glob("*"))
        if self.mirror is not None:
            self._check_mirror()
        started = [line.split() for line in notes_of(self.out).read_text().splitlines()]
        self._counts.started += len(started)
        self._counts.resumed += sum(iteration != "0" for _, iteration in started)
        self._counts.runs += plan.n_runs
        self._counts.sweeps += 1
        if not (self._counts.lost or self._counts.wrong):
            shutil.rmtree(self.out)
            shutil.rmtree(self.mirror or "", ignore_errors=True)
            notes_of(self.out).unlink()

    def _check_mirror(self) -> None:
        """The mirror of a finished sweep is a sweep's directory by itself."""
        assert self.mirror is not None
        report = self._sweep.verify(Path(self.mirror))
        assert report.in_order, report.lines()
        assert report.complete, report.lines()


class ReferencedFit:
    """A `kising fit` to be disturbed, with what it writes when it is not."""

    def __init__(self, recording: Path, place: Path, options: Sequence[str]) -> None:
        self.name, self.recording = place.name, recording
        self.arguments = ["fit", str(recording), "--seed", "5", "--threads", "1", *options]
        start = time.monotonic()
        ended = CliRunner().invoke(main, [*self.arguments, "--out", str(place)])
        self.seconds = time.monotonic() - start
        self.status = ended.exit_code  # 1 where learning has not converged
        assert (place / "fit.json").exists(), ended.output
        self.hidden = json.loads((place / "fit.json").read_bytes())["hidden"]
        self.files = {name: (place / name).read_bytes() for name in ("couplings.npz", "edges.csv")}


class FitJudge:
    """Compares a folder of fits with the references; fits of two kinds replace each other in it."""

    longest_session = 0.5
    """seconds of computing before a fit is killed: enough for some checkpoints"""

    def __init__(
        self, fit: ReferencedFit, fits: Sequence[ReferencedFit], out: Path, counts: CampaignCounts
    ) -> None:
        """`fit` is made now; any of `fits` may have been made in the folder before."""
        self.out, self.kind, self._fit, self._fits, self._counts = out, fit.name, fit, fits, counts

    @property
    def is_nearly_done(self) -> bool:
        """Whether learning has ended, and only the results are left to write."""
        path = self.out / CHECKPOINT
        return path.exists() and load(path.read_bytes().partition(b"\n")[2]).outcome != "running"

    def check_rows(self) -> None:
        """Where there is a fit.json, all files belong together, and are those of an undisturbed fit."""
        if not (self.out / "fit.json").exists():
            return
        hidden = json.loads((self.out / "fit.json").read_bytes())["hidden"]
        wanted = next(fit.files for fit in self._fits if fit.hidden == hidden)
        self._counts.wrong += wanted != {name: (self.out / name).read_bytes() for name in wanted}

    def lose_machine(self) -> None:
        """Fits have no mirrors."""

    def check_finished(self) -> None:
        """Check a folder that claims to be done."""
        found = {name: (self.out / name).read_bytes() for name in self._fit.files}
        self._counts.wrong += found != self._fit.files
        left = {path.name for path in self.out.iterdir()} - RESULTS
        assert not left, left
        load_fit(self.out)
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
