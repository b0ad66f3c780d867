"""Checkpoints on disk: kept whole or not at all, bounded, and never trusted."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from kising.sweep.execute.protocol import Saved
from kising.sweep.plan import Plan
from kising.sweep.spec import parse_spec
from kising.sweep.store import checkpoints as module
from kising.sweep.store.checkpoints import Checkpoints
from kising.sweep.store.directory import SweepDirectory

RUN, OTHER = "00000000000000aa", "00000000000000bb"
SAVED = Saved(bytes(range(256)) * 4 + b"\n{}\n", 12.5, 0.5)


@pytest.fixture
def directory(tmp_path: Path) -> SweepDirectory:
    return SweepDirectory.create(tmp_path / "sweep")


def opened(directory: SweepDirectory, said: list[str] | None = None, numerics: int = 3) -> Checkpoints:
    return Checkpoints(directory, numerics=numerics, say=(said if said is not None else []).append)


def the_file(directory: SweepDirectory) -> Path:
    (path,) = directory.checkpoints.iterdir()
    return path


def test_what_is_put_is_got_also_by_the_next_driver(directory: SweepDirectory) -> None:
    checkpoints = opened(directory)
    assert checkpoints.get(RUN) is None
    checkpoints.put(RUN, Saved(b"older", 1.0, 0.5))
    checkpoints.put(RUN, SAVED)
    assert checkpoints.get(RUN) == SAVED
    again = opened(directory)
    assert again.get(RUN) == SAVED
    assert again.get(OTHER) is None
    assert len(list(directory.checkpoints.iterdir())) == 1


def test_what_is_dropped_is_gone(directory: SweepDirectory) -> None:
    checkpoints = opened(directory)
    checkpoints.put(RUN, SAVED)
    checkpoints.put(OTHER, SAVED)
    checkpoints.drop([RUN, "00000000000000cc"])
    assert (checkpoints.get(RUN), checkpoints.get(OTHER)) == (None, SAVED)
    assert the_file(directory).name == f"{OTHER}.state"


def test_nothing_is_made_where_nothing_is_kept(directory: SweepDirectory) -> None:
    checkpoints = opened(directory)
    checkpoints.get(RUN)
    checkpoints.drop([RUN])
    checkpoints.put(RUN, None)
    assert not directory.checkpoints.exists()


def test_no_flip_truncation_or_extension_is_used(directory: SweepDirectory) -> None:
    opened(directory).put(RUN, SAVED)
    path = the_file(directory)
    data = path.read_bytes()
    generator = random.Random(5)
    for trial in range(300):
        damaged = bytearray(data)
        if trial % 3 == 0:
            del damaged[generator.randrange(len(data)) :]
        elif trial % 3 == 1:
            damaged[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        else:
            damaged += generator.randbytes(generator.randrange(1, 20))
        path.write_bytes(damaged)
        said: list[str] = []
        assert opened(directory, said).get(RUN) is None
        assert len(said) == 1
        assert "starts over" in said[0]
        assert str(path) in said[0]
        assert not path.exists()
    path.write_bytes(data)
    assert opened(directory).get(RUN) == SAVED


def test_one_of_other_numerics_or_another_run_is_not_used(directory: SweepDirectory) -> None:
    opened(directory, numerics=2).put(RUN, SAVED)
    said: list[str] = []
    assert opened(directory, said).get(RUN) is None
    assert "numerics version 2 made it, this is 3" in said[0]
    opened(directory).put(OTHER, SAVED)
    os.rename(directory.checkpoints / f"{OTHER}.state", directory.checkpoints / f"{RUN}.state")
    assert opened(directory, said).get(RUN) is None
    assert "of another run" in said[1]


def test_only_plain_files_with_a_runs_name_count(directory: SweepDirectory, tmp_path: Path) -> None:
    opened(directory).put(OTHER, SAVED)
    os.rename(the_file(directory), tmp_path / "elsewhere")
    (directory.checkpoints / f"{OTHER}.state").symlink_to(tmp_path / "elsewhere")
    (directory.checkpoints / "notes.txt").touch()
    assert opened(directory).run_ids == set()


def test_a_disk_that_refuses_costs_a_checkpoint_and_no_more(
    directory: SweepDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = opened(directory)
    checkpoints.put(RUN, SAVED)
    with monkeypatch.context() as patch:

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "full")

        patch.setattr(os, "fsync", full)
        checkpoints.put(RUN, Saved(b"newer", 13.0, 0.5))
        checkpoints.put(RUN, Saved(b"newer", 14.0, 0.5))
    ((reason, count),) = checkpoints.refused.items()
    assert count == 2
    assert "no space left" in reason
    assert checkpoints.get(RUN) == SAVED
    assert len(list(directory.checkpoints.iterdir())) == 1


def test_their_size_is_bounded_alone_and_together(
    directory: SweepDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = opened(directory)
    monkeypatch.setattr(module, "LARGEST_TOTAL", 3 * len(SAVED.state))
    for run_id in (RUN, OTHER, "00000000000000cc", RUN):
        checkpoints.put(run_id, SAVED)
    assert sum(path.stat().st_size for path in directory.checkpoints.iterdir()) < 3 * len(SAVED.state)
    assert checkpoints.run_ids == {RUN, OTHER}
    checkpoints.put(RUN, None)
    assert list(checkpoints.refused.values()) == [1, 1]
    monkeypatch.setattr(module, "LARGEST_STATE", 20)
    monkeypatch.setattr(module, "_HEADER_BYTES", 0)
    assert checkpoints.get(RUN) is None


def test_those_of_finished_runs_go_and_those_of_strangers_stay(directory: SweepDirectory) -> None:
    spec = {
        "name": "x",
        "seed": 1,
        "realizations": 3,
        "model": {"visible": 3, "hidden": 1},
        "data": {"length": 9},
    }
    plan = Plan.of(parse_spec(spec))
    ids = [run.run_id for run in plan.runs()]
    checkpoints = opened(directory)
    for run_id in (*ids, OTHER):
        checkpoints.put(run_id, SAVED)
    # The last run of the plan is finished: a stranger, whose place is -1, must not be taken for it.
    checkpoints.drop_finished(plan, [True, False, False])
    assert opened(directory).run_ids == {ids[0], OTHER}
