from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest

from kising import draw_couplings, fit, simulate
from kising.blocks import BLOCKS
from kising.fitting.progress import Lines, Pace, describe, open_display, standing
from kising.learning.trace_columns import TRACE_COLUMNS
from kising.options import Learner


@pytest.fixture(scope="module")
def found():
    return fit(simulate(draw_couplings(4, 1, seed=1), 400, seed=2).visible, 1, seed=3)


def with_trace(state, rows: int, **columns: np.ndarray):
    trace = np.zeros((rows, len(TRACE_COLUMNS)))
    for name, values in columns.items():
        trace[:, TRACE_COLUMNS.index(name)] = values
    return replace(state, trace=trace, outcome="running")


def test_steps_that_shrink_geometrically_tell_when_they_end(found) -> None:
    learner = Learner(tolerance=1e-4, hold=3)
    state = with_trace(found.state, 20, step_J=0.5 ** np.arange(20), step_K=0.1 * 0.5 ** np.arange(20))
    now = standing(state, learner)
    assert now.trend
    assert now.excess == pytest.approx(0.5**19 / 1e-4)
    state = with_trace(found.state, 10, step_J=0.5 ** np.arange(10))
    assert standing(state, learner).iterations_left == pytest.approx(np.log2(0.5**9 / 1e-4) + 3)


def test_without_a_trend_the_limit_counts(found) -> None:
    learner = Learner(max_iterations=100)
    now = standing(with_trace(found.state, 20, step_J=np.ones(20)), learner)
    assert not now.trend
    assert now.iterations_left == 80
    assert "at most 3 min" in describe(now, 180.0)
    growing = with_trace(found.state, 98, step_J=0.99999 ** np.arange(98))
    assert standing(growing, learner).iterations_left == 2


def test_sampled_fits_end_when_their_noise_has_fallen(found) -> None:
    learner = Learner(noise=0.1, hold=3, max_iterations=1000)
    noises = np.full(30, np.nan)
    noises[20:] = 0.6 / np.sqrt(np.arange(1, 11))
    nothing = {f"noise_{name}": np.full(30, np.nan) for name in BLOCKS if name != "J"}
    state = with_trace(found.state, 30, noise_J=noises, **nothing)
    averaging = fit_sampler()._replace(averages=True, iterations=10)
    now = standing(replace(state, sampler=averaging), learner)
    assert now.sampled
    assert now.iterations_left == pytest.approx(36 - 10 + 3)
    assert "Monte-Carlo error 1.9 x noise, log-likelihood 0.00000, about 10 s left" in describe(now, 10.0)
    assert "log-likelihood" not in describe(replace(now, log_likelihood=np.nan), 10.0)


def fit_sampler():
    visible = simulate(draw_couplings(4, 1, seed=1), 100, seed=2).visible
    return fit(visible, 1, seed=3, estimator="gibbs", max_iterations=2).state.sampler


def test_sampling_has_the_limit_of_sampling_also_where_auto_would_enumerate(found) -> None:
    """Missing entries make `auto` sample."""
    state = with_trace(found.state, 20, **{f"noise_{name}": np.full(20, np.nan) for name in BLOCKS})
    assert standing(replace(state, sampler=fit_sampler()), Learner()).iterations_left == 4000 - 20
    assert standing(state, Learner()).iterations_left < 300


def test_the_first_iteration_has_no_part_in_the_pace() -> None:
    times = iter([100.0, 101.0, 102.0, 103.0])
    pace = Pace(lambda: next(times))
    assert [pace.tick() for _ in range(4)] == [None, None, 1.0, 1.0]


def test_lines_are_silent_for_five_seconds_and_then_written_every_ten() -> None:
    now = [0.0]
    stream = io.StringIO()
    with Lines(stream, clock=lambda: now[0]) as display:
        for second in range(0, 40):
            now[0] = float(second)
            display.show("fit", f"at {second}", 0.5)
    assert stream.getvalue().splitlines() == ["fit: at 5", "fit: at 15", "fit: at 25", "fit: at 35"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_bar_that_shows_warnings_at_once() -> None:
    stream = Terminal()
    warnings: list[str] = []
    with open_display(stream, lambda: "".join(warnings)) as display:
        display.show("fit", "iteration 7", 0.5)
        display._bar[0].refresh()
        warnings.append("stopping after this iteration")
        display._bar[0].refresh()
    assert "iteration 7" in stream.getvalue()
    assert "stopping after this iteration" in stream.getvalue()
    assert isinstance(open_display(io.StringIO(), str), Lines)
