"""The choice of the number of hidden spins, on numbers that are known."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from kising.errors import InputError
from kising.learning.selection import choose_hidden, selection_spec
from kising.sweep.spec import parse_spec


def rows(scores: dict[int, list[float]], **more: object) -> list[dict[str, object]]:
    return [
        {"model.hidden": hidden, "realization": fold, "held_out": score, **more}
        for hidden, own in scores.items()
        for fold, score in enumerate(own)
    ]


FOLDS = np.array([-3.0, -5.0, -4.0, -2.0])
"""folds differ by more than anything else"""


def test_the_smallest_within_one_paired_standard_error_is_chosen() -> None:
    noise = np.array([0.04, -0.04, 0.04, -0.04])
    # 2 is 0.02 behind with a standard error of 0.04 / sqrt(3) = 0.0231; 1 is 0.03 behind with the same one.
    scores = {0: FOLDS - 1, 1: FOLDS - 0.03 + noise, 2: FOLDS - 0.02 + noise, 4: FOLDS, 8: FOLDS - 0.5}
    choice = choose_hidden(rows({h: list(x) for h, x in scores.items()}))
    assert (choice.hidden, choice.best, choice.folds) == (2, 4, 4)
    chosen = choice.chosen
    assert chosen.behind == pytest.approx(0.02)
    assert chosen.error == pytest.approx(0.04 / math.sqrt(3))
    assert choice.reason.startswith(
        "Chosen: 2 hidden spins, the fewest within one standard error of the best."
    )
    assert "0.0200 ± 0.0231" in choice.reason


def test_the_best_is_chosen_where_nothing_smaller_is_near() -> None:
    choice = choose_hidden(rows({0: list(FOLDS - 1), 1: list(FOLDS), 3: list(FOLDS - 0.1)}))
    assert choice.hidden == choice.best == 1
    assert choice.reason.startswith(
        "Chosen: 1 hidden spin, with the highest held-out log-likelihood (-3.5000"
    )
    assert "No smaller number comes within one standard error: 0 is 1.0000 ± 0.0000 below" in choice.reason


def test_equal_scores_choose_the_smallest() -> None:
    assert choose_hidden(rows({4: list(FOLDS), 0: list(FOLDS), 2: list(FOLDS)})).hidden == 0


def test_data_frames_do_as_well_and_failed_folds_leave_a_number_out() -> None:
    listed = rows({0: list(FOLDS - 1), 1: list(FOLDS - 0.5), 2: list(FOLDS)}, status="done")
    listed[-1] |= {"status": "failed", "held_out": None}
    choice = choose_hidden(pd.DataFrame(listed))
    assert (choice.hidden, choice.left_out) == (1, (2,))
    assert "Left out, because a fold failed or diverged: 2." in choice.reason


def test_of_several_points_with_a_number_the_best_stands_for_it() -> None:
    listed = [
        *rows({0: list(FOLDS - 1)}, point_id="a"),
        *rows({1: list(FOLDS - 2)}, point_id="b"),
        *rows({1: list(FOLDS)}, point_id="c"),
    ]
    choice = choose_hidden(listed)
    assert choice.hidden == 1
    assert choice.chosen.point_id == "c"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "nothing to choose from"),
        (rows({0: [math.nan, -1.0]}), "nothing to choose from"),
        (rows({0: [-1.0]}), "at least two folds"),
        (rows({0: [-1.0, -2.0]}) * 2, "there twice"),
        ([{"model.hidden": 1, "realization": 0}], "no 'held_out'"),
    ],
)
def test_rows_that_cannot_be_chosen_from_are_refused(given: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_hidden(given)


def test_the_sweep_to_choose_from(tmp_path) -> None:
    rng = np.random.default_rng(1)
    np.save(tmp_path / "spikes.npy", np.where(rng.random((60, 3)) < 0.5, -1, 1))
    spec = parse_spec(
        selection_spec(tmp_path / "spikes.npy", [0, 1, 4], seed=2, folds=4, learner={"prior": 3})
    )
    assert (spec.realizations, spec.data.folds, spec.model.visible, spec.learner.prior) == (4, 4, 3, 3.0)
    assert [axis.columns for axis in spec.axes] == [((0, 1, 4),)]
