"""The time left follows what points cost, not how many runs there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kising.sweep.drive.cost import CostModel
from kising.sweep.drive.counts import Flight
from kising.sweep.drive.forecast import Forecast, work_of
from kising.sweep.execute.protocol import Batch, Need, Started
from kising.sweep.plan import Plan, Run
from kising.sweep.spec import parse_spec

PLAN = Plan.of(
    parse_spec({
        "name": "uneven", "seed": 1, "realizations": 8, "model": {"visible": 20, "hidden": 4},
        "learner": {"estimator": "exact"}, "axes": {"data.length": [1000, 10_000, 100_000]},
    })
)  # fmt: skip
NEED = Need(cpus=1, memory=None, timeout=None)


def flight(number: int, run: Run, since: float) -> Flight:
    batch = Batch(number, (run,), 1, None, None)
    return Flight(batch, NEED, {run.run_id: run}, Started(number, "h", number), since, since)


def simulate(
    plan: Plan, workers: int, factor: float, costs: CostModel
) -> list[tuple[float, float | None, float]]:
    """Run a plan in its order on simulated workers, `factor` times as slow as estimated: every second, the time,
    the forecast and the time that it really takes.
    """
    runs = list(plan.runs())
    forecast = Forecast(work_of(plan, np.ones(plan.n_runs, dtype=bool), costs), costs)
    cost = costs.of_run()
    waiting, busy, unfinished = runs[::-1], {}, len(runs)
    now, told = 0.0, []
    busy = {}
    for number in range(workers):
        busy[number] = flight(number, waiting.pop(), 0.0)
    while unfinished:
        told.append((now, forecast.seconds_left(busy.values(), workers, unfinished, now)))
        now += 1.0
        for number, one in list(busy.items()):
            (run,) = one.batch.runs
            while one.since + factor * cost(run) <= now:
                end = one.since + factor * cost(run)
                forecast.finished(run, factor * cost(run), None)
                unfinished -= 1
                del busy[number]
                if not waiting:
                    break
                run = waiting.pop()
                one = busy[number] = flight(number, run, end)
    return [(when, left, now - when) for when, left in told]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("factor", [0.3, 1.0, 3.0])
def test_the_time_left_is_that_of_the_costs(workers: int, factor: float) -> None:
    # Prices that make the cheapest run a tenth of a second and the dearest ten seconds.
    costs = CostModel()
    scale = 10.0 / costs.seconds(PLAN.points[2])
    costs.prices = {"learn exact random scaled": 2.5e-9 * scale}
    told = simulate(PLAN, workers, factor, costs)
    total = told[0][2]
    assert total > 10
    known = [(left, real) for when, left, real in told if when >= 5]
    assert known
    for left, real in known:
        assert left is not None
        assert left == pytest.approx(real, abs=0.25 * total)
    # Known before anything has run, where the prices are right.
    if factor == 1.0:
        assert told[0][1] == pytest.approx(total, rel=0.25)


def test_kinds_have_ratios_of_their_own() -> None:
    plan = Plan.of(
        parse_spec({
            "name": "kinds", "seed": 1, "realizations": 5, "model": {"visible": 20, "hidden": 4},
            "data": {"length": 10_000}, "axes": {"learner.estimator": ["exact", "bp"]},
        })
    )  # fmt: skip
    costs = CostModel()
    cost = costs.of_run()
    work = work_of(plan, np.ones(plan.n_runs, dtype=bool), costs)
    assert sum(work.values()) == pytest.approx(sum(cost(run) for run in plan.runs()))
    forecast = Forecast(work, costs)
    exact, bp = plan.run(0), plan.run(5)
    forecast.finished(exact, 2 * cost(exact), None)
    assert forecast.seconds_left([], 1, 9, 100.0) == pytest.approx(2 * (4 * cost(exact) + 5 * cost(bp)))
    forecast.finished(bp, 10 * cost(bp), None)
    forecast.finished(plan.run(6), 1e6, ("h", 1))  # compiled: says nothing about the others
    left = 2 * 4 * cost(exact) + 10 * 3 * cost(bp)
    assert forecast.seconds_left([], 1, 7, 100.0) == pytest.approx(left)
    # A run that failed without a time is not waited for.
    forecast.finished(plan.run(1), None, None)
    assert forecast.seconds_left([], 1, 6, 100.0) == pytest.approx(left - 2 * cost(exact))
    assert forecast.seconds_left([], 1, 0, 101.0) == 0.0


def test_the_first_run_of_every_kind_compiles_in_every_process() -> None:
    plan = Plan.of(
        parse_spec({
            "name": "kinds", "seed": 1, "realizations": 5, "model": {"visible": 20, "hidden": 4},
            "data": {"length": 10_000}, "axes": {"learner.estimator": ["exact", "bp"]},
        })
    )  # fmt: skip
    costs = CostModel()
    cost = costs.of_run()
    forecast = Forecast(work_of(plan, np.ones(plan.n_runs, dtype=bool), costs), costs)
    exact, bp = plan.run(0), plan.run(5)
    for number in range(5):
        forecast.finished(plan.run(number), 1e6 if number == 0 else 2 * cost(exact), ("h", 1))
    # The process is warm, but not for bp; and another process is not warm at all.
    forecast.finished(bp, 1e6, ("h", 1))
    forecast.finished(plan.run(6), 1e6, ("h", 2))
    assert forecast.seconds_left([], 1, 3, 100.0) == pytest.approx(2 * 3 * cost(bp))
    forecast.finished(plan.run(7), 5 * cost(bp), ("h", 2))
    assert forecast.seconds_left([], 1, 2, 101.0) == pytest.approx(5 * 2 * cost(bp), rel=1e-9)


def test_a_large_sweep_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    mapping: dict[str, Any] = {
        "name": "large", "seed": 1, "realizations": 2, "model": {"visible": 20, "hidden": 4},
        "axes": {"data.length": {"linspace": [1000, 2000, 101]}},
    }  # fmt: skip
    plan = Plan.of(parse_spec(mapping))
    todo = np.ones(plan.n_runs, dtype=bool)
    todo[:50] = False
    whole = sum(work_of(plan, todo, CostModel()).values())
    monkeypatch.setattr("kising.sweep.drive.forecast.MOST_POINTS", 20)
    assert sum(work_of(plan, todo, CostModel()).values()) == pytest.approx(whole, rel=0.1)
