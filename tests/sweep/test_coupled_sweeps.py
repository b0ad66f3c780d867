"""Sweeps over networks whose hidden spins are coupled to each other."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from kising import bond_scales, draw_couplings, fit, infer, run_sweep, simulate
from kising.errors import SpecError
from kising.options import LEAVES
from kising.report.build import build
from kising.report.figures.curves import curves
from kising.report.tables import refresh_tables
from kising.sweep.drive.cost import CostModel
from kising.sweep.plan import Plan
from kising.sweep.points import canonical_json, short_digest
from kising.sweep.spec import parse_spec
from kising.sweep.store.artifacts import unpack_couplings, unpack_trace
from kising.sweep.task import execute, perform

SWEEP = {
    "name": "coupled",
    "seed": 11,
    "realizations": 2,
    "model": {"visible": 6, "hidden": 2, "bias": 0.3, "hidden_coupling": 1.5},
    "data": {"length": 800},
    "learner": {"estimator": "exact", "start": "random", "hidden_couplings": True},
}


def plan(**changes) -> Plan:
    return Plan.of(parse_spec({**SWEEP, **changes}))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_run_is_a_fit_with_the_couplings_of_its_seeds() -> None:
    run = plan(score={"errors": True}, keep={"couplings": True, "trace": True}).run(0)
    row = execute(run, 1, None)
    truth = draw_couplings(6, 2, bias=0.3, hidden_coupling=1.5, seed=run.network_seed)
    scales = bond_scales(6, 2, strength=1.0, connectivity=1.0, bias=0.3, hidden_coupling=1.5)
    visible = simulate(truth, 800, seed=run.data_seed).visible
    how = {"truth": truth, "scales": scales, "hidden_couplings": True, "errors": True}
    result = fit(visible, 2, seed=run.start_seed, **how)
    for x in "JKLhbM":
        assert row[f"rmse_{x}"] == pytest.approx(result.rmse[x], rel=1e-12)
        assert row[f"converged_{x}"] == result.converged[x]
        assert 0 <= row[f"covered_{x}"] <= 1
    assert row["log_likelihood"] == pytest.approx(result.training_log_likelihood, abs=1e-12)
    sets = unpack_couplings(row["couplings"], 6, 2)
    np.testing.assert_array_equal(sets[0]["M"], truth.M)
    assert np.sqrt(np.mean((sets[2]["M"] - truth.M) ** 2)) / scales.M == pytest.approx(row["rmse_M"])
    assert unpack_trace(row["trace"]).shape[0] == row["iterations"]


@pytest.mark.usefixtures("plain_figures")
def test_what_is_not_learned_is_null_and_scored_without(tmp_path) -> None:
    axes = {"model.hidden_coupling": [0.0, 1.5], "learner.hidden_couplings": [True, False]}
    results = run_sweep(
        {**SWEEP, "axes": axes, "keep": {"couplings": True}}, out=tmp_path / "r", in_process=True
    )
    runs = results.runs
    assert (runs["status"] == "done").all(), runs["error"].tolist()
    learned = runs["learner.hidden_couplings"].astype(bool)
    for family in ("converged", "rmse"):
        assert (runs[f"{family}_M"].notna() == learned).all()
    couplings = pd.read_parquet(tmp_path / "r" / "couplings.parquet")
    # M is among the couplings of a run where the network or the learner has it.
    with_M = couplings[couplings["block"] == "M"].groupby("run_id").size()
    assert len(with_M) == 3
    assert set(with_M) == {4}
    report = build(tmp_path / "r", refresh_tables(tmp_path / "r"))
    names = [figure["name"] for figure in report.document["figures"]]
    assert "likelihood-against-hidden-coupling" in names
    claims = {claim["claim"] for claim in report.document["claims"] if claim["figure"] == "kising"}
    assert len(claims) == 2
    scatter = next(x for x in report.document["figures"] if x["name"] == "couplings")
    assert any("M" in panel for panel in scatter["panels"])


def test_the_lost_likelihood_is_that_of_the_best_learner() -> None:
    from support.rows import make_runs

    rows = [
        {"realization": r, "model.hidden_coupling": m, "learner.hidden_couplings": flag, "point_id": f"{m}{flag}",
         "rmse_J": 0.1, "log_likelihood": -3.0 - r - (0.0 if flag else 0.1 * m)}
        for r in range(2) for m in (0.0, 1.0, 2.0) for flag in (True, False)
    ]  # fmt: skip
    (figure,) = [x for x in curves(make_runs(rows)) if x.name == "likelihood-against-hidden-coupling"]
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    figure.panels[0].draw(axes)
    shown = {
        text: np.asarray(box.lines[0].get_ydata(), dtype=float)
        for box, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    np.testing.assert_allclose(shown["with M"], [0.0, 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(shown["no M"], [0.0, 0.1, 0.2], atol=1e-12)


def test_a_run_continues_bit_for_bit() -> None:
    run = plan().run(0)
    whole = execute(run, 1, None)
    steps = perform(run, 1, None, None)
    for _ in range(7):
        saved = next(steps)()
    rest = perform(run, 1, None, saved)
    while True:
        try:
            next(rest)
        except StopIteration as end:
            row = end.value
            break
    assert {k: v for k, v in row.items() if k != "seconds"} == {
        k: v for k, v in whole.items() if k != "seconds"
    }


def test_averages_at_the_true_couplings_are_those_of_whole_segments() -> None:
    run = plan(task="infer", learner={"estimator": "auto"}, score={"exact": True}).run(0)
    row = execute(run, 1, None)
    truth = draw_couplings(6, 2, bias=0.3, hidden_coupling=1.5, seed=run.network_seed)
    recording = simulate(truth, 800, seed=run.data_seed)
    found = infer(truth, recording.visible, estimator="exact")
    assert row["estimator"] == "exact"
    assert row["log_likelihood"] == pytest.approx(found.log_likelihood.mean())
    assert row["hidden_overlap"] == pytest.approx(np.mean(np.sign(found.mu) * recording.hidden[1:-1]))
    assert row["rmse_m"] == row["rmse_mu"] == row["rmse_pair"] == 0


@pytest.mark.parametrize("task", ["learn", "infer"])
def test_ids_without_the_block_are_those_of_before_there_was_one(task: str) -> None:
    learner = {"estimator": "bp"}
    if task == "learn":
        learner |= {"start": "signs", "bias": False, "prior": "none"}
    how = {"task": task, "model": {"visible": 6, "hidden": 2}, "learner": learner}
    point = plan(**how).points[0]
    values = point.values()
    assert values["model.hidden_coupling"] == 0
    assert values["learner.hidden_couplings"] is (False if task == "learn" else None)
    first = {k: v for k, v in values.items() if k not in LEAVES or LEAVES[k].option.since == 1}
    assert point.point_id == short_digest(canonical_json(first))
    assert "hidden_coupling" not in point.model_json
    model = {"visible": 6, "hidden": 2, "hidden_coupling": 0.5}
    assert (
        plan(**{**how, "model": model, "learner": {"estimator": "exact"}}).points[0].point_id
        != point.point_id
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learner": {"estimator": "bp", "hidden_couplings": True}},
         "learner.hidden_couplings: estimator bp cannot treat couplings M among hidden spins; use exact"),
        ({"task": "infer", "learner": {"estimator": "tap"}},
         "learner.estimator: estimator tap cannot treat couplings M among hidden spins; use exact"),
        ({"model": {"visible": 6, "hidden": 9}}, r"model.hidden: 9 is too large for estimator exact with couplings M"),
        ({"task": "infer", "model": {"visible": 6, "hidden": 9, "hidden_coupling": 1}, "score": {"exact": True},
          "learner": {"estimator": "exact"}}, r"model.hidden: 9 is too large for score.exact with couplings M"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_named(changes: dict, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        plan(**changes)


def test_estimators_without_the_block_learn_from_such_networks() -> None:
    row = execute(plan(learner={"estimator": "bp", "start": "signs", "max_iterations": 5}).run(0), 1, None)
    assert row.get("rmse_M") is None
    assert np.isfinite(row["rmse_J"])


def test_the_block_costs_time() -> None:
    costs = CostModel()
    with_M, without = (
        costs.seconds(plan(learner={"estimator": "exact", "hidden_couplings": flag}).points[0])
        for flag in (True, False)
    )
    assert with_M > without


def test_a_recording_is_held_out_fold_by_fold(tmp_path) -> None:
    truth = draw_couplings(6, 1, bias=0.3, hidden_coupling=3.0, seed=3)
    np.save(tmp_path / "data.npy", simulate(truth, 3000, seed=4).visible)
    sweep = {
        "name": "folds",
        "seed": 1,
        "model": {"hidden": 1},
        "data": {"file": str(tmp_path / "data.npy"), "folds": 2},
        "learner": {"estimator": "exact"},
        "axes": {"learner.hidden_couplings": [True, False]},
    }
    runs = run_sweep(sweep, out=tmp_path / "r", in_process=True).runs
    assert (runs["status"] == "done").all(), runs["error"].tolist()
    by = runs.groupby("learner.hidden_couplings")[["held_out", "forecast", "held_out_memoryless"]].mean()
    assert by.loc[True, "held_out"] > by.loc[False, "held_out"]
    assert by.loc[True, "forecast"] > by.loc[False, "forecast"]
    # The control without memory has no M, whatever the learner has.
    assert by.loc[True, "held_out_memoryless"] == by.loc[False, "held_out_memoryless"]
    assert (runs["converged_M"].notna() == runs["learner.hidden_couplings"].astype(bool)).all()
