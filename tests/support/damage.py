"""Damages every kind of file at random, and checks that no damaged byte is read as data and that damage is noticed.

Some bytes of a saved fit mean nothing: damage that leaves every value as it was, bit for bit, is harmless, and is
counted apart.
"""

from __future__ import annotations

import functools
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from click.testing import CliRunner

from kising import fit, load_fit, run_sweep
from kising.atomic import atomic_write
from kising.cli import main
from kising.errors import InputError
from kising.fitting.saved_state import SavedState
from kising.learning.checkpoint import save
from kising.report.tables import derived
from kising.sweep.drive.conductor import Policy
from kising.sweep.execute.protocol import Saved
from kising.sweep.store.checkpoints import Checkpoints
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.mirror.copying import Mirror
from kising.sweep.store.mirror.folders import FolderPlace
from kising.sweep.store.run_store import Store
from kising.sweep.store.verify import verify
from kising.version import NUMERICS
from support.judging import ReferencedSweep
from support.victims import SHORT, shortened, write_recording

KINDS = (
    "flip of a bit",
    "flips of several bits",
    "truncation",
    "emptying",
    "block of zeros",
    "longer end",
    "swapped file",
    "lost file",
)
SWEEP = shortened(SHORT["learn"], 2)


@dataclass
class DamageCounts:
    """The counters of damaged files."""

    seed: int
    done: Counter[str] = field(default_factory=Counter)  # by the way they were damaged
    files: Counter[str] = field(default_factory=Counter)  # by what they are
    harmless: int = 0  # all values are as they were, bit for bit
    read_as_data: int = 0  # something of a damaged file was read, and is not as it was
    missed: int = 0  # not noticed

    def line(self) -> str:
        kinds, files = (
            ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
            for counts in (self.done, self.files)
        )
        return (
            f"damage: {self.done.total()} damaged files ({kinds}; {files}); {self.read_as_data} read as data, "
            f"{self.missed} not noticed, {self.harmless} harmless; seed {self.seed}"
        )


@dataclass
class Found:
    """A verdict."""

    noticed: bool
    """somebody is told, or what the file had is made again"""
    read_as_data: bool = False
    harmless: bool = False
    """every value is as it was"""


Judge = Callable[[Path], Found]


