"""Sweeps over biases, and over networks with and without hidden spins."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from kising import bond_scales, draw_couplings, fit, infer, run_sweep, simulate
from kising.estimators.registry import NAMES
from kising.options import LEAVES
from kising.sweep.plan import Plan
from kising.sweep.points import canonical_json, short_digest
from kising.sweep.spec import parse_spec
from kising.sweep.store.artifacts import unpack_couplings
from kising.sweep.task import execute, perform

SWEEP = {
    "name": "fields",
    "seed": 11,
    "realizations": 2,
    "model": {"visible": 6, "hidden": 2, "bias": 0.4},
    "data": {"length": 600},
    "learner": {"estimator": "exact", "start": "signs", "max_iterations": 40},
}
#: task: ids of a point, and of its second run, as they were before networks had biases.
BEFORE = {
    "learn": ("47829cf59af8c9cf", "d688982fbfd80602"),
    "infer": ("2baa46ca88524431", "313f762ace96291d"),
}
FAMILIES = ("converged", "rmse", "error", "covered")


def plan(**changes) -> Plan:
    return Plan.of(parse_spec({**SWEEP, **changes}))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_biases_are_axes_and_what_is_not_learned_is_null(tmp_path) -> None:
    axes = {"model.bias": [0.0, 0.4], "learner.bias": [True, False]}
    results = run_sweep(
        {**SWEEP, "axes": axes, "score": {"errors": True}}, out=tmp_path / "r", in_process=True
    )
    runs = results.runs
    assert len(runs) == 8
    assert (runs["status"] == "done").all()
    learned = runs["learner.bias"].astype(bool)
    for family in FAMILIES:
        for name in "JKL":
            assert runs[f"{family}_{name}"].notna().all()
        for name in "hb":
            assert (runs[f"{family}_{name}"].notna() == learned).all()
        for name in "FG":
            assert runs[f"{family}_{name}"].isna().all()
    assert runs["rmse_h"].dtype.kind == "f"
    # The networks of one realization have the same bonds; with other biases, their recordings differ.
    wide = runs.pivot_table(index="realization", columns=["model.bias", "learner.bias"], values="rmse_J")
    assert wide[(0.4, False)].mean() > wide[(0.4, True)].mean()
    assert set(results.scaling["block"]) <= {"J", "K", "L", "h", "b"}
    summary = results.summary.set_index(["model.bias", "learner.bias"])
    assert summary["rmse_h_mean"].notna().tolist() == [True, False, True, False]
    stored = pd.read_parquet(tmp_path / "r" / "runs.parquet")
    pd.testing.assert_series_equal(stored["converged_h"].astype("boolean"), runs["converged_h"])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("estimator", ["exact", "gibbs"])
def test_a_run_is_a_fit_with_the_biases_of_its_seeds(estimator: str, bias: bool) -> None:
    learner = {"estimator": estimator, "start": "random", "max_iterations": 30, "bias": bias}
    run = plan(learner=learner).run(1)
    row = execute(run, 1, None)
    truth = draw_couplings(6, 2, bias=0.4, seed=run.network_seed)
    assert truth.h.any()
    result = fit(
        simulate(truth, 600, seed=run.data_seed).visible, 2, truth=truth, seed=run.start_seed,
        scales=bond_scales(6, 2, strength=1.0, connectivity=1.0, bias=0.4), **learner,
    )  # fmt: skip
    learned = "JKLhb" if bias else "JKL"
    assert set(result.rmse) == set(learned)
    for x in learned:
        assert row[f"rmse_{x}"] == pytest.approx(result.rmse[x], rel=1e-12)
        assert row[f"converged_{x}"] == result.converged[x]
    assert row.get("rmse_h") is None or bias


@pytest.mark.parametrize("task", ["learn", "infer"])
def test_ids_without_biases_are_those_of_before_there_were_any(task: str) -> None:
    learner = {"estimator": "bp", "correlations": "corrected"}
    if task == "learn":
        learner |= {"start": "signs", "max_iterations": 40, "bias": False, "prior": "none"}
    how = {"task": task, "model": {"visible": 6, "hidden": 2}, "learner": learner}
    point = plan(**how).points[0]
    values = point.values()
    assert values["learner.bias"] is (False if task == "learn" else None)
    assert values["model.bias"] == 0
    first = {k: v for k, v in values.items() if k not in LEAVES or LEAVES[k].option.since == 1}
    assert point.point_id == short_digest(canonical_json(first)) == BEFORE[task][0]
    assert plan(**how).run(1).run_id == BEFORE[task][1]
    assert "bias" not in point.model_json
    with_bias = plan(**{**how, "model": {"visible": 6, "hidden": 2, "bias": 0.1}}).points[0]
    assert with_bias.point_id != point.point_id
    if task == "learn":
        learned = plan(**{**how, "learner": {**learner, "bias": True}}).points[0]
        assert learned.point_id not in (point.point_id, with_bias.point_id)
        # What is learned does not enter the network or the recording.
        one, other = (next(iter(Plan.of(parse_spec({**SWEEP, **how, "learner": {**learner, "bias": b}})).runs()))
                      for b in (True, False))  # fmt: skip
        assert (one.network_seed, one.data_seed) == (other.network_seed, other.data_seed)


def test_hidden_spins_from_none_on_are_an_axis(tmp_path) -> None:
    axes = {
        "model.hidden": [0, 1],
        "learner.estimator": list(NAMES),
    }
    sweep = {**SWEEP, "axes": axes, "realizations": 1, "data": {"length": 300}}
    results = run_sweep(sweep, out=tmp_path / "r", in_process=True)
    runs = results.runs.set_index(["model.hidden", "learner.estimator"])
    assert (runs["status"] == "done").all(), runs["error"].tolist()
    without = runs.loc[0]
    assert (without["outcome"] == "converged").all()
    assert (without["estimator"] == "exact").all()
    assert without["rmse_J"].nunique() == without["log_likelihood"].nunique() == 1
    for name in ("J", "h"):
        assert without[f"rmse_{name}"].notna().all()
        assert without[f"converged_{name}"].all()
    for name in ("K", "L", "b"):
        assert without[f"rmse_{name}"].isna().all()
        assert without[f"converged_{name}"].isna().all()
        assert runs.loc[1][f"rmse_{name}"].notna().all()
    run = plan(**{key: sweep[key] for key in ("axes", "realizations", "data")}).run(0)
    truth = draw_couplings(6, 0, bias=0.4, seed=run.network_seed)
    found = fit(
        simulate(truth, 300, seed=run.data_seed).visible, 0, truth=truth, seed=run.start_seed, start="signs",
        scales=bond_scales(6, 0, strength=1.0, connectivity=1.0, bias=0.4),
    )  # fmt: skip
    assert without["rmse_J"].iloc[0] == pytest.approx(found.rmse["J"], rel=1e-9)
    assert without["log_likelihood"].iloc[0] == pytest.approx(found.log_likelihood(), rel=1e-12)


@pytest.mark.parametrize("score", [{}, {"exact": True}])
def test_inference_without_hidden_spins(score: dict) -> None:
    for estimator in NAMES:
        how = {
            "task": "infer",
            "learner": {"estimator": estimator},
            "model": {"visible": 6, "hidden": 0, "bias": 0.4},
        }
        run = plan(**how, score=score).run(0)
        row = execute(run, 1, None)
        truth = draw_couplings(6, 0, bias=0.4, seed=run.network_seed)
        moments = infer(truth, simulate(truth, 600, seed=run.data_seed).visible)
        assert row["log_likelihood"] == pytest.approx(moments.log_likelihood.mean(), rel=1e-12)
        assert (row["outcome"], row["bp_converged"], row["estimator"]) == ("converged", 1.0, "exact")
        for name in ("m", "mu", "pair"):
            assert row[f"rmse_{name}"] == (0.0 if score else None)


def finish(steps):
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize(
    "learner",
    [
        {"estimator": "exact", "start": "random", "max_iterations": 20},
        {"estimator": "gibbs", "start": "random", "max_iterations": 70},
        {"estimator": "exact", "decimate": 0.5, "max_iterations": 25},
    ],
)
@pytest.mark.parametrize("hidden", [0, 2])
def test_runs_with_biases_go_on_from_any_state(learner: dict, hidden: int) -> None:
    model = {"visible": 6, "hidden": hidden, "bias": 0.4}
    run = plan(learner={**learner, "tolerance": 1e-10}, model=model).run(0)
    whole = execute(run, 1, None)
    assert whole["rmse_h"] is not None
    states = [state() for state in perform(run, 1, None, None)]
    for state in states[:: max(1, len(states) // 4)]:
        assert finish(perform(run, 2, None, state)) == whole


def test_couplings_that_are_kept_include_biases() -> None:
    for bias in (True, False):
        learner = {**SWEEP["learner"], "bias": bias}
        run = next(iter(plan(learner=learner, keep={"couplings": True}).runs()))
        row = execute(run, 1, None)
        true, start, learned = unpack_couplings(row["couplings"], 6, 2)
        truth = draw_couplings(6, 2, bias=0.4, seed=run.network_seed)
        np.testing.assert_array_equal(true["h"], truth.h)
        np.testing.assert_array_equal(true["b"], truth.b)
        assert bool(start["h"].any()) == bool(learned["h"].any()) == bias
        if bias:
            assert np.sqrt(np.mean((learned["h"] - truth.h) ** 2)) / 0.4 == pytest.approx(row["rmse_h"])
