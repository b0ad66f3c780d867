from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from kising.errors import StoreError
from kising.sweep.plan import Plan, Run, run_id_of
from kising.sweep.spec import dump_spec, parse_spec
from kising.sweep.store.columns import TABLES
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.parquet import write_frame
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
    directory.write_manifest(numerics=1, command="")
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
    assert report.tables == {"runs": "current"}
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
    assert (report.missing, report.tables) == (12, {"runs": "missing"})
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
    (finished.directory.parts / ".tmp-1-0000000000000000").touch()
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
    assert report.temporaries == (os.path.join("parts", ".tmp-1-0000000000000000"),)
    assert report.quarantined == ("part-old",)
    assert report.tables == {"runs": "stale"}
    text = "\n".join(report.lines())
    for words in (
        f"damaged: {parts[1].name}",
        "notes.txt",
        ".tmp-1-0000000000000000",
        "part-old",
        "runs.parquet differs",
    ):
        assert words in text


def test_a_stale_table_is_noticed(finished: Store, plan: Plan, runs: list[Run]) -> None:
    finished.commit([row_of(runs[3], rmse_J=0.75)])
    assert verify(finished.directory, plan).tables == {"runs": "stale"}
    finished.write_runs(plan.ids)
    assert verify(finished.directory, plan).tables == {"runs": "current"}


def test_everything_that_is_missing_or_forged_is_out_of_order(
    finished: Store, plan: Plan, runs: list[Run]
) -> None:
    """Exit code 0 only where nothing is missing, damaged or forged; `run` mends all of it."""
    directory = finished.directory
    log = directory.parts_log.read_bytes()
    parts = {path: path.read_bytes() for path in directory.parts.iterdir()}
    first = min(parts)

    def verdict() -> tuple[bool, str]:
        report = verify(directory, plan)
        return report.in_order, "\n".join(report.lines())

    assert verdict()[0]
    first.unlink()
    in_order, text = verdict()
    assert not in_order
    assert f"vanished: {first.name}, with 4 rows" in text
    for path in parts:
        path.unlink(missing_ok=True)
    assert "vanished" in verdict()[1]
    for path, data in parts.items():
        path.write_bytes(data)
    assert verdict()[0]
    for bad, words in (
        (log[:-30] + b"x" + log[-29:], "parts.log has lines without their checksum"),
        (None, "missing: parts.log"),
        (b"".join(log.splitlines(keepends=True)[:-1]), "not in parts.log"),
    ):
        directory.parts_log.unlink()
        if bad is not None:
            directory.parts_log.write_bytes(bad)
        in_order, text = verdict()
        assert not in_order
        assert words in text
        Store.open(directory).scan()
        assert verdict()[0]
    directory.runs_file.unlink()
    assert not verdict()[0]
    finished.write_runs(plan.ids)
    assert verdict()[0]


def test_any_byte_of_a_table_or_record_counts(finished: Store, plan: Plan) -> None:
    """Also those of a table that pandas reads as before: somebody has touched it."""
    finished.note_tables(["runs"])
    directory = finished.directory
    assert verify(directory, plan).in_order
    for path in (directory.runs_file, directory.manifest_file, directory.tables_file):
        good = path.read_bytes()
        for place in range(0, len(good), 1 + len(good) // 50):
            path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
            assert not verify(directory, plan).in_order, (path.name, place)
        path.write_bytes(good)
    assert verify(directory, plan).in_order
    directory.manifest_file.unlink()
    assert "manifest.json is missing or damaged" in "\n".join(verify(directory, plan).lines())


def test_a_torn_log_is_out_of_order(finished: Store, plan: Plan) -> None:
    log = finished.directory.parts_log
    log.write_bytes(log.read_bytes() + b"0123 half a li")
    report = verify(finished.directory, plan)
    assert not report.in_order
    assert "ends in the middle of a line" in "\n".join(report.lines())


def test_derived_tables_are_compared(finished: Store, plan: Plan) -> None:
    from kising.report.tables import Tables, derived

    Tables(finished, plan).write()
    assert verify(finished.directory, plan, derived).in_order
    for name in ("summary", "scaling"):
        path = finished.directory.path / f"{name}.parquet"
        good = path.read_bytes()
        path.unlink()
        report = verify(finished.directory, plan, derived)
        assert (report.in_order, report.tables[name]) == (False, "missing")
        forged = pd.read_parquet(io.BytesIO(good))
        if name == "summary":
            forged.loc[0, "model.strength"] += 1e-6
        else:  # with one length there are no slopes
            forged = pd.DataFrame([dict.fromkeys(forged.columns)])
            forged = forged.assign(**{c.name: 0 for c in TABLES[name] if c.kind == "int" and not c.nullable})
            forged = forged.assign(
                **{c.name: "x" for c in TABLES[name] if c.kind == "string" and not c.nullable}
            )
        with path.open("wb") as handle:
            write_frame(handle, name, forged)
        report = verify(finished.directory, plan, derived)
        assert (report.in_order, report.tables[name]) == (False, "stale")
        assert any(line.startswith(f"{name}.parquet differs") for line in report.lines())
        path.write_bytes(good[:-1])
        assert verify(finished.directory, plan, derived).tables[name] == "stale"
        path.write_bytes(good)
    assert verify(finished.directory, plan, derived).in_order


def test_rows_that_are_not_what_they_say_are_set_aside(finished: Store, plan: Plan, runs: list[Run]) -> None:
    finished.commit([row_of(runs[0], **{"model.strength": 0.25}), row_of(runs[5], rmse_J=0.75)])
    whole, wrong = finished.recover()
    assert len(wrong) == 1
    assert "parameters are not those of point" in wrong[0]
    report = verify(finished.directory, plan)
    assert (report.sound, report.done, report.wrong) == (True, 12, 0)
    assert len(report.quarantined) == 1
    # The other row of that part is kept, and still the later of two.
    assert whole.ids.size == 12
    frame = finished.read_runs(plan.ids)
    assert dict(zip(frame["run_id"], frame["rmse_J"], strict=True))[runs[5].run_id] == 0.75


def test_a_part_of_nothing_but_misfits_leaves_nothing(store: Store, plan: Plan, runs: list[Run]) -> None:
    store.commit([row_of(runs[0], realization=7)])
    scan, wrong = store.recover()
    assert (scan.ids.size, len(wrong)) == (0, 1)
    assert verify(store.directory, plan).missing == 12


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
