"""What `kising show` prints about a run, and that its lines of Python repeat the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kising import draw_couplings, run_sweep, simulate
from kising.errors import InputError
from kising.report.one_run import describe_run, find_run
from kising.sweep.plan import Plan
from kising.sweep.spec import parse_spec

LEARN: dict[str, Any] = {
    "name": "tiny",
    "seed": 5,
    "realizations": 2,
    "model": {"visible": 6, "hidden": 2, "connectivity": 0.7, "bias": 0.3},
    "learner": {"max_iterations": 30, "prior": 3},
    "keep": {"couplings": True, "trace": True},
    "axes": [
        {"learner.estimator": ["exact", "gibbs"], "learner.start": ["signs", "random"]},
        {"data.length": [200, 400]},
    ],
}
INFER: dict[str, Any] = {
    "name": "tiny",
    "task": "infer",
    "seed": 5,
    "model": {"visible": 6, "hidden": 2, "strength": 0.7},
    "data": {"length": 200},
    "axes": {"learner.estimator": ["bp", "gibbs", "exact"]},
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def repeat(lines: list[str]) -> dict[str, Any]:
    """Run the lines of Python that stand at the end, and return the names that they define."""
    start = lines.index("To repeat it in Python")
    names: dict[str, Any] = {}
    exec("\n".join(line.removeprefix("  ") for line in lines[start + 1 :]), names)
    return names


def test_a_run_of_learning(tmp_path: Path) -> None:
    runs = run_sweep(LEARN, out=tmp_path / "r", in_process=True).runs
    for row in runs[runs["realization"] == 1].to_dict("records") + runs.head(1).to_dict("records"):
        lines = list(describe_run(tmp_path / "r", row["run_id"]))
        text = "\n".join(lines)
        estimator, length = row["learner.estimator"], row["data.length"]
        assert f"data.length={length}, realization {row['realization']}" in lines[0]
        assert lines[1] == f"done: {row['outcome']} after {row['iterations']} iterations"
        assert lines[2].startswith(f"ran on {row['host']}, in ")
        shown = {" ".join(line.split()) for line in lines}
        assert {
            f"* learner.estimator {estimator}",
            "model.connectivity 0.7",
            f"rmse_J {row['rmse_J']:.6g}",
        } <= shown
        assert ("Trace: " in text) == ("Couplings (" in text) == (row["realization"] == 0)
        fit = repeat(lines)["fit"]
        assert (fit.outcome, fit.iterations) == (row["outcome"], row["iterations"])
        assert fit.rmse == {block: row[f"rmse_{block}"] for block in fit.rmse}
        assert set(fit.rmse) == {"J", "K", "L", "h", "b"}


def test_a_run_of_inference(tmp_path: Path) -> None:
    for row in run_sweep(INFER, out=tmp_path / "r", in_process=True).runs.to_dict("records"):
        lines = list(describe_run(tmp_path / "r", row["run_id"]))
        moments = repeat(lines)["moments"]
        assert moments.converged.mean() == row["bp_converged"]
        assert moments.log_likelihood.mean() == pytest.approx(row["log_likelihood"], rel=1e-12)


def test_a_fold_of_a_recording(tmp_path: Path) -> None:
    spins = simulate(draw_couplings(5, 2, strength=1.5, seed=1), 600, seed=2).visible
    np.save(tmp_path / "spins.npy", spins)
    spec = {
        "name": "folds", "seed": 1, "data": {"file": str(tmp_path / "spins.npy"), "folds": 3},
        "model": {"hidden": 1}, "learner": {"max_iterations": 20},
    }  # fmt: skip
    row = run_sweep(spec, out=tmp_path / "r", in_process=True).runs.iloc[1]
    names = repeat(list(describe_run(tmp_path / "r", row["run_id"])))
    assert names["fit"].log_likelihood(names["held_out"]) == row["held_out"]


def test_a_fold_of_a_recording_that_is_read_with_options(tmp_path: Path) -> None:
    spins = simulate(draw_couplings(5, 2, strength=1.5, seed=1), 600, seed=2).visible
    # A spin that changes in the first fold alone, and an array that is not the first one.
    odd = np.where(np.arange(600) == 3, 1, -1)[:, None]
    np.savez(tmp_path / "spins.npz", first=spins[:, :3], second=np.hstack([spins, odd]))
    spec = {
        "name": "folds", "seed": 1, "data": {"file": str(tmp_path / "spins.npz"), "key": "second", "folds": 3},
        "model": {"hidden": 1}, "learner": {"max_iterations": 20},
    }  # fmt: skip
    row = run_sweep(spec, out=tmp_path / "r", in_process=True).runs.iloc[1]
    assert row["model.visible"] == 5
    names = repeat(list(describe_run(tmp_path / "r", row["run_id"])))
    assert names["fit"].log_likelihood(names["held_out"]) == row["held_out"]


def test_a_run_with_missing_entries(tmp_path: Path) -> None:
    spec = {
        "name": "gaps", "seed": 11, "model": {"visible": 8, "hidden": 2, "hidden_coupling": 1.0, "bias": 0.3},
        "data": {"length": 300, "missing": 0.1}, "learner": {"max_iterations": 12, "hidden_couplings": True},
    }  # fmt: skip
    row = run_sweep(spec, out=tmp_path / "r", in_process=True).runs.iloc[0]
    fit = repeat(list(describe_run(tmp_path / "r", row["run_id"])))["fit"]
    assert fit.rmse == {block: row[f"rmse_{block}"] for block in fit.rmse}
    assert set(fit.rmse) == {"J", "K", "L", "M", "h", "b"}


def test_a_run_that_failed_and_one_that_did_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise ValueError("out of luck")

    monkeypatch.setattr("kising.sweep.task.perform", never)
    runs = run_sweep(LEARN, out=tmp_path / "r", in_process=True).runs
    text = "\n".join(describe_run(tmp_path / "r", runs["run_id"][3].upper()))
    for words in ("\nfailed: ValueError: out of luck\n", "\nTraceback\n", ", in never\n", "kising.fit("):
        assert words in text
    for part in (tmp_path / "r" / "parts").iterdir():
        part.unlink()
    assert "pending" in "\n".join(describe_run(tmp_path / "r", runs["run_id"][3]))


def test_runs_are_found_by_the_beginning_of_their_id() -> None:
    plan = Plan.of(parse_spec({**LEARN, "realizations": 40}))
    path = Path("results/tiny")
    ids = pd.Series([run.run_id for run in plan.runs()])
    for run_id in ids[:10]:
        for digits in range(1, 17):
            same = ids[ids.str.startswith(run_id[:digits])]
            if len(same) == 1:
                assert find_run(plan, run_id[:digits], path).run_id == run_id
            else:
                with pytest.raises(InputError, match=f"{len(same)} runs have ids that begin with"):
                    find_run(plan, run_id[:digits], path)
    for wrong in ("", "xyz", "0" * 17):
        with pytest.raises(InputError, match="is not the id of a run"):
            find_run(plan, wrong, path)
    with pytest.raises(InputError, match=r"no run of results/tiny has the id .*`kising status results/tiny`"):
        find_run(plan, "0123456789abcdef", path)
