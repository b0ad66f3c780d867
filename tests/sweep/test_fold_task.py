"""Runs on a recording: nothing leaks, scores are those of a fit, stopping changes nothing, and the choice is right."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator
from pathlib import Path

import numpy as np
import pytest
from support.bits import assert_same_bits
from support.spin_data import random_spins

from kising import draw_couplings, fit, run_sweep, simulate
from kising.errors import ShrinkError
from kising.learning.folds import hold_out
from kising.learning.selection import choose_hidden, selection_spec
from kising.recordings import Segments, as_segments
from kising.sweep import fold_task
from kising.sweep.fold_task import perform_fold
from kising.sweep.plan import Plan, Run
from kising.sweep.spec import parse_spec
from kising.sweep.store.columns import COLUMNS, DETERMINISTIC_COLUMNS
from kising.sweep.task import execute, perform

LEARNER = {"estimator": "exact", "max_iterations": 40}


@pytest.fixture(scope="module")
def visible() -> np.ndarray:
    couplings = draw_couplings(5, 2, strength=1.5, bias=0.3, seed=1)
    return simulate(couplings, 900, seed=2).visible


def runs_of(spins: np.ndarray, place: Path, **more: object) -> list[Run]:
    np.save(place / "spins.npy", spins)
    spec = selection_spec(place / "spins.npy", [0, 2], seed=3, folds=3, learner=LEARNER)
    return list(Plan.of(parse_spec({**spec, **more})).runs())


def finished(steps: Generator[object, None, dict[str, object]]) -> dict[str, object]:
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value


def test_a_row_has_the_scores_of_a_fit_to_the_other_folds(visible: np.ndarray, tmp_path: Path) -> None:
    run = runs_of(visible, tmp_path, score={"errors": True})[4]
    recording = as_segments(visible)
    row = execute(run, 1, None, recording)
    assert (row["model.hidden"], row["realization"]) == (2, 1)
    fold = hold_out(recording, 1, 3)
    result = fit(fold.training, 2, seed=run.start_seed, errors=True, **LEARNER)
    assert row["iterations"] == result.iterations
    assert {x: row[f"converged_{x}"] for x in "JKLhb"} == {x: result.converged[x] for x in "JKLhb"}
    assert row["log_likelihood"] == pytest.approx(result.training_log_likelihood, rel=1e-12)
    assert row["held_out"] == pytest.approx(result.log_likelihood(fold.held_out), rel=1e-12)
    assert row["forecast"] == pytest.approx(result.forecast_log_likelihood(fold.held_out), rel=1e-12)
    assert row["error_J"] > 0
    for missing in ("rmse_J", "covered_J", "baseline_rmse", "hidden_overlap"):
        assert row.get(missing) is None
    baseline = fit(fold.training, 0, seed=1, **LEARNER)
    assert row["held_out_visible_only"] == pytest.approx(baseline.log_likelihood(fold.held_out), rel=1e-12)
    assert row["forecast_visible_only"] == pytest.approx(row["held_out_visible_only"], rel=1e-12)
    assert row["held_out_memoryless"] < row["held_out"]
    assert row["forecast_memoryless"] < row["forecast"]
    assert set(row) <= {column.name for column in COLUMNS}


def test_a_run_without_its_recording_is_refused(visible: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs the recording"):
        execute(runs_of(visible, tmp_path)[0], 1, None)


def test_the_memoryless_control_beats_no_class_at_all_and_only_jointly(tmp_path: Path) -> None:
    """Spins that share a class at every step, and nothing in time."""
    rng = np.random.default_rng(3)
    classes = rng.random((3000, 1)) < 0.5
    spins = np.where(rng.random((3000, 5)) < np.where(classes, 0.9, 0.1), 1, -1).astype(np.int8)
    run = next(run for run in runs_of(spins, tmp_path) if run.point.model.hidden == 2)
    row = execute(run, 1, None, as_segments(spins))
    assert row["held_out_memoryless"] > row["held_out_visible_only"] + 0.5
    assert row["held_out_memoryless"] >= row["held_out"] - 0.01
    assert row["forecast_memoryless"] == pytest.approx(5 * np.log(0.5), abs=0.02)


def test_nothing_of_what_is_held_out_reaches_learning(visible: np.ndarray, tmp_path: Path) -> None:
    runs = runs_of(visible, tmp_path)
    inputs = np.random.default_rng(4).standard_normal((900, 1))
    states = []
    for flipped in (False, True):
        spins, known = visible.copy(), inputs.copy()
        if flipped:
            spins[300:600] *= -1
            known[300:600] *= 50
        steps = perform_fold(runs[4], as_segments(spins, known), 1, lambda: None, None)
        states.append([state() for _, state in zip(range(5), steps, strict=False)])
    assert states[0] == states[1]
    spins = visible.copy()
    spins[299] *= -1
    steps = perform_fold(runs[4], as_segments(spins, inputs), 1, lambda: None, None)
    assert [state() for _, state in zip(range(5), steps, strict=False)] != states[0]


@pytest.mark.parametrize("stop", [1, 12, 45, 60])
def test_a_run_goes_on_from_any_of_its_states(visible: np.ndarray, tmp_path: Path, stop: int) -> None:
    run, recording = runs_of(visible, tmp_path)[3], as_segments(visible)
    fold_task._baselines.clear()
    whole = execute(run, 1, None, recording)
    fold_task._baselines.clear()
    steps_of_whole = sum(1 for _ in perform(run, 1, None, None, recording))
    fold_task._baselines.clear()
    steps = perform(run, 1, None, None, recording)
    saved = None
    for _, state in zip(range(stop), steps, strict=False):
        saved = state()
    fold_task._baselines.clear()
    assert finished(perform(run, 1, None, saved, recording)) == whole
    fold_task._baselines.clear()
    left = sum(1 for _ in perform(run, 1, None, saved, recording))
    # Learning goes on; baselines are learned again.
    learning = whole["iterations"]
    assert steps_of_whole - left == min(stop, learning)


def test_remembered_baselines_are_those_that_would_be_learned(visible: np.ndarray, tmp_path: Path) -> None:
    recording = as_segments(visible)
    runs = runs_of(visible, tmp_path)
    fold_task._baselines.clear()
    together = [execute(run, 1, None, recording) for run in runs]
    for run, row in zip(runs, together, strict=True):
        fold_task._baselines.clear()
        assert execute(run, 1, None, recording) == row


def with_gaps() -> Segments:
    spins = random_spins(150, 6).astype(float)
    spins[np.random.default_rng(1).random(spins.shape) < 0.05] = np.nan
    return as_segments(spins)


def with_a_gap_in_the_first_fold() -> Segments:
    """So long that forecasts across it are drawn, not summed over all states."""
    spins = random_spins(150, 14).astype(float)
    spins[20:25, :13] = np.nan
    return as_segments(spins)


def with_an_input() -> Segments:
    return as_segments(random_spins(150, 4), 3.0 + np.random.default_rng(1).standard_normal((150, 1)))


SHARED = {
    "gaps": (with_gaps, {"model.hidden": [1, 2]}),
    "gaps in what is held out": (with_a_gap_in_the_first_fold, {"model.hidden": [1, 2]}),
    "units of inputs": (with_an_input, {"model.hidden": [1], "learner.bias": [True, False]}),
}


@pytest.mark.parametrize(("recorded", "axes"), SHARED.values(), ids=SHARED.keys())
def test_remembered_baselines_do_not_depend_on_which_run_came_first(
    recorded: Callable[[], Segments], axes: dict[str, list[object]], tmp_path: Path
) -> None:
    recording = recorded()
    learner = {"estimator": "auto", "max_iterations": 3}
    runs = [
        run
        for run in runs_of(random_spins(150, recording.n_visible), tmp_path, learner=learner, axes=axes)
        if run.realization == 0
    ]
    assert len(runs) == 2
    alone = {}
    for run in runs:
        fold_task._baselines.clear()
        alone[run.run_id] = execute(run, 1, None, recording)
    for order in (runs, runs[::-1]):
        fold_task._baselines.clear()
        assert {run.run_id: execute(run, 1, None, recording) for run in order} == alone


def test_baselines_of_a_whole_recording_are_shared(visible: np.ndarray, tmp_path: Path) -> None:
    runs = runs_of(visible, tmp_path)
    fold_task._baselines.clear()
    for run in runs:
        execute(run, 1, None, as_segments(visible))
    alone = {key for key in fold_task._baselines if key[-1] is None}
    assert len(alone) == 3  # folds


def test_killed_and_changed_sweeps_go_on(visible: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "spins.npy", visible)
    spec = selection_spec(tmp_path / "spins.npy", [0, 1], seed=3, folds=3, learner=LEARNER)
    whole = run_sweep(spec, out=tmp_path / "whole", in_process=True).runs
    assert (whole["status"] == "done").all()
    # Only what was committed counts: half of it is there, and the directory runs by itself.
    run_sweep({**spec, "axes": {"model.hidden": [0]}}, out=tmp_path / "half", in_process=True)
    shutil.copy(tmp_path / "whole" / "sweep.yaml", tmp_path / "half" / "sweep.yaml")
    resumed = run_sweep(tmp_path / "half", in_process=True)
    assert resumed.outcome.done == 3
    columns = list(DETERMINISTIC_COLUMNS)
    assert_same_bits(resumed.runs[columns], whole[columns])
    np.save(tmp_path / "spins.npy", -visible)
    with pytest.raises(ShrinkError, match=r"6 finished runs .* or its recording changed"):
        run_sweep(tmp_path / "half", in_process=True)
    changed = run_sweep(tmp_path / "half", in_process=True, shrink=True)
    assert changed.outcome.done == 6
    assert len(changed.runs) == 6
    assert set(changed.runs["data.hash"]) != set(whole["data.hash"])
    (tmp_path / "spins.npy").unlink()
    with pytest.raises(ValueError, match=r"spins\.npy: cannot read the recording: no such file"):
        run_sweep(tmp_path / "half", in_process=True)


def test_no_hidden_spins_are_found_where_there_are_none(tmp_path: Path) -> None:
    """Where there are some, the example of docs/choosing-hidden.md finds them."""
    couplings = draw_couplings(8, 0, strength=1.5, bias=0.3, seed=3)
    np.save(tmp_path / "spins.npy", simulate(couplings, 3000, seed=5).visible)
    spec = selection_spec(tmp_path / "spins.npy", [0, 1, 2], seed=1, folds=3, learner=LEARNER)
    results = run_sweep(spec, out=tmp_path / "out", in_process=True)
    choice = choose_hidden(results.runs)
    assert choice.hidden == 0, choice.reason
    assert choice.chosen.point_id in set(results.runs["point_id"])
