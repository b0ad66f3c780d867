"""Sweeps with missing entries: what is missing, what learns from it, and runs that were killed."""

from __future__ import annotations

import numpy as np
import pytest

from kising.errors import KisingError
from kising.sweep.plan import Plan
from kising.sweep.spec import parse_spec
from kising.sweep.task import execute, hide_entries, perform

SWEEP = {
    "name": "gaps",
    "seed": 11,
    "model": {"visible": 8, "hidden": 2, "hidden_coupling": 1.0, "bias": 0.3},
    "data": {"length": 300, "missing": 0.1},
    "learner": {"max_iterations": 12, "hidden_couplings": True},
}


def run_of(**changes):
    sections = {key: {**SWEEP.get(key, {}), **value} for key, value in changes.items()}
    return next(Plan.of(parse_spec({**SWEEP, **sections})).runs())


def finish(steps):
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize("coupled", [True, False])
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_killed_runs_go_on_from_any_state_with_the_same_bits(coupled, missing):
    run = run_of(data={"missing": missing}, learner={"hidden_couplings": coupled, "estimator": "gibbs"})
    whole = execute(run, 1, None)
    states = [state() for state in perform(run, 1, None, None)]
    assert len(states) == 12
    for state in (states[0], states[6], states[-1]):
        assert finish(perform(run, 2, None, state)) == whole


def test_rows_say_what_was_learned_and_how():
    row = execute(run_of(), 1, None)
    assert row["data.missing"] == 0.1
    assert row["estimator"] == "gibbs"
    assert np.isfinite([row[f"rmse_{x}"] for x in "JKLM"]).all()
    assert -8 * np.log(2) < row["log_likelihood"] < 0
    assert -1 <= row["hidden_overlap"] <= 1


@pytest.mark.parametrize("estimator", ["exact", "gibbs", "auto"])
def test_averages_at_the_truth(estimator):
    row = execute(inferred(estimator), 1, None)
    assert row["estimator"] == ("exact" if estimator == "exact" else "gibbs")
    assert row["hidden_overlap"] > 0.2


def inferred(estimator: str):
    spec = {
        **SWEEP,
        "task": "infer",
        "data": {"length": 200, "missing": 0.05},
        "learner": {"estimator": estimator},
    }
    return next(Plan.of(parse_spec(spec)).runs())


def test_what_is_missing_of_less_is_missing_of_more():
    rows = []
    for length, missing in ((200, 0.1), (300, 0.1), (300, 0.4)):
        run = run_of(data={"length": length, "missing": missing})
        rows.append(hide_entries(np.ones((length, 8), np.int8), run) == 0)
    few, longer, more = rows
    assert np.array_equal(few, longer[:200])
    assert np.all(more[longer])
    assert 0.3 < more.mean() < 0.5


def test_without_gaps_ids_are_as_before():
    given, silent = run_of(data={"missing": 0.0}), dict(SWEEP, data={"length": 300})
    assert given.run_id == next(Plan.of(parse_spec(silent)).runs()).run_id
    assert given.run_id != run_of().run_id


def test_estimators_that_do_not_know_gaps_are_refused():
    with pytest.raises(
        KisingError,
        match=r"bp cannot treat missing entries, and data.missing hides some; use auto, exact, gibbs",
    ):
        run_of(learner={"estimator": "bp", "hidden_couplings": False})
    with pytest.raises(KisingError, match=r"which auto uses where entries are missing"):
        run_of(learner={"step": "gradient"})
