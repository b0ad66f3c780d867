"""Damages parts at random, and checks that no byte of them is read as data."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.run_store import Store
from support.campaign import SHORT
from support.judging import ReferencedSweep, count_wrong

KINDS = ("flip of a bit", "flips of several bits", "truncation", "emptying", "block of zeros", "longer end")
PARTS = 6


@dataclass
class DamageCounts:
    """The counters of damaged parts."""

    seed: int
    done: Counter[str] = field(default_factory=Counter)
    read_as_data: int = 0  # damaged parts of which a row was read
    missed: int = 0  # damaged parts that were not reported, or whose neighbours were not read

    def line(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.done.items()))
        return (
            f"damage: {self.done.total()} damaged parts ({kinds}); {self.read_as_data} read as data, "
            f"{self.missed} not noticed; seed {self.seed}"
        )


def damage_parts(place: Path, seed: int, count: int) -> DamageCounts:
    """Damage one of several parts of a real sweep, read them all, repair it, and so on."""
    sweep = ReferencedSweep(place / "sweep", SHORT["infer"].replace("realizations: 24", "realizations: 8"))
    rows = sweep.reference.to_dict("records")
    rows = [
        {name: value for name, value in row.items() if value == value and value is not None} for row in rows
    ]
    directory = SweepDirectory.create(place / "damaged")
    holds: dict[str, set[str]] = {}
    with directory.lock():
        store = Store.open(directory)
        for start in range(PARTS):
            chosen = rows[start::PARTS]
            holds[store.commit(chosen).name] = {str(row["run_id"]) for row in chosen}
    generator, counts = random.Random(seed), DamageCounts(seed)
    everything = set().union(*holds.values())
    while counts.done.total() < count:
        kind, name = generator.choice(KINDS), generator.choice(sorted(holds))
        path = directory.parts / name
        good = path.read_bytes()
        bad = damaged(good, kind, generator)
        if bad == good:
            continue
        path.write_bytes(bad)
        counts.done[kind] += 1
        reader = Store.open(directory, writable=False)
        found = reader.read_runs(sweep.plan.ids)
        read = set(found["run_id"])
        counts.read_as_data += bool(read & holds[name]) or count_wrong(found, sweep.reference) > 0
        counts.missed += [part.name for part in reader.scan().damaged] != [
            name
        ] or read != everything - holds[name]
        path.write_bytes(good)
    return counts


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
