"""What was published is drawn again from its tables alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from kising import load_results, run_sweep
from kising.cli import main
from kising.errors import StoreError
from kising.report.build import build
from kising.report.published import publish, shared_command
from kising.report.tables import refresh_tables
from kising.sweep.store.parquet import write_runs_frame

SWEEP = {
    "name": "small",
    "description": "What the sweep is about.",
    "seed": 5,
    "realizations": 3,
    "model": {"visible": 6, "hidden": 2},
    "learner": {"max_iterations": 15, "estimator": "exact"},
    "axes": {"data.length": [200, 800]},
    "keep": {"couplings": True, "trace": True},
}
LENGTHS = (200, 800)


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    """A folder with one sweep in it; the sweep's own directory is gone."""
    place = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        run_sweep(SWEEP, out=place / "small", in_process=True)
    frames = refresh_tables(place / "small")
    report = build(place / "small", frames)
    (place / "claims.json").write_text(json.dumps(report.document["claims"]))
    frames.summary.to_pickle(place / "summary")
    publish(place / "small", frames, report, place / "paper")
    shutil.rmtree(place / "small")
    return place / "paper"


def test_the_page_has_command_versions_claims_and_figures(published: Path) -> None:
    text = (published / "small.md").read_text()
    claims = json.loads((published.parent / "claims.json").read_text())
    assert text.startswith("# small\n\nWhat the sweep is about.\n\n    run_sweep\n\n6 runs, 0 failed, ")
    assert "numerics" in text
    for claim in claims:
        low, high = (claim["measured"][end] for end in ("low", "high"))
        row = f"| {claim['where']} | {claim['quantity']} | "
        assert f"**{claim['claim']}**" in text
        assert row in text
        if low is not None:
            assert f"{low:.4g} .. {high:.4g} | {claim['decision']} |" in text
            assert claim["decision"].startswith(claim["verdict"])
    drawn = [line.partition("](")[2].rstrip(")") for line in text.splitlines() if line.startswith("![")]
    assert len(drawn) == 4
    assert all((published / name).stat().st_size > 1000 for name in drawn)


def test_tables_alone_give_the_same_summary_claims_and_page(published: Path, tmp_path: Path) -> None:
    data = published / "data" / "small"
    assert not (data / "parts").exists()
    frames = refresh_tables(data)
    pd.testing.assert_frame_equal(frames.summary, pd.read_pickle(published.parent / "summary"))
    assert (len(frames.couplings), len(frames.traces) > 0) == (2 * (36 + 12 + 12 + 8), True)
    again = build(data, frames)
    before = json.loads((published.parent / "claims.json").read_text())
    assert [x["verdict"] for x in again.document["claims"]] == [x["verdict"] for x in before]
    for ours, theirs in zip(again.document["claims"], before, strict=True):
        assert ours["measured"] == pytest.approx(theirs["measured"], rel=1e-6, nan_ok=True)
    publish(data, frames, again, tmp_path)
    assert (tmp_path / "small.md").read_text() == (published / "small.md").read_text()
    assert not (data / "parts").exists()
    shutil.rmtree(data / "report")


def test_results_of_published_tables_load(published: Path) -> None:
    results = load_results(published / "data" / "small")
    assert list(results.summary["data.length"]) == list(LENGTHS)
    assert (results.runs["status"] == "done").all()


def test_nothing_of_the_machine_is_published(published: Path) -> None:
    data = published / "data" / "small"
    assert set(load_results(data).runs["host"]) == {""}
    assert json.loads((data / "manifest.json").read_text())["host"] == ""
    assert shared_command("kising run a.yaml --local-debug --out /x/y --preset hour --cpus=3 --set a=1") == (
        "kising run a.yaml --preset hour --set a=1"
    )


def test_notes_are_kept(published: Path) -> None:
    data = published / "data" / "small"
    (data / "notes.md").write_text("A remark of somebody.\n")
    done = CliRunner().invoke(main, ["report", str(data), "--publish", str(published)])
    assert done.exit_code == 0, done.output
    assert f"Published: {published / 'small.md'}" in done.output
    text = (published / "small.md").read_text()
    assert text.index("A remark of somebody.") < text.index("## Claims")


