"""Power is lost at any moment: what was safe is there, and the same command ends with the same bits.

The long version is `pytest -m faults --power-losses 1000 tests/faults/test_power_loss.py`.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from support.disk_recorder import Recorder, read_tree, write_tree
from support.part_rows import make_row
from support.power_loss import Disk, states_after_loss
from support.power_trials import FitTrials, PowerCounts, SweepTrials

from kising.atomic import atomic_write
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.inventory import take_inventory
from kising.sweep.store.mirror.copying import FORMAT, MARKER, Mirror
from kising.sweep.store.mirror.folders import FolderPlace
from kising.sweep.store.run_store import Store


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def judged(fault_seed: int, capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    def run(trials: Callable[[PowerCounts], None]) -> None:
        counts = PowerCounts(fault_seed)
        trials(counts)
        with capsys.disabled():
            print(f"\n{counts.line()}")
        assert (counts.lost, counts.wrong, counts.between) == (0, 0, [])

    return run


def states(recorder: Recorder, file: str) -> set[bytes | None]:
    """What a file may hold after a power loss at the end of a record."""
    found: set[bytes | None] = set()
    for seed in range(200):
        disk = Disk(recorder.initial, recorder.first_nodes)
        disk.replay(recorder.operations)
        memory = random.Random(seed).choice(("nothing", "all", "beginning", "any"))
        found.add(disk.after_loss(random.Random(seed), memory).get(file))
    return found


def test_what_was_not_synced_may_be_gone_or_garbled(tmp_path: Path) -> None:
    """The judge itself: a rename without fsync leaves anything, an atomic write the whole file."""
    (tmp_path / "d").mkdir()
    with Recorder(tmp_path / "d") as recorder:
        atomic_write(tmp_path / "d" / "safe", b"x" * 1000)
        atomic_write(tmp_path / "d" / "unsafe", b"y" * 1000, durable=False)
    assert states(recorder, "safe") == {b"x" * 1000}
    assert {None, b"", b"y" * 1000, bytes(1000)} < states(recorder, "unsafe")
    with Recorder(tmp_path / "d") as recorder:
        atomic_write(tmp_path / "d" / "safe", b"z" * 10)
        (tmp_path / "d" / "unsafe").unlink()
    assert states(recorder, "safe") == {b"z" * 10}
    assert states(recorder, "unsafe") == {None, b"y" * 1000}
    assert read_tree(tmp_path / "d") == {"safe": b"z" * 10}


def test_a_fetch_from_a_mirror(tmp_path: Path) -> None:
    """At no moment does the log of a new machine tell of parts that it has not fetched yet."""
    source = SweepDirectory.create(tmp_path / "mirror")
    (source.path / MARKER).write_text(json.dumps({"format": FORMAT, "sweep": "any"}))
    with source.lock():
        store = Store.open(source)
        for number in range(3):
            store.commit([make_row(number)])
    place = tmp_path / "machine"
    place.mkdir()
    with Recorder(place) as recorder:
        directory = SweepDirectory.create(place / "out")
        mirror = Mirror("mirror", FolderPlace(source.path), directory, "any", print)
        mirror._connect()
        mirror._fetch()
    assert len(list(directory.parts.iterdir())) == 3
    for number, state in enumerate(states_after_loss(recorder)):
        root = tmp_path / str(number)
        write_tree(root, state)
        assert take_inventory(SweepDirectory(root / "out")).vanished == {}


@pytest.mark.slow
@pytest.mark.parametrize("mirror", [False, True])
def test_a_sweep(tmp_path: Path, judged: Callable[..., None], mirror: bool) -> None:
    judged(lambda counts: SweepTrials(tmp_path / "trials", "learn", counts, mirror=mirror).run(6))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "careless"),
    [
        ("kising.atomic.sync_directory", lambda path: None),
        ("kising.sweep.store.parts.atomic_write", functools.partial(atomic_write, durable=False)),
        ("kising.sweep.store.checkpoints.atomic_write", functools.partial(atomic_write, durable=False)),
    ],
    ids=["directories", "parts", "checkpoints"],
)
def test_a_store_that_does_not_sync_is_found_out(
    tmp_path: Path, fault_seed: int, name: str, careless: Callable[..., object]
) -> None:
    """The judge can say no."""
    counts = PowerCounts(fault_seed)
    with patch(name, careless):
        trials = SweepTrials(tmp_path / "trials", "learn", counts)
        for _ in range(30):
            try:
                trials.run(1)
            except AssertionError:  # of a session that went on from what was left
                return
            if (counts.lost, counts.wrong, counts.between) != (0, 0, []):
                return
    raise AssertionError("nobody has noticed")


@pytest.mark.slow
def test_a_fit(tmp_path: Path, judged: Callable[..., None]) -> None:
    judged(lambda counts: FitTrials(tmp_path / "trials", counts).run(8))


@pytest.mark.faults
def test_many_losses(tmp_path: Path, judged: Callable[..., None], request: pytest.FixtureRequest) -> None:
    losses = request.config.getoption("--power-losses")

    def run(counts: PowerCounts) -> None:
        for name in ("learn", "coupled"):
            for mirror in (False, True):
                SweepTrials(tmp_path / f"{name}-{mirror}", name, counts, mirror=mirror).run(losses)
        FitTrials(tmp_path / "fits", counts).run(losses)

    judged(run)


@pytest.mark.faults
def test_moments_of_a_sweep_in_turn(
    tmp_path: Path, judged: Callable[..., None], request: pytest.FixtureRequest
) -> None:
    losses = request.config.getoption("--power-losses")
    judged(lambda counts: SweepTrials(tmp_path / "trials", "learn", counts).run_through(losses))
