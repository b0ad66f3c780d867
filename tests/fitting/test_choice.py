"""`kising fit` with several numbers of hidden spins: a sweep in its folder, a choice, and a fit of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from support.bits import assert_same_bits
from support.nodes import PATHS

from kising import draw_couplings, fit, run_sweep, simulate
from kising.cli import main
from kising.learning.selection import OWN, choose_hidden, selection_spec

pytestmark = pytest.mark.usefixtures("plain_figures")

OPTIONS = ["--hidden", "0,1,2", "--folds", "3", "--seed", "3", "--max-iterations", "40", "--local-debug"]


@pytest.fixture(scope="module")
def visible() -> np.ndarray:
    return simulate(draw_couplings(6, 1, seed=1), 1200, seed=2).visible


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(path: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["fit", str(path), *OPTIONS, *options])


def rows(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "choice" / "runs.parquet")


def test_the_choice_is_that_of_the_sweep_and_the_fit_is_of_everything(visible, tmp_path) -> None:
    np.save(tmp_path / "data.npy", visible)
    result = run(tmp_path / "data.npy")
    assert "<- chosen" in result.output
    assert "Chosen: 1 hidden spin" in result.output
    folder = tmp_path / "data.fit"
    about = json.loads((folder / "fit.json").read_text())
    assert about["hidden"] == about["choice"]["hidden"] == 1
    with np.load(folder / "couplings.npz") as found:
        np.testing.assert_array_equal(found["J"], fit(visible, 1, seed=3, max_iterations=40).couplings.J)
    # The same sweep by itself, of the same recording as it was given.
    spec = selection_spec(tmp_path / "data.npy", [0, 1, 2], seed=3, folds=3, learner={"max_iterations": 40})
    alone = run_sweep(spec, out=tmp_path / "alone", in_process=True).runs
    alone["data.file"] = "recording.npz"
    assert_same_bits(rows(folder), alone)
    choice = choose_hidden(alone)
    assert about["choice"]["why"] == choice.reason
    for one, written in zip(choice.candidates, about["choice"]["candidates"], strict=True):
        assert [written[column] for column in OWN] == [list(one.scores[column]) for column in OWN]
    page = (folder / "index.html").read_text()
    assert "Held-out scores" in page
    assert choice.reason in page


@pytest.mark.slow
def test_the_same_command_computes_nothing_twice_and_other_data_everything_anew(visible, tmp_path) -> None:
    np.save(tmp_path / "data.npy", visible)
    run(tmp_path / "data.npy")
    before = rows(tmp_path / "data.fit")
    again = run(tmp_path / "data.npy")
    assert "9 of 9 runs are finished already" in again.stderr
    pd.testing.assert_frame_equal(rows(tmp_path / "data.fit"), before)
    more = run(tmp_path / "data.npy", "--hidden", "0,1,3")
    assert "6 of 9 runs are finished already" in more.stderr
    np.save(tmp_path / "data.npy", -visible)
    other = run(tmp_path / "data.npy")
    assert "are not in this plan (the sweep was edited, or its recording changed)" in other.stderr
    assert not set(rows(tmp_path / "data.fit")["run_id"]) & set(before["run_id"])


def test_spins_that_are_silent_in_some_training_data_have_no_part_in_the_scores(visible, tmp_path) -> None:
    rare = -np.ones((len(visible), 1), np.int8)
    rare[100:110] = 1  # inside the first block alone
    np.save(tmp_path / "data.npy", np.hstack([visible, rare]))
    result = run(tmp_path / "data.npy")
    assert "left out: spin 6 never changed in the training data of some fold" in result.stderr
    assert set(rows(tmp_path / "data.fit")["model.visible"]) == {6}
    with np.load(tmp_path / "data.fit" / "couplings.npz") as found:
        assert found["J"].shape == (7, 7)


def test_gaps_trials_inputs_and_options_reach_the_sweep(visible, tmp_path) -> None:
    gaps = visible[:900].astype(float)
    gaps[200] = np.nan
    np.savez(
        tmp_path / "data.npz",
        trial_0=gaps,
        trial_1=visible[900:].astype(float),
        covariates=np.random.default_rng(1).standard_normal((1200, 1)),
    )
    how = ("--estep-tolerance", "1e-8", "--estimator", "bp", "--prior", "2")
    refused = run(tmp_path / "data.npz", *how)
    assert refused.exit_code == 2
    assert "bp cannot treat missing entries, and the recording has some" in refused.output
    assert not (tmp_path / "data.fit").exists()
    result = run(tmp_path / "data.npz", *how, "--missing", "drop")
    assert "<- chosen" in result.output, result.output
    found = rows(tmp_path / "data.fit")
    assert set(found["learner.prior"]) == {"2.0"}
    assert set(found["learner.estep.tolerance"]) == {1e-8}
    assert found["converged_F"].notna().all()
    assert set(found["data.absent"]) == {0.0}


def test_missing_entries_are_sampled_in_every_fold(visible, tmp_path) -> None:
    hidden = np.random.default_rng(2).random(visible.shape) < 0.1
    np.save(tmp_path / "data.npy", np.where(hidden, np.nan, visible))
    result = run(tmp_path / "data.npy", "--max-iterations", "15")
    assert "<- chosen" in result.output, result.output
    found = rows(tmp_path / "data.fit")
    assert set(found["estimator"]) == {"gibbs"}
    assert set(found["data.length"]) == {len(visible)}  # no step is left out
    np.testing.assert_allclose(found["data.absent"], hidden.mean(), atol=1e-12)
    scores = found[["held_out", "forecast", "held_out_visible_only", "held_out_memoryless"]]
    assert np.isfinite(scores.to_numpy(float)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--folds", "600"], "the recording is too short to hold out 600 parts of it"),
        (["--hidden", "1,30", "--estimator", "exact"], "too large for estimator exact"),
        (["--out", "x.npz"], "choosing the number of hidden spins writes a folder"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(options, message, visible, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("data.npy", visible)
    result = run(Path("data.npy"), *options)
    assert result.exit_code == 2
    assert message in result.output
    assert len(result.output.splitlines()) == 1
    assert {x.name for x in tmp_path.iterdir()} == {"data.npy"}


def test_independent_spikes_need_no_hidden_spin(tmp_path) -> None:
    rng = np.random.default_rng(4)
    np.save(tmp_path / "data.npy", rng.random((3000, 5)) < np.linspace(0.02, 0.15, 5))
    result = run(tmp_path / "data.npy", "--hidden", "0,1", "--prior", "3")
    assert result.exit_code == 0, result.output
    assert "Chosen: 0 hidden spins" in result.output


def test_ctrl_c_says_how_to_go_on(visible, tmp_path) -> None:
    np.save(tmp_path / "data.npy", visible)
    script = (
        "import os, signal, sys\n"
        "import kising.sweep.fold_task as task\n"
        "real, count = task._scores, []\n"
        "def scores(*args):\n"
        "    count.append(1)\n"
        "    if len(count) == 7: os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(*args)\n"
        "task._scores = scores\n"
        "from kising.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    command = ["fit", str(tmp_path / "data.npy"), *OPTIONS]
    stopped = subprocess.run(
        [sys.executable, "-c", script, *command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": PATHS},
        timeout=180,
    )
    assert stopped.returncode == 128 + signal.SIGINT, stopped.stderr
    assert "stopped by SIGINT; to resume: kising fit" in stopped.stderr
    assert not (tmp_path / "data.fit" / "fit.json").exists()
    result = run(tmp_path / "data.npy")
    (finished,) = re.findall(r"(\d+) of 9 runs are finished already", result.stderr)
    assert 0 < int(finished) < 9
    found = rows(tmp_path / "data.fit")
    assert (found["status"] == "done").all()
    assert (tmp_path / "data.fit" / "fit.json").exists()
