from __future__ import annotations

import numpy as np
import pytest

from kising import Couplings, bond_scales, draw_couplings, fit, infer, simulate
from kising.blocks import BLOCKS
from kising.estimators.registry import AUTO_LARGEST_EXACT, ESTIMATORS
from kising.learning.checkpoint import load
from kising.learning.scores import align, bond_shares, pruned, rmse
from kising.learning.trace_columns import TRACE_COLUMNS
from kising.sweep.execute.protocol import RunTimeout
from kising.sweep.plan import Plan
from kising.sweep.spec import parse_spec
from kising.sweep.store.artifacts import unpack_couplings, unpack_trace
from kising.sweep.store.columns import COLUMNS
from kising.sweep.task import execute, perform

SWEEP = {
    "name": "tiny",
    "seed": 11,
    "realizations": 2,
    "model": {"visible": 6, "hidden": 2, "strength": 1.2, "connectivity": 0.8},
    "data": {"length": 400},
    "learner": {"estimator": "bp", "correlations": "corrected", "start": "signs", "max_iterations": 30},
}


def runs(**changes):
    return list(Plan.of(parse_spec({**SWEEP, **changes})).runs())


def test_the_row_of_a_run_that_stalled_says_what_was_missing() -> None:
    run = runs(learner={**SWEEP["learner"], "max_iterations": 4}, keep={"trace": True})[0]
    row = execute(run, 1, None)
    assert row["outcome"] == "stalled"
    steps = unpack_trace(row["trace"])[-1]
    lacking = [x for x in "JKLhb" if not row[f"converged_{x}"]]
    assert lacking == list("JKLhb")
    for x in lacking:
        step = steps[TRACE_COLUMNS.index(f"step_{x}")]
        assert row[f"excess_{x}"] == step / run.point.learner.tolerance
        assert f"{x}: step {step:.2g} bond scales" in row["missing"]


def test_learn_is_fit_on_what_the_seeds_say() -> None:
    run = runs()[1]
    row = execute(run, 1, None)
    truth = draw_couplings(6, 2, strength=1.2, connectivity=0.8, seed=run.network_seed)
    recording = simulate(truth, 400, seed=run.data_seed)
    scales = bond_scales(6, 2, strength=1.2, connectivity=0.8)
    result = fit(
        recording.visible,
        2,
        estimator="bp",
        correlations="corrected",
        start="signs",
        truth=truth,
        scales=scales,
        seed=run.start_seed,
        max_iterations=30,
    )
    assert {x: row[f"rmse_{x}"] for x in "JKLhb"} == result.rmse
    assert {x: row[f"converged_{x}"] for x in "JKLhb"} == result.converged
    assert (row["outcome"], row["iterations"]) == (result.outcome, result.iterations)
    assert row["bp_converged"] == result.trace.bp_converged.iloc[-1]
    assert row["log_likelihood"] == pytest.approx(result.trace.log_likelihood.iloc[-1], rel=1e-14)
    mu = infer(result.couplings, recording.visible, estimator="bp").mu
    assert row["hidden_overlap"] == pytest.approx(np.mean(np.sign(mu) * recording.hidden[1:-1]))
    assert row["baseline_rmse"] == pytest.approx(np.sqrt(0.8))
    assert row["model.visible"] == 6
    assert set(row) <= {column.name for column in COLUMNS}


@pytest.mark.parametrize("decimate", ["known", 0.5, "none"])
def test_what_makes_couplings_sparse_reaches_the_learner(decimate: str | float) -> None:
    learner = {
        "estimator": "exact",
        "start": "signs",
        "max_iterations": 40,
        "decimate": decimate,
        "l1": 1.5 if decimate == "none" else 0,
    }
    (run,) = runs(learner=learner, score={"pruned": True}, realizations=1)
    row = execute(run, 1, None)
    truth = draw_couplings(6, 2, strength=1.2, connectivity=0.8, seed=run.network_seed)
    scales = bond_scales(6, 2, strength=1.2, connectivity=0.8)
    bonds = bond_shares(truth)
    assert bonds[:3] == tuple(np.count_nonzero(x) / x.size for x in truth[:3]) != (0.8, 0.8, 0.8)
    assert bonds[3:] == (1.0,) * (len(BLOCKS) - 3)
    result = fit(
        simulate(truth, 400, seed=run.data_seed).visible, 2, estimator="exact", start="signs", truth=truth,
        scales=scales, seed=run.start_seed, max_iterations=40, decimate=decimate, l1=learner["l1"],
    )  # fmt: skip
    assert {x: row[f"rmse_{x}"] for x in "JKLhb"} == result.rmse
    after = rmse(pruned(result.couplings, bonds), truth, scales)
    assert {x: row[f"rmse_pruned_{x}"] for x in "JKL"} == {x: after[x] for x in "JKL"}
    assert row["rmse_pruned_J"] != row["rmse_J"]
    assert row["learner.decimate"] == str(decimate)


