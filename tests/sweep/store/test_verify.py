from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kising.errors import StoreError
from kising.sweep.plan import Plan, Run, run_id_of
from kising.sweep.spec import dump_spec, parse_spec
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.run_store import Store
from kising.sweep.store.verify import SHOWN, verify

SWEEP: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "realizations": 2,
    "model": {"visible": 4, "hidden": 2},
    "data": {"length": 100},
    "axes": {"model.strength": [0.5, 1], "learner.estimator": ["exact", "bp", "tap"]},
}


def row_of(run: Run, **changes: object) -> dict[str, object]:
    ids = {"run_id": run.run_id, "point_id": run.point.point_id, "realization": run.realization}
    ends = {"status": "done", "rmse_J": 0.5, "numerics": 1, "version": "0.1.0"}
    return {**ids, **run.point.values(), **ends, **changes}


def plan_of(**changes: object) -> Plan:
    return Plan.of(parse_spec({**SWEEP, **changes}))


@pytest.fixture
def plan() -> Plan:
    return plan_of()


@pytest.fixture
def runs(plan: Plan) -> list[Run]:
    return list(plan.runs())


@pytest.fixture
def store(tmp_path: Path, plan: Plan) -> Iterator[Store]:
    directory = SweepDirectory.create(tmp_path / "sweep")
    directory.write_sweep(dump_spec(plan.spec))
    with directory.lock():
        yield Store.open(directory)


@pytest.fixture
def finished(store: Store, plan: Plan, runs: list[Run]) -> Store:
    """A finished sweep in three parts."""
    for start in range(0, len(runs), 4):
        store.commit([row_of(run) for run in runs[start : start + 4]])
    store.write_runs(plan.ids)
    return store


def test_a_finished_sweep_is_sound_and_complete(finished: Store, plan: Plan) -> None:
    report = verify(finished.directory, plan)
    assert report.sound
    assert report.complete
    assert (report.planned, report.done, report.failed, report.missing) == (12, 12, 0, 0)
    assert (report.orphans, report.duplicates, report.wrong, report.rows, report.parts) == (0, 0, 0, 12, 3)
    assert report.numerics == {1: 12}
    assert report.runs_file == "current"
    assert report.lines() == ["12 runs planned: 12 done, 0 failed, 0 missing; 12 rows in 3 parts"]


def test_ids_survive_compaction_and_the_tables(finished: Store, plan: Plan, runs: list[Run]) -> None:
    for run in runs:
        finished.commit([row_of(run)])
    finished.compact()
    assert verify(finished.directory, plan).sound
    assert list(finished.read_runs(plan.ids)["run_id"]) == [run.run_id for run in runs]


def test_nothing_yet(store: Store, plan: Plan) -> None:
    report = verify(store.directory, plan)
    assert report.sound
    assert not report.complete
    assert (report.missing, report.runs_file) == (12, "missing")
    assert "runs.parquet is missing" in report.lines()[-1]


def test_failed_missing_repeated_and_orphaned_runs_are_counted(store: Store, runs: list[Run]) -> None:
    store.commit([row_of(run) for run in runs[:6]])
    store.commit([row_of(run, status="failed", error="e") for run in runs[4:9]])
    store.commit([row_of(runs[0], numerics=2)])
    report = verify(store.directory, plan_of(realizations=1))
    assert report.sound
    assert not report.complete
    # Of six planned runs (the even ones) three are done, two failed, one was never run.
    assert (report.planned, report.done, report.failed, report.missing) == (6, 3, 2, 1)
    assert (report.orphans, report.duplicates, report.rows) == (4, 3, 12)
    assert report.numerics == {1: 8, 2: 1}
    text = "\n".join(report.lines())
    for words in (
        "3 rows are repeated",
        "4 finished runs are not in the plan",
        "8 by version 1, 1 by version 2",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model.strength": 0.25}, "parameters are not those of point"),
        ({"data.length": 101}, "parameters are not those of point"),
        ({"score.exact": None}, "parameters are not those of point"),
        ({"model.strength": float("nan")}, "parameters are not those of point"),
        ({"point_id": "0" * 16}, "parameters are not those of point"),
        ({"realization": 7}, "is not realization 7 of point"),
        ({"run_id": "0" * 16}, "run 0000000000000000 is not realization 0 of point"),
    ],
)
def test_rows_that_are_not_what_they_say(
    finished: Store, plan: Plan, runs: list[Run], change: dict[str, object], words: str
) -> None:
    finished.commit([row_of(runs[0], **change), row_of(runs[1])])
    report = verify(finished.directory, plan)
    assert not report.sound
    # A point whose values are in doubt puts all rows of the part that claim it in doubt.
    assert report.wrong in (1, 2)
    assert words in report.examples[0]
    assert any(line.startswith("wrong: ") for line in report.lines())


def test_a_consistent_lie_is_only_an_orphan(finished: Store, plan: Plan) -> None:
    other = next(iter(plan_of(seed=4).runs()))
    assert other.run_id == run_id_of(other.point.point_id, 0)
    finished.commit([row_of(other)])
    report = verify(finished.directory, plan)
    assert (report.sound, report.orphans) == (True, 1)


def test_many_wrong_rows_are_counted_and_some_shown(store: Store) -> None:
    plan = plan_of(realizations=10)
    store.commit([row_of(run, realization=99) for run in plan.runs()])
    report = verify(store.directory, plan)
    assert report.wrong == 60
    assert len(report.examples) == SHOWN
    assert f"  and {60 - SHOWN} more" in report.lines()


def test_damage_is_named_and_nothing_is_touched(finished: Store, plan: Plan) -> None:
    parts = sorted(finished.directory.parts.iterdir())
    parts[1].write_bytes(parts[1].read_bytes()[:-1])
    (finished.directory.parts / "notes.txt").touch()
    (finished.directory.parts / ".tmp-1-00").touch()
    finished.directory.quarantine.mkdir()
    (finished.directory.quarantine / "part-old").touch()
    (finished.directory.quarantine / "part-old.reason.txt").touch()
    before = snapshot(finished.directory.path)
    report = verify(finished.directory, plan)
    assert snapshot(finished.directory.path) == before
    assert not report.sound
    assert [part.name for part in report.damaged] == [parts[1].name]
    assert (report.done, report.missing, report.parts) == (8, 4, 2)
    assert report.strays == ("notes.txt",)
    assert report.temporaries == (os.path.join("parts", ".tmp-1-00"),)
    assert report.quarantined == ("part-old",)
    assert report.runs_file == "stale"
    text = "\n".join(report.lines())
    for words in (f"damaged: {parts[1].name}", "notes.txt", ".tmp-1-00", "part-old", "runs.parquet differs"):
        assert words in text


def test_a_stale_table_is_noticed(finished: Store, plan: Plan, runs: list[Run]) -> None:
    finished.commit([row_of(runs[3], rmse_J=0.75)])
    assert verify(finished.directory, plan).runs_file == "stale"
    finished.write_runs(plan.ids)
    assert verify(finished.directory, plan).runs_file == "current"


def test_a_directory_that_cannot_be_read_is_said(
    finished: Store, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scandir(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(StoreError, match="permission denied"):
        verify(finished.directory, plan)


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
