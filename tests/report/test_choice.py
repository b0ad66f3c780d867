from __future__ import annotations

import pandas as pd

from kising.report.choice import choice_among, chosen_among

COLUMNS = ("held_out", "forecast", "held_out_memoryless", "forecast_memoryless")


def runs(numbers: dict[int, float], prior: str | None = None, **more: object) -> pd.DataFrame:
    rows = [
        {
            "model.hidden": hidden,
            "realization": k,
            "status": "done",
            "outcome": "converged",
            "data.file": "x.npz",
        }
        | {column: score - k / 10 - place for place, column in enumerate(COLUMNS)}
        | {"held_out_visible_only": -9.0, "forecast_visible_only": -9.5}
        | {"learner.prior": prior, "point_id": f"{hidden} {prior}", **more}
        for hidden, score in numbers.items()
        for k in range(3)
    ]
    return pd.DataFrame(rows)


def test_scores_stand_beside_both_baselines() -> None:
    title, head, none, one, two, reason = choice_among(runs({1: -4.0, 2: -3.0}))
    assert "mean ± standard error of 3 folds" in title
    assert head.split()[-7:] == [
        "joint",
        "forecast",
        "memoryless",
        "joint",
        "memoryless",
        "forecast",
        "converged",
    ]
    assert none.split() == ["none", "-9.00000", "±", "0.00000", "-9.50000", "±", "0.00000"]
    means = [-4.1, -5.1, -6.1, -7.1]
    assert one.split() == ["1", *(x for m in means for x in (f"{m:.5f}", "±", "0.05774")), "3/3"]
    assert two.endswith("3/3 <- chosen")
    assert reason.startswith("Chosen: 2 hidden spins")


def test_the_choice_in_a_sentence_where_there_is_one() -> None:
    both = runs({1: -4.0, 2: -3.0})
    *_, reason = choice_among(both)
    assert chosen_among(both) == reason
    assert chosen_among(runs({2: -3.0})) is None
    assert chosen_among(both[both["model.hidden"] == 1]) is None


def test_the_network_without_hidden_spins_is_its_own_baseline() -> None:
    assert [line.split()[0] for line in choice_among(runs({0: -4.0, 2: -3.0}))][2:4] == ["0", "2"]


def test_what_else_varies_is_named() -> None:
    both = pd.concat([runs({1: -4.0, 2: -3.0}, "none"), runs({1: -3.5, 2: -3.2}, "3.0")])
    lines = list(choice_among(both))
    assert lines[3].endswith("3/3, prior 3.0")
    assert lines[4].endswith("3/3, prior none <- chosen")


def test_sweeps_that_compare_nothing_choose_nothing() -> None:
    assert list(choice_among(runs({2: -3.0}))) == []
    drawn = runs({1: -4.0, 2: -3.0})
    drawn["data.file"] = None
    assert list(choice_among(drawn)) == []


def test_where_nothing_can_be_chosen_it_says_why() -> None:
    (line,) = choice_among(runs({1: float("nan"), 2: float("nan")}))
    assert line.startswith(
        "The number of hidden spins cannot be chosen: no number of hidden spins has a finite"
    )
