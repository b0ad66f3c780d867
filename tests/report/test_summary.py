from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from support.rows import make_runs

from kising.report.figures.views import groups
from kising.report.summary import core_hours, scaling, summarise, varied


def test_counts_fractions_and_wilson_intervals() -> None:
    rows = [{"point_id": "p", "converged_J": k < 7, "rmse_J": 1.0} for k in range(10)]
    rows += [{"point_id": "p", "status": "failed", "outcome": None, "converged_J": None}] * 2
    (row,) = summarise(make_runs(rows)).to_dict("records")
    assert (row["runs"], row["failed"], row["diverged"]) == (12, 2, 0)
    assert row["converged_J"] == pytest.approx(0.7)
    n, p, z = 10, 0.7, stats.norm.ppf(0.975)
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert (row["converged_J_low"], row["converged_J_high"]) == pytest.approx((centre - half, centre + half))


def test_rmse_spread_leaves_diverged_runs_out_and_counts_them() -> None:
    values = [0.1, 0.2, 0.4]
    rows = [{"point_id": "p", "rmse_K": v} for v in values]
    rows += [{"point_id": "p", "rmse_K": 1e3, "outcome": "diverged", "converged_K": False}]
    (row,) = summarise(make_runs(rows)).to_dict("records")
    assert row["diverged"] == 1
    assert row["converged_K"] == pytest.approx(0.75)
    assert row["rmse_K_mean"] == pytest.approx(np.mean(values))
    assert row["rmse_K_sd"] == pytest.approx(np.std(values, ddof=1))
    assert row["rmse_K_sem"] == pytest.approx(np.std(values, ddof=1) / np.sqrt(3))


def test_what_stalled_runs_lacked_is_summarised_by_block() -> None:
    rows = [{"point_id": "p", "outcome": "stalled", "excess_K": x} for x in (2.0, 6.0)]
    rows += [{"point_id": "p", "outcome": "stalled", "excess_L": 5.0}, {"point_id": "p"}]
    rows += [{"point_id": "p", "outcome": "diverged"}, {"point_id": "p", "status": "failed", "outcome": None}]
    (row,) = summarise(make_runs(rows)).to_dict("records")
    assert (row["runs"], row["failed"], row["diverged"], row["stalled"]) == (6, 1, 1, 3)
    assert (row["excess_K"], row["excess_L"]) == (4.0, 5.0)
    assert np.isnan(row["excess_J"])


def test_rmse_after_pruning_is_summarised_where_there_is_one() -> None:
    rows = [{"point_id": "p", "rmse_pruned_K": v} for v in (0.1, 0.2, 0.4)]
    rows += [{"point_id": "p", "rmse_pruned_K": 1e3, "outcome": "diverged"}]
    (row,) = summarise(make_runs(rows)).to_dict("records")
    assert row["rmse_pruned_K_mean"] == pytest.approx(0.7 / 3)
    assert np.isnan(row["rmse_pruned_J_mean"])


def test_rows_from_before_a_key_was_there_are_of_the_same_sweep() -> None:
    rows = [
        {"point_id": f"{t}", "data.length": t, "realization": r, "rmse_J": t**-0.5, "learner.l1": l1}
        for r in range(2)
        for t, l1 in ((1000, None), (10_000, 0.0))
    ]
    frame = scaling(make_runs(rows))
    assert list(frame["block"]) == ["J", "K", "L"]
    assert frame.loc[0, "slope"] == pytest.approx(-0.5)
    assert frame.loc[0, "learner.l1"] == 0


def test_core_hours_are_cpu_time_or_else_the_duration() -> None:
    times = [(7200.0, 1800.0), (3600.0, None), (3600.0, 3600.0)]
    runs = make_runs([{"point_id": "p", "seconds": long, "cpu_seconds": cpu} for long, cpu in times])
    assert core_hours(runs) == pytest.approx(2.5)


def test_points_keep_the_order_of_the_plan() -> None:
    frame = summarise(make_runs([{"point_id": p} for p in "bbaac"]))
    assert list(frame["point_id"]) == ["b", "a", "c"]


