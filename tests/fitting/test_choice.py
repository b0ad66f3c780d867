from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from kising import draw_couplings, fit, simulate
from kising.cli import main
from kising.errors import InputError
from kising.fitting.choice import Candidate, Score, Scores, choose_hidden, decide, independent_score
from kising.fitting.folds import cut, without_silent
from kising.recordings import as_segments


@pytest.fixture(scope="module")
def visible() -> np.ndarray:
    return simulate(draw_couplings(6, 1, seed=1), 1500, seed=2).visible


def numbered(lengths: list[int]):
    """Trials whose first spins spell the number of the step, in binary."""
    total = sum(lengths)
    bits = (np.arange(total)[:, None] >> np.arange(12)) & 1
    return as_segments(np.split(bits, np.cumsum(lengths)[:-1]))


def steps(segments) -> list[int]:
    return [int(n) for x in segments.spins for n in ((x > 0) @ (1 << np.arange(x.shape[1])))]


@pytest.mark.parametrize("lengths", [[100], [40, 60], [30, 20, 10, 15, 50, 25, 7]])
def test_every_step_is_held_out_once_and_no_slice_crosses_a_border(lengths) -> None:
    segments = numbered(lengths)
    folds = cut(segments, 5)
    assert sorted(n for fold in folds for n in steps(fold.held_out)) == list(range(sum(lengths)))
    for fold in folds:
        assert not set(steps(fold.held_out)) & set(steps(fold.training))
        for part in fold:
            for x in part.spins:
                numbers = steps(as_segments([x, x]))[: len(x)]
                assert numbers == list(range(numbers[0], numbers[0] + len(x)))


def test_trials_stay_whole_where_there_are_enough() -> None:
    segments = numbered([30, 20, 10, 15, 50, 25, 7])
    held_out = [fold.held_out.lengths for fold in cut(segments, 5)]
    assert sorted(n for lengths in held_out for n in lengths) == sorted(segments.lengths)
    # As even as whole trials allow: the longest trial is a fold by itself.
    assert sorted(map(sum, held_out)) == [25, 25, 27, 30, 50]


def test_covariates_go_with_their_steps(visible) -> None:
    inputs = np.arange(len(visible)) * 1.0
    for fold in cut(as_segments(visible, covariates=inputs), 5):
        for part in fold:
            for x, u in zip(part.spins, part.covariates, strict=True):
                np.testing.assert_array_equal(x, visible[u[:, 0].astype(int)])


def test_a_recording_that_is_too_short_is_refused() -> None:
    with pytest.raises(InputError, match="too short to hold out 5 parts"):
        cut(numbered([12]), 5)


def test_spins_that_are_silent_in_some_training_data_have_no_part(visible) -> None:
    rare = -np.ones((len(visible), 1), np.int8)
    rare[100:110] = 1  # inside the first block alone
    folds, left_out = without_silent(as_segments(np.hstack([visible, rare])), lambda x: cut(x, 5))
    assert left_out == ("6",)
    assert {fold.training.n_visible for fold in folds} == {6}


def candidates(**joint: list[float]) -> list[Candidate]:
    return [
        Candidate(int(name[1:]), tuple(Score(x, x, converged=True) for x in each))
        for name, each in joint.items()
    ]


def test_the_smallest_within_one_paired_standard_error_is_chosen() -> None:
    base = np.array([-3.0, -9.0, -5.0])
    # Folds differ by much more than numbers do: only paired differences can tell these apart.
    far = candidates(_0=base - 0.2, _1=base, _2=base + np.array([0.1, 0.11, 0.09]))
    assert decide(far, [0, 1, 2])[0] == 2
    near = candidates(_0=base - 0.2, _1=base, _2=base + np.array([0.1, -0.08, 0.01]))
    number, why = decide(near, [0, 1, 2])
    assert number == 1
    assert "within one standard error" in why
    assert decide(near, [0, 2])[0] == 2
    assert decide(candidates(_0=base, _1=base - 1), [0, 1])[0] == 0