@pytest.mark.parametrize(("prior", "argument"), [("none", None), (0.5, 0.5)])
def test_a_prior_reaches_the_learner(prior: str | float, argument: float | None) -> None:
    learner = {"estimator": "exact", "start": "signs", "max_iterations": 40, "prior": prior}
    (run,) = runs(learner=learner, realizations=1)
    row = execute(run, 1, None)
    truth = draw_couplings(6, 2, strength=1.2, connectivity=0.8, seed=run.network_seed)
    result = fit(
        simulate(truth, 400, seed=run.data_seed).visible, 2, estimator="exact", start="signs", truth=truth,
        scales=bond_scales(6, 2, strength=1.2, connectivity=0.8), seed=run.start_seed, max_iterations=40,
        prior=argument,
    )  # fmt: skip
    assert {x: row[f"rmse_{x}"] for x in "JKLhb"} == result.rmse
    assert row["learner.prior"] == str(prior)


@pytest.mark.parametrize("start", ["signs", "random"])
def test_several_starts_reach_the_learner(start: str) -> None:
    learner = {"estimator": "exact", "max_iterations": 40, "start": start, "starts": 3}
    (run,) = runs(learner=learner, realizations=1)
    row = execute(run, 1, None)
    truth = draw_couplings(6, 2, strength=1.2, connectivity=0.8, seed=run.network_seed)
    alone, three = (
        fit(
            simulate(truth, 400, seed=run.data_seed).visible, 2, estimator="exact", start=start, truth=truth,
            scales=bond_scales(6, 2, strength=1.2, connectivity=0.8), seed=run.start_seed, max_iterations=40,
            starts=starts,
        )
        for starts in (1, 3)
    )  # fmt: skip
    assert {x: row[f"rmse_{x}"] for x in "JKLhb"} == three.rmse != alone.rmse
    assert row["learner.starts"] == 3


@pytest.mark.parametrize("start", ["signs", "random"])
def test_errors_are_those_of_the_fit_and_follow_its_hidden_units(start: str) -> None:
    (run,) = runs(
        learner={"estimator": "gibbs", "start": start}, model={"visible": 8, "hidden": 2}, data={"length": 3000},
        score={"errors": True}, realizations=1,
    )  # fmt: skip
    row = execute(run, 1, None)
    truth = draw_couplings(8, 2, seed=run.network_seed)
    scales = bond_scales(8, 2, strength=1.0, connectivity=1.0)
    result = fit(
        simulate(truth, 3000, seed=run.data_seed).visible, 2, estimator="gibbs", start=start, truth=truth,
        scales=scales, seed=run.start_seed, errors=True,
    )  # fmt: skip
    couplings, errors = result.couplings, result.standard_error
    if start == "random":
        matching = align(couplings, truth, scales)
        couplings, errors = matching.apply(couplings), matching.apply(errors)
    for name in "JKLhb":
        x, error, true, sd = (getattr(of, name) for of in (couplings, errors, truth, scales))
        assert row[f"error_{name}"] == pytest.approx(np.sqrt(np.mean(error**2)) / sd)
        assert row[f"covered_{name}"] == np.mean(np.abs(x - true) < 1.96 * np.abs(error))
    assert execute(runs(realizations=1)[0], 1, None).get("error_J") is None


@pytest.mark.parametrize("estimator", [entry.name for entry in ESTIMATORS])
@pytest.mark.parametrize("start", ["signs", "random"])
def test_a_run_and_a_fit_learn_the_same_couplings_bit_for_bit(estimator: str, start: str) -> None:
    learner = {"estimator": estimator, "start": start, "max_iterations": 25, "starts": 2}
    (run,) = runs(learner=learner, realizations=1, keep={"couplings": True, "trace": True})
    row = execute(run, 1, None)
    truth = draw_couplings(6, 2, strength=1.2, connectivity=0.8, seed=run.network_seed)
    scales = bond_scales(6, 2, strength=1.2, connectivity=0.8)
    result = fit(
        simulate(truth, 400, seed=run.data_seed).visible, 2, truth=truth, scales=scales, seed=run.start_seed,
        **learner,
    )  # fmt: skip
    couplings = result.couplings
    if start == "random":
        couplings = align(couplings, truth, scales).apply(couplings)
    _, _, learned = unpack_couplings(row["couplings"], 6, 2)
    assert Couplings(**learned) == couplings
    assert np.array_equal(unpack_trace(row["trace"]), result.state.trace, equal_nan=True)
    assert row["iterations"] == result.iterations > 2


