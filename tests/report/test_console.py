"""Tables as text: which are printed, and their contents."""

from __future__ import annotations

import io

import pandas as pd
from rich.console import Console
from support.rows import make_runs

from kising.blocks import REQUIRED
from kising.report.console import MOST_ROWS, show, tables
from kising.report.summary import scaling, summarise


def shown(rows: list[dict]) -> list[list[str]]:
    """The lines of the tables, as words; titles and rules are left out."""
    runs = make_runs(rows)
    text = io.StringIO()
    show(Console(file=text, width=250), summarise(runs), scaling(runs))
    return [line.split() for line in text.getvalue().splitlines() if line.startswith(" ") and "─" not in line]


def learned(**changes: object) -> list[dict]:
    return [
        {"point_id": f"{t}", "data.length": t, "realization": r, "baseline_rmse": 0.5}
        | {f"rmse_{x}": (1 + r) * t**-0.5 for x in REQUIRED}
        | {"hidden_overlap": 0.9}
        | changes
        for t in (100, 10_000)
        for r in range(2)
    ]


def test_learning_has_convergence_errors_and_slopes() -> None:
    lines = [line for line in shown(learned()) if line]
    assert lines[0] == ["length", "runs", "failed", "diverged", "stalled", *REQUIRED]
    assert lines[1] == ["100", "2", "0", "0", "0", *["1.00", "(0.34-1.00)"] * len(REQUIRED)]
    assert lines[3] == ["length", *REQUIRED, "all", "zero"]
    # 0.1 and 0.2: mean 0.15, standard error 0.1/√2/√2.
    assert lines[4] == ["100", *["0.150", "±", "0.050"] * len(REQUIRED), "0.500"]
    assert [line[:2] for line in lines[7:]] == [[x, "-0.500"] for x in REQUIRED]


def test_runs_that_stalled_are_counted_and_say_how_far_they_were_from_convergence() -> None:
    rows = learned()
    rows[0] |= {"outcome": "stalled", "excess_K": 3.0, "excess_L": 12.0}
    rows[1] |= {"outcome": "stalled", "excess_L": 8.0}
    lines = [line for line in shown(rows) if line]
    assert [line[:5] for line in lines[1:3]] == [["100", "2", "0", "0", "2"], ["10000", "2", "0", "0", "0"]]
    assert lines[3:6] == [["length", "K", "L"], ["100", "3.000", "10.000"], ["10000", "-", "-"]]


def test_inference_has_its_averages_and_only_those_that_are_known() -> None:
    rows = [
        {"point_id": f"{c}", "task": "infer", "model.connectivity": c, "hidden_overlap": 0.25, "rmse_pair": None}
        | dict.fromkeys(f"converged_{x}" for x in REQUIRED)
        for c in (0.1, 1.0)
    ]  # fmt: skip
    lines = [line for line in shown(rows) if line]
    assert lines[0] == ["connectivity", "runs", "failed", "hidden", "overlap"]
    assert lines[1:] == [["0.1", "1", "0", "0.250"], ["1", "1", "0", "0.250"]]


def test_runs_that_all_failed_are_counted() -> None:
    nothing = dict.fromkeys(
        (*(f"{what}_{x}" for what in ("rmse", "converged") for x in REQUIRED), "baseline_rmse")
    )
    lines = [
        line for line in shown(learned(status="failed", outcome=None, hidden_overlap=None, **nothing)) if line
    ]
    assert lines[:3] == [
        ["length", "runs", "failed", "diverged", "stalled"],
        ["100", "2", "2", "0", "0"],
        ["10000", "2", "2", "0", "0"],
    ]


def test_a_sweep_of_learning_is_headed_as_such_also_if_all_runs_failed() -> None:
    runs = make_runs(learned(status="failed", outcome=None))
    (title, _), *_ = tables(summarise(runs), scaling(runs))
    assert title.startswith("Fraction of runs that converged")


def test_couplings_of_strength_0_have_no_baseline() -> None:
    rows = [
        row | {"model.strength": g, "point_id": f"{row['point_id']}{g}"}
        for g in (0.0, 1.0)
        for row in learned()
    ]
    errors = [line for line in shown(rows) if line][5:10]
    assert errors[0][-2:] == ["all", "zero"]
    assert [line[-1] for line in errors[1:]] == ["-", "-", "0.500", "0.500"]
    assert list(summarise(make_runs(rows))["baseline_rmse"].isna()) == [True, True, False, False]


def test_long_tables_are_cut() -> None:
    runs = make_runs([{"point_id": str(k), "data.length": k} for k in range(MOST_ROWS + 5)])
    text = io.StringIO()
    show(Console(file=text, width=250), summarise(runs), pd.DataFrame())
    assert "... and 5 more points: summary.parquet has them all." in text.getvalue()