def test_what_diverged_is_not_chosen() -> None:
    able = candidates(_0=[-3.0, -3.1], _1=[np.nan, -1.0])
    assert decide(able, [0, 1])[0] == 0
    assert decide(able, [1]) == (1, "Nh = 1: learning diverged in some fold of every number.")


def test_independent_spins_score_by_their_rates() -> None:
    rng = np.random.default_rng(1)
    fold = cut(as_segments(rng.random((20_000, 3)) < [0.1, 0.5, 0.8]), 5)[0]
    p = np.array([0.1, 0.5, 0.8])
    entropy = -float(np.sum(p * np.log(p) + (1 - p) * np.log(1 - p)))
    assert independent_score(fold) == pytest.approx(-entropy, abs=0.05)


def test_scores_are_those_of_fits_and_are_not_computed_twice(visible, tmp_path) -> None:
    folds = cut(as_segments(visible), 3)
    made = []

    def learn(segments, hidden: int, title: str):
        made.append(title)
        return fit(segments, hidden, seed=3)

    def choose(identity: str):
        scores = Scores(tmp_path / "choice.json", identity, pytest.fail)
        return choose_hidden([1, 2], folds, learn, scores, threads=1)

    choice = choose("mine")
    assert len(made) == 9  # the baseline 0 too
    assert [one.hidden for one in choice.candidates] == [0, 1, 2]
    assert choice.hidden == 1
    expected = fit(folds[1].training, 1, seed=3).log_likelihood(folds[1].held_out)
    assert choice.candidates[1].joint[1] == expected
    again = choose("mine")
    assert len(made) == 9
    assert list(again.lines()) == list(choice.lines())
    (tmp_path / "choice.json").write_text(
        (tmp_path / "choice.json").read_text().replace("hidden 2 fold 2", "hidden 9 fold 2")
    )
    choose("mine")
    assert made[9:] == ["fit 1 of 1: Nh = 2, fold 3 of 3"]
    choose("other")
    assert len(made) == 19


@pytest.mark.parametrize("text", ["", "[]", "{", '{"identity": "mine", "scores": 3}', "[" * 100_000])
def test_damaged_scores_are_computed_anew(text: str, tmp_path) -> None:
    lines: list[str] = []
    (tmp_path / "choice.json").write_text(text)
    assert Scores(tmp_path / "choice.json", "mine", lines.append).get("hidden 0 fold 0") is None
    assert lines == ["choice.json cannot be read: scores are computed anew"]


def test_the_command_chooses_and_tells_why(visible, tmp_path) -> None:
    np.save(tmp_path / "data.npy", visible)
    command = ["fit", str(tmp_path / "data.npy"), "--hidden", "0,1,2", "--folds", "3", "--seed", "3"]
    result = CliRunner().invoke(main, [*command, "--max-iterations", "60"])
    assert "<- chosen" in result.output
    assert "Chosen: 1 hidden spin" in result.output
    about = json.loads((tmp_path / "data.fit" / "fit.json").read_text())
    assert about["hidden"] == about["choice"]["hidden"] == 1
    assert [len(one["joint"]) for one in about["choice"]["scores"]] == [3, 3, 3]
    assert "Held-out scores" in (tmp_path / "data.fit" / "index.html").read_text()
    with np.load(tmp_path / "data.fit" / "couplings.npz") as found:
        np.testing.assert_array_equal(found["J"], fit(visible, 1, seed=3, max_iterations=60).couplings.J)


def test_independent_spikes_need_no_hidden_spin(tmp_path) -> None:
    rng = np.random.default_rng(4)
    np.save(tmp_path / "data.npy", rng.random((3000, 5)) < np.linspace(0.02, 0.15, 5))
    command = ["fit", str(tmp_path / "data.npy"), "--hidden", "0,1", "--folds", "3", "--seed", "3"]
    result = CliRunner().invoke(main, [*command, "--prior", "3", "--max-iterations", "40"])
    assert result.exit_code == 0, result.output
    assert "Chosen: 0 hidden spins" in result.output