def test_random_start_is_scored_after_matching_hidden_units() -> None:
    learner = {"estimator": "exact", "start": "random"}
    model = {"visible": 8, "hidden": 2}
    for run in runs(learner=learner, model=model, data={"length": 6000}, realizations=3):
        row = execute(run, 1, None)
        assert row["outcome"] == "converged"
        assert row["rmse_K"] < 0.3
        assert row["hidden_overlap"] > 0.3


def test_infer_scores_the_estimator_at_the_truth() -> None:
    (run,) = runs(task="infer", score={"exact": True}, learner={"estimator": "bp"}, realizations=1)
    row = execute(run, 1, None)
    truth = draw_couplings(6, 2, strength=1.2, connectivity=0.8, seed=run.network_seed)
    recording = simulate(truth, 400, seed=run.data_seed)
    ours = infer(truth, recording.visible, estimator="bp")
    exact = infer(truth, recording.visible, estimator="exact")
    for name in ("m", "mu", "pair"):
        difference = getattr(ours, name) - getattr(exact, name)
        assert row[f"rmse_{name}"] == pytest.approx(np.sqrt(np.mean(difference**2)), rel=1e-9)
    assert row["bp_converged"] == ours.converged.mean()
    assert row["outcome"] == ("converged" if ours.converged.all() else "stalled")
    assert "rmse_J" not in row


def test_a_run_is_a_pure_function() -> None:
    first, second = runs()
    before = execute(first, 1, None)
    execute(second, 1, None)
    assert execute(first, 2, None) == before


def test_strength_zero_is_learned_without_complaint() -> None:
    (run,) = runs(model={"visible": 4, "hidden": 1, "strength": 0.0}, realizations=1)
    row = execute(run, 1, None)
    assert np.isfinite(row["rmse_J"])


def test_a_run_over_its_time_says_so() -> None:
    with pytest.raises(RunTimeout):
        execute(runs()[0], 1, 1e-9)


def finish(steps):
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize(
    "learner",
    [
        {"estimator": "bp", "start": "signs", "max_iterations": 12},
        {"estimator": "exact", "start": "random", "max_iterations": 25},
        {"estimator": "gibbs", "start": "signs", "max_iterations": 60},
        {"estimator": "tap", "start": "signs", "step": "gradient", "momentum": 0.5, "max_iterations": 8},
    ],
)
def test_learning_goes_on_from_any_of_its_states_as_if_never_stopped(learner) -> None:
    (run,) = runs(learner=learner, realizations=1)
    whole = execute(run, 1, None)
    states = [state() for state in perform(run, 1, None, None)]
    assert len(states) == whole["iterations"] > 5
    for state in states[:: 1 if len(states) < 10 else 3] + states[-1:]:
        assert finish(perform(run, 1, None, state)) == whole
    # From the last of a chain of states, each made by a process that went on from the one before.
    state = None
    for _ in range(4):
        state = next(perform(run, 1, None, state))()
    assert load(state).iteration == 4
    assert finish(perform(run, 2, None, state)) == whole


def test_a_state_that_is_none_of_this_network_is_not_used() -> None:
    (small,) = runs(realizations=1)
    (large,) = runs(realizations=1, model={"visible": 7, "hidden": 2})
    state = next(perform(large, 1, None, None))()
    whole = execute(small, 1, None)
    assert finish(perform(small, 1, None, state)) == whole
    assert finish(perform(small, 1, None, b"nonsense")) == whole


@pytest.mark.parametrize("task", ["learn", "infer"])
@pytest.mark.parametrize(
    ("hidden", "chosen"), [(AUTO_LARGEST_EXACT, "exact"), (AUTO_LARGEST_EXACT + 1, "gibbs")]
)
def test_auto_is_decided_by_the_network_and_the_row_says_how(task: str, hidden: int, chosen: str) -> None:
    how = {"task": task, "model": {"visible": 5, "hidden": hidden}, "data": {"length": 40}, "realizations": 1}
    learners = {"auto": {"max_iterations": 2}, chosen: {"max_iterations": 2}}
    if task == "infer":
        learners = {"auto": {}, chosen: {}}
    auto, plain = (
        execute(runs(**how, learner={"estimator": name, **more})[0], 1, None)
        for name, more in learners.items()
    )
    assert (auto["learner.estimator"], auto["estimator"]) == ("auto", chosen)
    assert (plain["learner.estimator"], plain["estimator"]) == (chosen, chosen)
    for name in ("log_likelihood", "hidden_overlap", "rmse_K", "outcome"):
        assert auto.get(name) == plain.get(name)
