"""Power is lost at a random moment of a sweep or a fit, and the same command goes on from what the disk may hold then.

A session is recorded from its start to its end. Then a moment of it is chosen, and a state that the disk may have had
if power was lost at that moment. From that state the next session goes on, is judged, recorded, and so on. What a
session was told to be safe must be in every state after that, and no session may see anything but whole files.
"""

from __future__ import annotations

import functools
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

import kising.sweep.task as task
from kising import draw_couplings, run_sweep, simulate
from kising.fitting import saved_state
from kising.fitting.command import CHECKPOINT, CLOSING, Request
from kising.fitting.command import run as run_fit
from kising.learning.fitted.saving import load_fit
from kising.report import tables
from kising.report.tables import Tables
from kising.sweep.drive.conductor import Policy
from kising.sweep.drive.signals import StopRequest
from kising.sweep.store.checkpoints import Checkpoints
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.run_store import Store
from kising.version import NUMERICS
from support.disk_recorder import Mark, Operation, Recorder, Tree, Write, marking, read_tree, write_tree
from support.judging import ReferencedSweep
from support.power_loss import Disk, Memory

LONGEST_CHAIN = 12  # losses from the first session of a sweep to its last
_REMEMBERED: dict[str, dict[bytes, pd.DataFrame]] = {}
MEMORIES: tuple[Memory, ...] = ("nothing", "all", "beginning", "any", "any")

SWEEPS = {
    "learn": """
name: learn
seed: 3
realizations: 3
model: {visible: 4, hidden: 2}
learner: {estimator: exact, max_iterations: 3, tolerance: 1.0e-12}
axes: {data.length: [40, 60]}
keep: {couplings: true, trace: true, realizations: 2}
resources: {checkpoint: 0.001}
""",
    "coupled": """
name: coupled
seed: 4
realizations: 2
model: {visible: 3, hidden: 2, hidden_coupling: 1.0, bias: 0.3}
learner: {hidden_couplings: true, max_iterations: 3, tolerance: 1.0e-12, bias: true}
axes: {data.missing: [0, 0.1], data.length: [40]}
resources: {checkpoint: 0.001}
""",
}


@dataclass
class PowerCounts:
    """The counters of power losses."""

    seed: int
    losses: Counter[str] = field(default_factory=Counter)  # by victim
    lost: int = 0  # rows or states that were safe, and are gone
    wrong: int = 0  # rows or files that differ from the reference
    between: list[str] = field(default_factory=list)  # states that are neither before nor after

    def line(self) -> str:
        victims = ", ".join(f"{count} of {name}" for name, count in sorted(self.losses.items()))
        return (
            f"power: {self.losses.total()} losses ({victims}); {self.lost} rows, tables or checkpoints lost, "
            f"{self.wrong} wrong, {len(self.between)} states between before and after; seed {self.seed}"
        )


def lose(recorder: Recorder, moment: int, memory: Memory, generator: random.Random) -> Tree:
    """What the disk may hold if power is lost before an operation."""
    disk = Disk(recorder.initial, recorder.first_nodes)
    disk.replay(recorder.operations[:moment])
    return disk.after_loss(generator, memory)


def some_moment(recorder: Recorder, generator: random.Random) -> int:
    """A moment of a record; rarely between two pieces of one file, of which tables have hundreds."""
    moments = [
        number
        for number, operation in enumerate(recorder.operations)
        if not isinstance(operation, Write) or generator.random() < 0.02
    ]
    return generator.choice([*moments, len(recorder.operations)])


def seen(recorder: Recorder, moment: int) -> Tree:
    """What the process sees at a moment."""
    disk = Disk(recorder.initial, recorder.first_nodes)
    disk.replay(recorder.operations[:moment])
    return disk.now()


def check_recorded(recorder: Recorder, place: Path) -> None:
    """Everything that happened was recorded."""
    assert seen(recorder, len(recorder.operations)) == read_tree(place)


def marks(operations: list[Operation]) -> Iterator[Mark]:
    return (operation for operation in operations if isinstance(operation, Mark))