class Shelf:
    """A finished sweep with a mirror, states of its runs, and two fits: one of every file that kising writes."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.sweep = ReferencedSweep(place / "sweep", SWEEP)
        self.directory = SweepDirectory(place / "out")
        self._make_sweep()
        self._make_states()
        self._make_fits()
        self._frames = derived(Store.open(self.directory, writable=False), self.sweep.plan)
        self._tables = {
            path.name: pd.read_parquet(path) for path in sorted(self.directory.path.glob("*.parquet"))
        }
        self._holds = {path.name: self._rows_in(path) for path in sorted(self.directory.parts.iterdir())}

    def _make_sweep(self) -> None:
        with (
            patch("kising.run.Policy", functools.partial(Policy, commit_seconds=0.0)),
            patch("kising.sweep.drive.conductor.CHUNK_SECONDS", 0.0),
        ):
            run_sweep(
                self.sweep.file, out=self.directory.path, in_process=True, mirror=str(self._place / "mirror")
            )

    def _make_states(self) -> None:
        """States of all runs, in a directory of their own and in the mirror, as while they are in flight."""
        self._states = SweepDirectory.create(self._place / "states")
        kept = Checkpoints(self._states, numerics=NUMERICS)
        for number, run_id in enumerate(self.sweep.reference["run_id"]):
            kept.put(run_id, Saved(b"state of a run" * (number + 20), 1.0 + number, 0.5 + number))
        (self._place / "mirror" / "checkpoints").mkdir(exist_ok=True)
        for path in self._states.checkpoints.iterdir():
            shutil.copy(path, self._place / "mirror" / "checkpoints")

    def _make_fits(self) -> None:
        recording = np.load(write_recording(self._place / "spins.npy", 60))
        self._fits = {}
        (self._place / "fits").mkdir()
        for hidden in (1, 2):
            found = fit(recording, hidden, seed=hidden, max_iterations=2, hidden_couplings=hidden == 1)
            path = self._place / "fits" / f"{hidden}.npz"
            found.save(path)
            self._fits[path.name] = found
            SavedState(self._place / "fits" / f"{hidden}.state", str(hidden), lambda line: None).save(
                found.state
            )

    def _rows_in(self, part: Path) -> set[str]:
        return set(pd.read_parquet(part, columns=["run_id"])["run_id"])

    def victims(self) -> dict[str, tuple[list[Path], Judge]]:
        """Files by what they are, and who judges them."""
        out, mirror = self.directory.path, self._place / "mirror"
        tables = sorted(out.glob("*.parquet"))
        return {
            "parts": (sorted(self.directory.parts.iterdir()), self.judge_part),
            "logs of parts": ([self.directory.parts_log], self.judge_log),
            "states of runs": (sorted(self._states.checkpoints.iterdir()), self.judge_state),
            "tables": (tables, self.judge_table),
            "manifests": ([self.directory.manifest_file], self.judge_manifest),
            "checksums of tables": ([self.directory.tables_file], self.judge_digests),
            "progress files": ([self.directory.progress_file], self.judge_progress),
            "parts in a mirror": (sorted((mirror / "parts").iterdir()), self.judge_mirror),
            "logs in a mirror": ([mirror / "parts.log"], self.judge_mirror),
            "states in a mirror": (sorted((mirror / "checkpoints").iterdir()), self.judge_mirror),
            "saved fits": (sorted((self._place / "fits").glob("*.npz")), self.judge_fit),
            "states of fits": (sorted((self._place / "fits").glob("*.state")), self.judge_fit_state),
        }

    def judge_part(self, path: Path) -> Found:
        """No row of it is read, those of the others are, and `verify` names it."""
        rows, wrong = self.sweep.rows_of(self.directory.path)
        whole = set().union(*(held for name, held in self._holds.items() if name != path.name))
        report = verify(self.directory, self.sweep.plan)
        named = {part.name for part in report.damaged} | report.inventory.vanished.keys()
        return Found(
            noticed=path.name in named and not report.in_order and whole <= rows,
            read_as_data=wrong > 0 or bool(rows & self._holds[path.name] - whole),
        )

    def judge_log(self, path: Path) -> Found:
        """All rows are read, and `verify` tells."""
        rows, wrong = self.sweep.rows_of(self.directory.path)
        noticed = not verify(self.directory, self.sweep.plan).in_order
        return Found(noticed=noticed and len(rows) == self.sweep.plan.n_runs, read_as_data=wrong > 0)

    def judge_state(self, path: Path, states: SweepDirectory | None = None) -> Found:
        """Its run starts over."""
        said: list[str] = []
        run_id = path.name.removesuffix(".state")
        good = Saved(*self._good_state(run_id))
        there = path.exists()
        found = Checkpoints(states or self._states, numerics=NUMERICS, say=said.append).get(run_id)
        return Found(
            noticed=found is None and (bool(said) or not there),
            read_as_data=found is not None and found != good,
            harmless=found == good,
        )

    def _good_state(self, run_id: str) -> tuple[bytes, float, float]:
        number = list(self.sweep.reference["run_id"]).index(run_id)
        return b"state of a run" * (number + 20), 1.0 + number, 0.5 + number

    def judge_table(self, path: Path) -> Found:
        """`verify` says that it differs from the parts."""
        store = Store.open(self.directory, writable=False)
        if path.stem in store.altered_tables():
            return Found(noticed=True)
        if path.name == "runs.parquet":
            current = store.runs_file_is_current(self.sweep.plan.ids)
        else:
            current = path.exists() and store.table_is_current(path.stem, self._frames[path.stem])
        if not current:
            return Found(noticed=True)
        same = _same_values(pd.read_parquet(path), self._tables[path.name])
        return Found(noticed=False, read_as_data=not same, harmless=same)

    def judge_manifest(self, path: Path) -> Found:
        """It is not read, and `verify` tells."""
        report = verify(self.directory, self.sweep.plan)
        return Found(noticed=not report.in_order, read_as_data=self.directory.read_manifest() is not None)

    def judge_digests(self, path: Path) -> Found:
        """`verify` tells. Without it tables are compared with the parts alone, as those of older versions are."""
        report = verify(self.directory, self.sweep.plan)
        gone = not path.exists()
        return Found(noticed=not report.in_order or gone, read_as_data=report.in_order and not gone)

    def judge_progress(self, path: Path) -> Found:
        """It tells nothing about results: no command stumbles over it, and `verify` finds them in order."""
        status = CliRunner().invoke(main, ["status", str(self.directory.path)])
        quiet = status.exit_code == 0 and "Traceback" not in status.output
        return Found(noticed=quiet, harmless=quiet)

    def judge_mirror(self, path: Path) -> Found:
        """A new machine fetches what is whole, and nothing else."""
        directory = SweepDirectory.create(self._place / "fetched")
        said: list[str] = []
        try:
            with directory.lock():
                mirror = Mirror(
                    str(self._place / "mirror"),
                    FolderPlace(self._place / "mirror"),
                    directory,
                    "learn",
                    said.append,
                )
                mirror._connect()
                mirror._fetch()
                mirror._lease.release()
                rows, wrong = self.sweep.rows_of(directory.path)
                if path.parent.name == "checkpoints":
                    return self.judge_state(directory.checkpoints / path.name, directory)
                report = verify(directory, self.sweep.plan)
                damaged = path.parent.name == "parts"
                lacking = self._holds[path.name] if damaged else set()
                everything = set().union(*self._holds.values())
                return Found(
                    # Not every part of a merge that was interrupted is the only one with its rows.
                    noticed=rows >= everything - lacking and not report.in_order,
                    read_as_data=wrong > 0 or bool(report.damaged),
                )
        finally:
            shutil.rmtree(directory.path)

    def judge_fit(self, path: Path) -> Found:
        """It is refused, or it is the same fit."""
        try:
            found = load_fit(path)
        except InputError:
            return Found(noticed=True)
        same = _same_fit(found, self._fits[path.name])
        return Found(noticed=False, read_as_data=not same, harmless=same)

    def judge_fit_state(self, path: Path) -> Found:
        """Learning begins anew, or goes on from the same state."""
        said: list[str] = []
        there = path.exists()
        found = SavedState(path, path.stem, said.append).load()
        if found is None:
            return Found(noticed=bool(said) or not there)
        same = save(found) == save(self._fits[f"{path.stem}.npz"].state)
        return Found(noticed=False, read_as_data=not same, harmless=same)


WEIGHTS = {
    "parts": 25,
    "logs of parts": 10,
    "states of runs": 15,
    "tables": 15,
    "manifests": 3,
    "checksums of tables": 2,
    "progress files": 3,
    "parts in a mirror": 5,
    "logs in a mirror": 2,
    "states in a mirror": 2,
    "saved fits": 12,
    "states of fits": 6,
}
"""Of a hundred damaged files."""


def damage_files(place: Path, seed: int, count: int, file: Path | None = None) -> DamageCounts:
    """Damage a file, look what becomes of it, repair it, and so on. Counters go to `file`."""
    shelf, generator, counts = Shelf(place), random.Random(seed), DamageCounts(seed)
    victims = shelf.victims()
    while counts.done.total() < count:
        name = generator.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        paths, judge = victims[name]
        path, kind = generator.choice(paths), generator.choice(KINDS)
        # People name saved fits, and may rename them.
        others = [other for other in paths if other != path and name != "saved fits"]
        for changed in _damaged(path, others, kind, generator):
            found = judge(changed)
            counts.done[kind] += 1
            counts.files[name] += 1
            counts.harmless += found.harmless
            counts.read_as_data += found.read_as_data
            counts.missed += not (found.noticed or found.harmless)
            if found.read_as_data or not (found.noticed or found.harmless):
                print(f"{kind} of {changed}: {found}")
            if file is not None and counts.done.total() % 100 == 0:
                atomic_write(file, f"{counts.line()}\n".encode())
    return counts


def _damaged(path: Path, others: list[Path], kind: str, generator: random.Random) -> Iterator[Path]:
    """Let an accident happen to a file, yield it, and undo the accident; nothing where it would change nothing."""
    good = path.read_bytes()
    if kind == "lost file":
        path.unlink()
    elif kind == "swapped file":
        if not others:
            return
        other = generator.choice(others)
        theirs = other.read_bytes()
        if theirs == good:
            return
        path.write_bytes(theirs)
    else:
        bad = damaged(good, kind, generator)
        if bad == good:
            return
        path.write_bytes(bad)
    yield path
    path.write_bytes(good)


def damaged(data: bytes, kind: str, generator: random.Random) -> bytes:
    """The bytes after an accident."""
    bad = bytearray(data)
    match kind:
        case "flip of a bit":
            bad[generator.randrange(len(bad))] ^= 1 << generator.randrange(8)
        case "flips of several bits":
            for _ in range(generator.randrange(2, 20)):
                bad[generator.randrange(len(bad))] ^= 1 << generator.randrange(8)
        case "truncation":
            del bad[generator.randrange(len(bad)) :]
        case "emptying":
            bad.clear()
        case "block of zeros":
            start = generator.randrange(len(bad))
            stop = min(start + 512, len(bad))
            bad[start:stop] = bytes(stop - start)
        case "longer end":
            bad += generator.randbytes(generator.randrange(1, 600))
    return bytes(bad)


def _same_values(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    if list(one.columns) != list(other.columns) or len(one) != len(other):
        return False
    for name in one.columns:
        ours, theirs = one[name], other[name]
        if ours.dtype != theirs.dtype or not ours.isna().equals(theirs.isna()):
            return False
        if ours.dtype == np.float64:
            if not np.array_equal(ours.to_numpy().view(np.uint64), theirs.to_numpy().view(np.uint64)):
                return False
        elif list(ours.dropna()) != list(theirs.dropna()):
            return False
    return True


def _same_fit(one: Any, other: Any) -> bool:
    from kising.learning.fitted.saving import to_bytes

    return to_bytes(one) == to_bytes(other)