def test_slope_of_a_power_law_is_found_with_its_interval() -> None:
    rng = np.random.default_rng(1)
    rows = [
        {
            "point_id": f"{t}", "data.length": t, "realization": r, "model.visible": 20,
            "rmse_J": a * t**-0.5, "rmse_K": a * t**-0.25, "rmse_L": a * t**-0.5 * np.exp(0.1 * rng.standard_normal()),
        }
        for r, a in enumerate((1.0, 2.0, 3.0))
        for t in (1000, 10_000, 100_000)
    ]  # fmt: skip
    frame = scaling(make_runs(rows)).set_index("block")
    assert frame.loc["J", "slope"] == pytest.approx(-0.5)
    assert frame.loc["K", "slope"] == pytest.approx(-0.25)
    assert frame.loc["J", "slope_high"] - frame.loc["J", "slope_low"] == pytest.approx(0, abs=1e-9)
    logs = np.log([1e3, 1e4, 1e5])
    fits = [
        np.polyfit(logs, np.log([row["rmse_L"] for row in rows if row["realization"] == r]), 1)[0]
        for r in range(3)
    ]
    half = stats.t.ppf(0.975, 2) * np.std(fits, ddof=1) / np.sqrt(3)
    assert frame.loc["L", "slope"] == pytest.approx(np.mean(fits))
    assert frame.loc["L", "slope_low"] == pytest.approx(np.mean(fits) - half)
    assert list(frame[["points", "realizations", "left_out"]].loc["J"]) == [3, 3, 0]


def test_groups_differ_in_length_only_and_nulls_are_values() -> None:
    rows = [
        {"point_id": f"{e}{t}", "learner.estimator": e, "learner.correlations": c, "data.length": t,
         "realization": 0, "rmse_J": 1 / t, "rmse_K": 1.0, "rmse_L": 1.0}
        for e, c in (("exact", None), ("bp", "closed"))
        for t in (10, 100)
    ]  # fmt: skip
    frame = scaling(make_runs(rows))
    assert len(frame) == 6
    assert list(frame[frame["block"] == "J"]["slope"]) == pytest.approx([-1, -1])


def test_failed_diverged_and_unscored_runs_are_left_out_and_counted() -> None:
    rows = [
        {"point_id": f"{t}", "data.length": t, "realization": 0, "rmse_J": t**-0.5} for t in (10, 100, 1000)
    ]
    rows[2] |= {"outcome": "diverged", "rmse_J": 50.0}
    rows.append({"point_id": "10", "data.length": 10, "realization": 1, "status": "failed", "rmse_J": None})
    frame = scaling(make_runs(rows)).set_index("block")
    assert frame.loc["J", "slope"] == pytest.approx(-0.5)
    assert frame.loc["J", "left_out"] == 2
    assert np.isnan(frame.loc["K", "slope"])


def test_one_length_has_no_slope() -> None:
    assert scaling(make_runs([{"point_id": "p", "data.length": 10, "rmse_J": 1.0}])).empty


def test_the_default_limit_on_iterations_is_a_value_of_its_own() -> None:
    rows = [
        {"point_id": f"{t} {limit}", "data.length": t, "realization": r, "learner.max_iterations": limit}
        | {f"rmse_{x}": t**power for x in "JKL"}
        for r in range(2)
        for limit, power in ((None, -0.5), (20, -0.25))
        for t in (1000, 10_000)
    ]
    runs = make_runs(rows)
    frame = scaling(runs)
    found = frame[frame["block"] == "J"]
    slopes = dict(zip(found["learner.max_iterations"].fillna(0), found["slope"], strict=True))
    assert slopes == pytest.approx({0: -0.5, 20: -0.25})
    assert [where for where, _ in groups(runs, "data.length")] == [
        "max iterations = null",
        "max iterations = 20",
    ]
    # The rule for pair averages is null where it has no effect: not a value of its own.
    assert "learner.correlations" not in varied(
        make_runs([{"learner.correlations": c} for c in ("bounded", None)])
    )