class SweepTrials:
    """Power losses of one sweep.

    With a mirror, they are of the machine, of the mirror's machine, of both, or of the machine for ever.
    """

    def __init__(self, place: Path, name: str, counts: PowerCounts, *, mirror: bool = False) -> None:
        self._place, self._counts, self._mirror = place, counts, mirror
        self._name = f"{name} with a mirror" if mirror else name
        self._sweep = ReferencedSweep(place / "sweep", SWEEPS[name])
        self._generator = random.Random(f"{counts.seed} {self._name}")
        self._safe: set[str] = set()  # runs whose rows were committed
        self._states: set[str] = set()  # runs whose state was saved
        self._mirrored: set[str] = set()  # runs that a new machine finds in the mirror
        self._finished = False  # the tables were written
        self._performed: list[str] = []
        self._sessions = 0

    def run(self, losses: int) -> None:
        """Lose power this many times."""
        tree: Tree = {}
        chain = 0
        self._forget()
        for _ in range(losses):
            recorder = self.session(tree)
            self._counts.losses[self._name] += 1
            tree = self.lose(recorder, some_moment(recorder, self._generator))
            chain += 1
            if self._finished or chain == LONGEST_CHAIN:
                self.session(tree)
                tree, chain = {}, 0
                self._forget()
        self.session(tree)

    def run_through(self, losses: int) -> None:
        """Lose power before the operations of one session, all but writes, if there are enough losses: nothing that was
        not synced is kept, and all of it.
        """
        recorder = self.session({})
        moments = [
            number for number, operation in enumerate(recorder.operations) if not isinstance(operation, Write)
        ]
        for moment in moments[:: max(1, 2 * len(moments) // losses)]:
            for memory in ("nothing", "all"):
                self._forget()
                self._counts.losses[self._name] += 1
                self.session(self.lose(recorder, moment, memory))

    def _forget(self) -> None:
        self._safe, self._states, self._finished = set(), set(), False

    def lose(self, recorder: Recorder, moment: int, memory: Memory | None = None) -> Tree:
        """A state after a loss; what was safe before it is noted."""
        memory = memory or self._generator.choice(MEMORIES)
        for mark in marks(recorder.operations[:moment]):
            match mark.kind:
                case "commit":
                    self._safe |= set(mark.values)
                case "put":
                    self._states |= set(mark.values)
                case "drop":
                    self._states -= set(mark.values)
                case "write":
                    self._finished = True
        after = lose(recorder, moment, memory, self._generator)
        if not self._mirror:
            return after
        now = seen(recorder, moment)
        whose = self._generator.choice(("machine", "mirror", "both", "machine for ever"))
        if whose == "machine for ever":
            self._forget()
        chosen = {
            "machine": {**_below(after, "out"), **_below(now, "mirror")},
            "mirror": {**_below(now, "out"), **_below(after, "mirror")},
            "both": after,
            "machine for ever": _below(self._generator.choice((now, after)), "mirror"),
        }
        return chosen[whose]

    def session(self, tree: Tree) -> Recorder:
        """Go on from a state to the end, and judge the state and the end."""
        place = self._place / f"session-{self._sessions}"
        self._sessions += 1
        write_tree(place, tree)
        out = place / "out"
        with self._hurried():
            self._judge_state(out)
        if not out.exists() and (place / "mirror").exists():
            self._mirrored = self._sweep.rows_of(place / "mirror")[0]
        else:
            self._mirrored = set()
        recorder = Recorder(place)
        self._performed.clear()
        with self._hurried(), self._marked(recorder), recorder:
            mirror = str(place / "mirror") if self._mirror else None
            run_sweep(self._sweep.file, out=out, in_process=True, mirror=mirror)
        check_recorded(recorder, place)
        with self._hurried():
            self._judge_end(out)
        shutil.rmtree(place)
        return recorder

    def _judge_state(self, out: Path) -> None:
        counts = self._counts
        if not out.exists():
            counts.lost += len(self._safe) + len(self._states) + self._finished
            return
        directory = SweepDirectory(out)
        rows, wrong = self._sweep.rows_of(out)
        scan = Store.open(directory, writable=False).scan()
        counts.lost += len(self._safe - rows)
        counts.wrong += wrong
        if scan.damaged:
            counts.between.append(f"damaged parts: {scan.damaged}")
        if scan.inventory.vanished:
            counts.between.append(f"parts that the log holds are not there: {scan.inventory.vanished}")
        saved = Checkpoints(directory, numerics=NUMERICS, say=counts.between.append)
        counts.lost += sum(saved.get(run_id) is None for run_id in sorted(self._states - self._safe))
        if self._finished:
            report = self._sweep.verify(out)
            if not report.in_order:
                counts.between.append(f"finished, but: {report.lines()}")

    def _judge_end(self, out: Path) -> None:
        counts = self._counts
        report = self._sweep.verify(out)
        assert report.in_order, report.lines()
        assert report.complete, report.lines()
        assert (report.temporaries, report.quarantined) == ((), ()), report.lines()
        counts.wrong += self._sweep.rows_of(out)[1]
        counts.wrong += self._sweep.wrong_artifacts(out)
        # What was safe, or what a new machine could fetch, was run again.
        counts.lost += len((self._safe | self._mirrored) & set(self._performed))

    @staticmethod
    def _remembered(table: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[pd.DataFrame], pd.DataFrame]:
        """A function of the rows, which takes its time, computed once for all equal rows."""
        found = _REMEMBERED.setdefault(table.__name__, {})

        def remembered(runs: pd.DataFrame) -> pd.DataFrame:
            key = pd.util.hash_pandas_object(runs).to_numpy().tobytes()
            if key not in found:
                found[key] = table(runs)
            return found[key]

        return remembered

    @contextmanager
    def _hurried(self) -> Iterator[None]:
        """Commit every row by itself, merge parts soon, and save states often."""
        real = task.perform

        def perform(run: Any, *rest: Any, **options: Any) -> Any:
            self._performed.append(run.run_id)
            return real(run, *rest, **options)

        with ExitStack() as stack:
            for name, value in (
                ("kising.sweep.task.perform", perform),
                ("kising.run.Policy", functools.partial(Policy, commit_seconds=0.0)),
                ("kising.sweep.store.parts.FAN_IN", 2),
                ("kising.sweep.drive.conductor.CHUNK_SECONDS", 0.0),
                ("kising.sweep.drive.conductor._CHUNK_SECONDS_PER_SLOT", 0.0),
                ("kising.sweep.drive.conductor._CHECKPOINT_SECONDS_PER_SLOT", 0.0),
                ("kising.sweep.execute.batch_loop.CHECKPOINT_SHARE", 0),
                ("kising.sweep.store.mirror.copying.LOOK_SECONDS", 0.001),
                # Whoever held the lease lost its power.
                ("kising.sweep.store.mirror.lease._is_dead", lambda data: True),
                ("kising.sweep.store.records._checkout_commit", lambda: None),
                # Tables of times would never be the same twice.
                ("kising.sweep.execute.batch_loop._Attempt._seconds", 0.0),
                ("kising.report.tables.summarise", self._remembered(tables.summarise)),
                ("kising.report.tables.scaling", self._remembered(tables.scaling)),
            ):
                stack.enter_context(patch(name, value))
            yield

    @contextmanager
    def _marked(self, recorder: Recorder) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, method, values in (
                (Store, "commit", lambda store, rows: (str(row["run_id"]) for row in rows)),
                (Checkpoints, "put", lambda states, run_id, saved: iter([run_id] if saved else [])),
                (Tables, "write", lambda tables: iter(())),
            ):
                stack.enter_context(marking(recorder, owner, method, values))
            stack.enter_context(_marking_drops(recorder))
            yield


@contextmanager
def _marking_drops(recorder: Recorder) -> Iterator[None]:
    """Mark states before they are dropped: from then on they may be gone."""
    real = Checkpoints.drop

    def drop(states: Checkpoints, run_ids: Any) -> None:
        chosen = list(run_ids)
        recorder.mark("drop", *chosen)
        real(states, chosen)

    with patch.object(Checkpoints, "drop", drop):
        yield


def _below(tree: Tree, folder: str) -> Tree:
    return {path: data for path, data in tree.items() if path == folder or path.startswith(f"{folder}/")}


@dataclass(frozen=True)
class _Kind:
    """One of two fits that replace each other in a folder."""

    request: Callable[[Path], Request]
    couplings: bytes
    edges: bytes


class FitTrials:
    """Power losses of `kising fit`: two fits, one with M and gaps, take turns in one folder."""

    def __init__(self, place: Path, counts: PowerCounts) -> None:
        self._place, self._counts = place, counts
        self._generator = random.Random(f"{counts.seed} fits")
        place.mkdir(parents=True)
        recording = place / "spins.npy"
        np.save(recording, gapped_spins())
        self._kinds: dict[int, _Kind] = {}
        for hidden, options in FITS.items():
            request = functools.partial(
                _request, recording, hidden=(hidden,), seed=5, options=options, threads=1
            )
            out = place / f"reference-{hidden}"
            self._run(request(out))
            files = ((out / name).read_bytes() for name in ("couplings.npz", "edges.csv"))
            self._kinds[hidden] = _Kind(request, *files)
        self._sessions = 0

    def run(self, losses: int) -> None:
        """Lose power this many times."""
        tree: Tree = {}
        safe: int | None = None  # the fit whose state was saved, and which has not ended
        ended: int | None = None  # the fit whose results were written
        hidden = min(self._kinds)
        for number in range(losses + 1):
            recorder = self._session(tree, hidden, safe, ended)
            if number == losses:
                return
            self._counts.losses["fits"] += 1
            moment = some_moment(recorder, self._generator)
            for mark in marks(recorder.operations[:moment]):
                match mark.kind:
                    case "save":
                        safe = hidden
                    case "begin":
                        ended = None
                    case "end":
                        safe, ended = None, hidden
            tree = lose(recorder, moment, self._generator.choice(MEMORIES), self._generator)
            if ended is not None or self._generator.random() < 0.2:
                hidden = next(other for other in self._kinds if other != hidden)
            if self._generator.random() < 0.1:
                tree, safe, ended = {}, None, None

    def _session(self, tree: Tree, hidden: int, safe: int | None, ended: int | None) -> Recorder:
        place = self._place / f"session-{self._sessions}"
        self._sessions += 1
        write_tree(place, tree)
        out = place / "fit"
        self._judge_state(out, safe, ended)
        recorder = Recorder(place)
        kind = self._kinds[hidden]
        request = kind.request(out)
        with (
            patch("kising.fitting.command.write_results", self._writing(recorder)),
            marking(recorder, saved_state.SavedState, "save", lambda saved, state: iter(())),
            recorder,
        ):
            self._run(request)
        check_recorded(recorder, place)
        self._counts.wrong += self._wrong_files(out, kind)
        shutil.rmtree(place)
        return recorder

    @staticmethod
    def _writing(recorder: Recorder) -> Callable[..., None]:
        from kising.fitting.destination import write_results

        def write(*arguments: Any) -> None:
            recorder.mark("begin")
            write_results(*arguments)
            recorder.mark("end")

        return write

    @staticmethod
    def _run(request: Request) -> None:
        with patch("kising.fitting.saved_state.SECONDS", 0.0), Path("/dev/null").open("w") as nowhere:
            run_fit(request, say=_ignore, report=_ignore, stream=nowhere, stop=StopRequest())

    def _judge_state(self, out: Path, safe: int | None, ended: int | None) -> None:
        counts = self._counts
        if (out / CLOSING).exists():
            about = json.loads((out / CLOSING).read_bytes())
            kind = self._kinds[about["hidden"]]
            if self._wrong_files(out, kind):
                counts.between.append("fit.json and the other files are of two fits")
            load_fit(out)
        elif ended is not None:
            counts.lost += 1
        if safe is not None and not (out / CLOSING).exists():
            counts.lost += not (out / CHECKPOINT).exists()

    @staticmethod
    def _wrong_files(out: Path, kind: _Kind) -> bool:
        found = ((out / name).read_bytes() for name in ("couplings.npz", "edges.csv"))
        return tuple(found) != (kind.couplings, kind.edges)


FITS: dict[int, dict[str, Any]] = {
    1: {"hidden_couplings": True, "max_iterations": 3, "tolerance": 1e-12},
    2: {"max_iterations": 3, "tolerance": 1e-12},
}
"""Options by the number of hidden spins."""


def gapped_spins() -> np.ndarray:
    """A short recording, of which some entries are missing."""
    visible = simulate(draw_couplings(4, 2, hidden_coupling=1.0, seed=1), 80, seed=2).visible.astype(float)
    visible[np.random.default_rng(3).random(visible.shape) < 0.05] = np.nan
    return visible


def _request(recording: Path, out: Path, **options: Any) -> Request:
    return Request(file=recording, out=out, errors=False, **options)


def _ignore(line: str) -> None:
    pass
