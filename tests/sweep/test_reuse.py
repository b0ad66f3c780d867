"""Finished runs of other directories are taken over, and give the same bits as if they had been run here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from support.bits import assert_same_bits

import kising.run
import kising.sweep.reuse
from kising import run_sweep
from kising.cli import main
from kising.report.build import build
from kising.report.published import publish
from kising.report.tables import refresh_tables
from kising.sweep.store.parquet import write_runs_frame

SMALL = {
    "name": "small",
    "seed": 5,
    "realizations": 2,
    "model": {"visible": 6, "hidden": 2},
    "learner": {"max_iterations": 12, "estimator": "exact"},
    "axes": {"data.length": [200]},
}
LARGE = {**SMALL, "realizations": 3, "axes": {"data.length": [200, 400]}}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Two sweeps: `small` is part of `large`."""
    place = tmp_path_factory.mktemp("reuse")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        run_sweep(SMALL, out=place / "small", in_process=True)
        run_sweep(LARGE, out=place / "large", in_process=True)
    return place


@pytest.fixture(autouse=True)
def own_cache(place, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))


def published(place: Path, tmp_path: Path, name: str = "small") -> Path:
    frames = refresh_tables(place / name)
    publish(place / name, frames, build(place / name, frames), tmp_path / "paper")
    return tmp_path / "paper" / "data" / name


def said_of(
    sweep: dict, out: Path, *sources: Path, stale: kising.run.Stale | None = None
) -> tuple[list[str], kising.run.Results]:
    said: list[str] = []
    spec, path = kising.run.locate(sweep, out)
    session = kising.run.Session(in_process=True, reuse=sources, stale=stale, say=said.append)
    return said, kising.run.run(spec, path, session)


@pytest.mark.parametrize("source", ["directory", "published"])
def test_a_larger_sweep_takes_over_what_is_finished(place, tmp_path, source: str) -> None:
    other = place / "small" if source == "directory" else published(place, tmp_path)
    said, results = said_of(LARGE, tmp_path / "grown", other)
    assert said[0] == f"{other}: 2 finished runs taken over"
    assert (results.outcome.done, len(results.runs)) == (4, 6)
    assert_same_bits(results.runs, kising.load_results(place / "large").runs)
    seconds = dict(zip(results.runs["run_id"], results.runs["seconds"], strict=True))
    small = kising.load_results(place / "small").runs
    assert [seconds[run_id] for run_id in small["run_id"]] == list(small["seconds"])
    # They are here for good: the other directory is no longer needed.
    again = run_sweep(tmp_path / "grown", in_process=True)
    assert again.outcome.done == 0
    assert_same_bits(again.runs, results.runs)


def test_runs_that_are_here_are_not_taken_over(place, tmp_path) -> None:
    shutil.copytree(place / "small", tmp_path / "here")
    said, results = said_of(LARGE, tmp_path / "here", place / "large", place / "small")
    assert said[0] == f"{place / 'large'}: 4 finished runs taken over"
    assert said[1] == f"{place / 'small'}: 0 finished runs taken over"
    assert results.outcome.done == 0
    assert_same_bits(results.runs, kising.load_results(place / "large").runs)


@pytest.mark.parametrize("fault", ["damaged", "vanished"])
def test_parts_that_cannot_be_taken_over_are_named(place, tmp_path, fault: str) -> None:
    other = tmp_path / "other"
    shutil.copytree(place / "small", other)
    parts = sorted((other / "parts").glob("*.parquet"))
    for part in parts:
        if fault == "damaged":
            part.write_bytes(part.read_bytes()[:-100])
        else:
            part.unlink()
    said, results = said_of(LARGE, tmp_path / "r", other)
    found = "a damaged part is left out" if fault == "damaged" else "a part has vanished"
    for line, part in zip(said, parts, strict=False):
        assert line.startswith(f"{other}: {found}, its runs are run here: {part.name}")
    assert said[len(parts)] == f"{other}: 0 finished runs taken over"
    assert all(part.exists() == (fault == "damaged") for part in parts)
    assert_same_bits(results.runs, kising.load_results(place / "large").runs)


