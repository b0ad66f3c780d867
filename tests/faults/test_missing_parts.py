"""Parts that vanish, come with impossible times, or hold rows of other runs: nothing of it is silent."""

from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from support.judging import count_wrong

from kising import run_sweep
from kising.cli import main
from kising.errors import StoreError
from kising.sweep.drive.conductor import Policy
from kising.sweep.spec import dump_spec, parse_spec
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.parts import checksum
from kising.sweep.store.run_store import Store

SWEEP = {
    "name": "tiny",
    "seed": 5,
    "realizations": 2,
    "model": {"visible": 5, "hidden": 2},
    "learner": {"estimator": "exact", "max_iterations": 4},
    "axes": {"data.length": [100, 200]},
}


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # One commit per session, however slow the machine is.
    monkeypatch.setattr("kising.run.Policy", partial(Policy, commit_seconds=1e9))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A finished sweep."""
    run_sweep(SWEEP, out=tmp_path / "tiny", in_process=True)
    return tmp_path / "tiny"


@pytest.fixture
def reference(out: Path) -> pd.DataFrame:
    return pd.read_parquet(out / "runs.parquet")


def kising(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def run_again(out: Path) -> Result:
    return kising("run", out, "--local-debug")


def test_a_sweep_whose_parts_are_gone_is_not_finished(out: Path, reference: pd.DataFrame) -> None:
    assert kising("verify", out).exit_code == 0
    shutil.rmtree(out / "parts")
    status = kising("status", out).output
    assert "finished" not in status
    assert "0 of 4 runs done" in status
    assert "1 part with 4 rows vanished" in status
    verified = kising("verify", out)
    assert verified.exit_code == 1
    assert "vanished: part-" in verified.output
    again = run_again(out)
    assert again.exit_code == 0
    assert "a part has vanished, its runs are run again" in again.output
    assert kising("verify", out).exit_code == 0
    assert count_wrong(pd.read_parquet(out / "runs.parquet"), reference) == 0


def test_a_sweep_whose_parts_are_gone_with_their_log_is_not_finished(out: Path) -> None:
    shutil.rmtree(out / "parts")
    (out / "parts.log").unlink()
    status = kising("status", out).output
    assert "finished" not in status
    assert "0 of 4 runs done" in status
    assert "to resume" in status
    assert kising("verify", out).exit_code == 1


def test_a_sweep_whose_log_alone_is_gone_is_finished(out: Path) -> None:
    (out / "parts.log").unlink()
    assert "finished, 4 of 4 runs done, 0 failed" in kising("status", out).output


def test_a_report_does_not_write_tables_without_the_rows_that_vanished(out: Path) -> None:
    before = (out / "runs.parquet").read_bytes()
    shutil.rmtree(out / "parts")
    result = kising("report", out)
    assert result.exit_code == 1
    assert "vanished" in result.output
    assert "Traceback" not in result.output
    assert (out / "runs.parquet").read_bytes() == before


@pytest.mark.parametrize("year", [2999, 9999])
def test_a_part_from_the_far_future_hides_nothing(out: Path, reference: pd.DataFrame, year: int) -> None:
    (part,) = (out / "parts").iterdir()
    part.rename(
        part.with_name(f"part-{year}1231T235959999999Z-0011aabb-{checksum(part.read_bytes())}.parquet")
    )
    (out / "parts.log").unlink()  # as an older version leaves it
    more = kising("run", out, "--local-debug", "--set", "realizations=4")
    assert more.exit_code == 0, more.output
    table = pd.read_parquet(out / "runs.parquet")
    assert len(table) == 8
    assert count_wrong(table[table["realization"] < 2], reference) == 0
    assert kising("verify", out).exit_code == 0


@pytest.mark.parametrize(("runs", "words"), [(1, "1 finished run is"), (4, "4 finished runs are")])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_run_whose_rows_vanish_under_it_does_not_end_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirrored: bool, runs: int, words: str
) -> None:
    sweep = SWEEP if runs == 4 else {**SWEEP, "realizations": 1, "axes": {"data.length": [100]}}
    real, out = Store.commit, tmp_path / "tiny"
    mirror = str(tmp_path / "mirror") if mirrored else None

    def commit(store: Store, rows: list[dict[str, object]]) -> Path:
        path = real(store, rows)
        path.unlink()
        return path

    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", commit)
        with pytest.raises(StoreError, match=f"{words} missing from the tables"):
            run_sweep(sweep, out=out, in_process=True, mirror=mirror)
    assert len(run_sweep(sweep, out=out, in_process=True, mirror=mirror).runs) == runs


def test_a_command_whose_rows_vanish_under_it_does_not_exit_with_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the directory nor its mirror has the rows then, or the mirror alone."""
    (tmp_path / "sweep.yaml").write_text(dump_spec(parse_spec(SWEEP)))
    out, mirror = tmp_path / "tiny", tmp_path / "mirror"
    command = ("run", tmp_path / "sweep.yaml", "--local-debug", "--out", out, "--mirror", mirror)
    real = Store.commit

    def commit(store: Store, rows: list[dict[str, object]]) -> Path:
        path = real(store, rows)
        while not (mirror / "parts" / path.name).exists():
            time.sleep(0.01)
        path.unlink()
        return path

    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", commit)
        patch.setattr("kising.sweep.store.mirror.copying.LOOK_SECONDS", 0.01)
        ended = kising(*command)
    assert ended.exit_code == 1
    assert "4 finished runs are missing from the tables" in ended.output
    again = kising(*command)
    assert again.exit_code == 0
    assert "1 part was fetched from the mirror" in again.output
    assert len(pd.read_parquet(out / "runs.parquet")) == 4


def test_rows_of_other_parameters_are_set_aside_and_run_again(out: Path, reference: pd.DataFrame) -> None:
    """A part with the right checksum and ids in which somebody changed a length, as if it were the same run."""
    rows = reference.to_dict("records")
    rows = [{k: v for k, v in row.items() if v is not None and v == v} for row in rows]
    directory = SweepDirectory.open(out)
    (part,) = (out / "parts").iterdir()
    with directory.lock():
        part.unlink()
        Store.open(directory).commit([{**rows[0], "data.length": 150, "rmse_J": 0.0}, *rows[1:]])
    verified = kising("verify", out)
    assert verified.exit_code == 1
    assert "parameters are not those of point" in verified.output
    again = run_again(out)
    assert again.exit_code == 0
    assert "a row was set aside, its run is run again" in again.output
    table = pd.read_parquet(out / "runs.parquet")
    assert len(table) == 4
    assert count_wrong(table, reference) == 0
    assert kising("verify", out).exit_code == 0


def test_an_unfinished_sweep_is_not_verified(tmp_path: Path) -> None:
    directory = SweepDirectory.create(tmp_path / "new")
    directory.write_sweep(dump_spec(parse_spec(SWEEP)))
    assert kising("verify", tmp_path / "new").exit_code == 1