def test_publishing_again_leaves_nothing_of_the_last_time(published: Path, tmp_path: Path) -> None:
    folder = tmp_path / "paper"
    shutil.copytree(published, folder)
    data = folder / "data" / "small"
    shutil.rmtree(data / "report", ignore_errors=True)
    before = {path.relative_to(folder) for path in folder.rglob("*")}
    drawing = next((folder / "figures").iterdir())
    (other,) = {".png", ".svg"} - {drawing.suffix}
    drawing.with_suffix(other).write_bytes(b"larger at the time")
    frames = refresh_tables(data)
    publish(data, frames, build(data, frames), folder)
    shutil.rmtree(data / "report")
    assert {path.relative_to(folder) for path in folder.rglob("*")} == before
    frames = frames._replace(traces=frames.traces.iloc[:0])
    publish(data, frames, build(data, frames), folder)
    assert not (data / "traces.parquet").exists()


def test_a_run_does_not_replace_published_tables(published: Path) -> None:
    with pytest.raises(StoreError, match="holds published tables, which a run would replace"):
        run_sweep(SWEEP, out=published / "data" / "small", in_process=True)


@pytest.mark.parametrize("name", ["runs", "couplings"])
def test_a_damaged_table_is_named(published: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(published / "data" / "small", tmp_path / "r")
    (tmp_path / "r" / f"{name}.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(StoreError, match=f"{name}.parquet: not a table of {name}"):
        refresh_tables(tmp_path / "r")


def test_a_page_of_an_unfinished_sweep_says_so(published: Path, tmp_path: Path) -> None:
    data = tmp_path / "small"
    shutil.copytree(published / "data" / "small", data)
    with (data / "runs.parquet").open("wb") as file:
        write_runs_frame(file, refresh_tables(published / "data" / "small").runs.iloc[:4])
    frames = refresh_tables(data)
    page = publish(data, frames, build(data, frames), tmp_path / "paper")
    assert "\n\n4 of 6 runs, 0 failed, " in page.read_text()


def kising(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)
    return done.exit_code, done.output


@pytest.fixture
def partial(published: Path, tmp_path: Path) -> Path:
    """Published tables of four runs of six, of which one failed."""
    data = tmp_path / "small"
    shutil.copytree(published / "data" / "small", data)
    runs = load_results(data).runs.iloc[:4].copy()
    runs.loc[1, ["status", "error"]] = ["failed", "RuntimeError: broken"]
    with (data / "runs.parquet").open("wb") as file:
        write_runs_frame(file, runs)
    return data


def test_status_counts_the_runs_in_published_tables(published: Path, partial: Path) -> None:
    data = published / "data" / "small"
    assert kising("status", data) == (0, f"{data}: published tables, 6 of 6 runs done, 0 failed\n")
    first, second, *_ = kising("status", partial)[1].splitlines()
    assert first == f"{partial}: published tables, 3 of 6 runs done, 1 failed"
    assert second.startswith("  failed: ")
    assert second.endswith(", data.length=200, realization 1: RuntimeError: broken")


def test_a_run_in_published_tables_is_shown(published: Path, partial: Path) -> None:
    data = published / "data" / "small"
    row = load_results(data).runs.iloc[0]
    code, text = kising("show", data, row["run_id"])
    assert code == 0
    assert f"done: {row['outcome']} after {row['iterations']} iterations\nran on an unknown host, in " in text
    assert f"{row['rmse_J']:.6g}" in text
    assert f"Trace: {row['iterations']} iterations" in text
    assert "Couplings (" in text
    assert (
        "failed: RuntimeError: broken" in kising("show", partial, load_results(partial).runs["run_id"][1])[1]
    )


def test_verify_says_what_published_tables_are(published: Path, partial: Path) -> None:
    data = published / "data" / "small"
    assert kising("verify", data) == (
        0,
        f"{data} holds published tables, which have no parts to be checked against: 6 runs planned, 6 done, 0 failed, "
        "0 missing; every id follows from the values of its row\n",
    )
    runs = load_results(partial).runs
    runs.loc[0, "model.strength"] = 2.0
    with (partial / "runs.parquet").open("wb") as file:
        write_runs_frame(file, runs)
    code, text = kising("verify", partial)
    assert code == 1
    # All three rows of its point: their parameters are not of one point.
    assert "3 done, 1 failed, 2 missing; 3 rows with an id that does not follow from its values" in text


def test_plan_says_that_published_tables_are_not_replaced(published: Path, tmp_path: Path) -> None:
    data = published / "data" / "small"
    (tmp_path / "small.yaml").write_text((data / "sweep.yaml").read_text())
    for words in (["plan", data], ["plan", tmp_path / "small.yaml", "--out", data]):
        text = kising(*words)[1]
        assert (
            f"{data} holds published tables with 6 of these 6 runs, and `kising run` refuses to replace them: choose "
            f"another directory with --out; there, --reuse {data} takes finished runs over\n"
        ) in text
        assert "nothing is done" not in text