def test_runs_that_the_sweep_does_not_have_are_left_where_they_are(place, tmp_path) -> None:
    other = published(place, tmp_path, "large")
    said, results = said_of(SMALL, tmp_path / "r", other)
    assert said == [f"{other}: 2 finished runs taken over", "2 of 2 runs are finished already"]
    assert results.outcome.done == 0


@pytest.fixture
def newer_numerics(monkeypatch) -> None:
    """As if the numerics had changed since the sweeps were run."""
    newer = kising.run.NUMERICS + 1
    for module in (kising.run, kising.sweep.reuse):
        monkeypatch.setattr(module, "NUMERICS", newer)


@pytest.mark.usefixtures("newer_numerics")
@pytest.mark.parametrize("stale", [None, "redo"])
def test_rows_of_other_numerics_are_left_where_they_are(place, tmp_path, stale) -> None:
    said, results = said_of(LARGE, tmp_path / "r", place / "small", stale=stale)
    assert said[0] == (
        f"{place / 'small'}: 0 finished runs taken over; 2 more made by other numerics than version "
        f"{kising.run.NUMERICS}: add --stale keep to take them too"
    )
    assert results.outcome.done == 6


@pytest.mark.usefixtures("newer_numerics")
def test_rows_of_other_numerics_are_taken_over_where_they_are_to_be_kept(place, tmp_path) -> None:
    said, results = said_of(LARGE, tmp_path / "r", place / "small", stale="keep")
    assert said[0] == (
        f"{place / 'small'}: 2 finished runs taken over, 2 of them made by other numerics than version "
        f"{kising.run.NUMERICS}"
    )
    assert results.outcome.done == 4


def test_failed_rows_are_run_again(place, tmp_path) -> None:
    other = published(place, tmp_path)
    runs = refresh_tables(other).runs
    runs.loc[0, ["status", "error"]] = ["failed", "RuntimeError: broken"]
    with (other / "runs.parquet").open("wb") as file:
        write_runs_frame(file, runs)
    said, results = said_of(LARGE, tmp_path / "r", other)
    assert said[0] == f"{other}: 1 finished run taken over"
    assert_same_bits(results.runs, kising.load_results(place / "large").runs)


def test_rows_that_do_not_belong_to_their_id_are_set_aside(place, tmp_path) -> None:
    other = published(place, tmp_path)
    runs = refresh_tables(other).runs
    runs.loc[0, "model.strength"] = 2.0
    with (other / "runs.parquet").open("wb") as file:
        write_runs_frame(file, runs)
    said, results = said_of(LARGE, tmp_path / "r", other)
    assert any("its run is run again" in line and runs.loc[0, "run_id"] in line for line in said)
    assert_same_bits(results.runs, kising.load_results(place / "large").runs)


def test_runs_whose_couplings_are_to_be_kept_are_run_here(place, tmp_path) -> None:
    keeping = {**LARGE, "keep": {"couplings": True, "realizations": 1}}
    said, results = said_of(keeping, tmp_path / "r", place / "small")
    assert said[0] == f"{place / 'small'}: 1 finished run taken over"
    assert results.outcome.done == 5
    assert len(pd.read_parquet(tmp_path / "r" / "couplings.parquet")) > 0


def test_a_directory_that_is_no_sweep_is_refused_before_anything_is_written(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "name: one\ntask: learn\nseed: 1\nmodel: {visible: 5, hidden: 1}\ndata: {length: 50}\n"
    (tmp_path / "sweep.yaml").write_text(text)
    result = CliRunner().invoke(main, ["run", "sweep.yaml", "--reuse", "nowhere"])
    assert result.exit_code != 0
    assert "nowhere does not exist: give the directory of a sweep" in result.output
    assert not isinstance(result.exception, OSError)
    assert not (tmp_path / "results").exists()
