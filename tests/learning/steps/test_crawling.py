"""Learning that crawls is ended, and says so; learning that arrives is not."""

from __future__ import annotations

import numpy as np
import pytest
from support.resuming import assert_continues

from kising import draw_couplings, fit, simulate
from kising.errors import InputError
from kising.learning.checkpoint import load, save
from kising.learning.layout import flatten
from kising.learning.scores import nominal_scales
from kising.learning.session import Session
from kising.learning.steps.crawling import EVERY, STILL, WINDOWS, Window, is_out_of_reach, is_still
from kising.options import Learner

NETWORK = draw_couplings(8, 2, seed=3)
RECORDING = simulate(NETWORK, 600, seed=4).visible
#: Steps come down to rounding and no further.
UNREACHABLE = {"tolerance": 1e-300, "bias": False, "seed": 5}


windows = pytest.mark.parametrize("window", WINDOWS)


@windows
@pytest.mark.parametrize("rate", [0.95, 0.99, 0.999])
def test_a_trend_is_followed_to_where_it_passes_the_tolerance(rate: float, window: Window) -> None:
    sizes = 1e-1 * rate ** np.arange(2 * window.length)
    needed = np.log(1e-4 / sizes[-1]) / np.log(rate)
    assert is_out_of_reach(sizes, 1e-4, int(needed) - 1, window)
    assert not is_out_of_reach(sizes, 1e-4, int(needed) + 2, window)


@windows
def test_steps_that_do_not_shrink_never_arrive_unless_they_have(window: Window) -> None:
    sizes = np.full(2 * window.length, 2e-3)
    assert is_out_of_reach(sizes, 1e-4, 10**9, window)
    assert not is_out_of_reach(sizes, 1e-2, 1, window)


@windows
def test_one_small_step_of_a_window_is_what_counts(window: Window) -> None:
    """Accelerated steps go up and down on their way."""
    sizes = np.full(2 * window.length, 1e-1)
    sizes[-5] = 1e-2
    assert not is_out_of_reach(sizes, 1e-4, 2 * window.length, window)


def test_steps_that_are_nearly_there_are_watched_for_longer() -> None:
    short, long = WINDOWS
    assert short.length < long.length
    for size, ends_soon in [(5e-4, False), (5e-3, True)]:
        sizes = np.full(2 * long.length, size)
        assert is_out_of_reach(sizes, 1e-4, 100, short) == ends_soon
        assert is_out_of_reach(sizes, 1e-4, 100, long)


@windows
def test_couplings_are_found_again_where_a_window_began(window: Window) -> None:
    learner = Learner(estimator="bp", bias=False, tolerance=1e-300, max_iterations=70)
    session = Session.of(RECORDING, 2, learner, seed=1, scales=nominal_scales(8, 2))
    states = [session.begin(), *session.states(session.begin())]
    for now in range(window.length, len(states) - 1, EVERY):
        mark = states[now].history.marks[-(window.length // EVERY)]
        then = flatten(states[now - window.length].couplings, session.problem.scales)
        np.testing.assert_array_equal(mark, then)


def test_every_block_must_be_still() -> None:
    still, moving = np.full(50, 9 * STILL), np.full(5, 11 * STILL)
    assert is_still([still, still, np.empty(0)], 10)
    assert not is_still([still, moving], 10)
    assert is_still([still, moving], 20)


def test_a_fit_that_crawls_ends_and_says_so() -> None:
    found = fit(RECORDING, 2, estimator="bp", max_iterations=2000, **UNREACHABLE)
    assert found.outcome == "stalled"
    assert 2 * WINDOWS[0].length < found.iterations < 200
    assert found.iterations % EVERY == 1
    assert "shrinks too slowly to reach it" in found.missing
    # More iterations would not help, and the advice does not ask for them.
    assert "fit again with estimator=auto; more iterations would not help" in found.summary()
    # What came of it is what a fit that ends by itself has.
    usual = fit(RECORDING, 2, estimator="bp", bias=False, seed=5)
    assert usual.outcome == "converged"
    assert (
        max(np.abs(x - y).max() for x, y in zip(found.couplings, usual.couplings, strict=True) if x.size)
        < 1e-2
    )


def test_the_state_of_a_fit_that_crawled_is_one_that_has_ended() -> None:
    """Standard errors and figures may be interrupted, and are made again from the saved state."""
    how = {"estimator": "bp", "max_iterations": 2000, **UNREACHABLE}
    found = fit(RECORDING, 2, **how)
    assert fit(RECORDING, 2, state=found.state, **how) == found
    assert fit(RECORDING, 2, state=load(save(found.state)), errors=True, **how).outcome == "stalled"
    # With another limit or tolerance it would not have ended there.
    with pytest.raises(InputError, match="state: it stalled and cannot be continued"):
        fit(RECORDING, 2, state=found.state, **how | {"tolerance": 1e-4})


def test_rounds_that_crawled_have_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kising.learning.effort.LEAST_PART", 2000)
    how = {"estimator": "bp", "max_iterations": 2000, **UNREACHABLE}
    long = simulate(NETWORK, 4500, seed=4).visible
    found = fit(long, 2, **how)
    assert found.state.rounds is not None
    assert (found.outcome, found.iterations < 500) == ("stalled", True)
    assert fit(long, 2, state=found.state, **how) == found


def test_a_fit_at_its_limit_does_not_say_that_it_crawled() -> None:
    found = fit(RECORDING, 2, estimator="bp", max_iterations=20, **UNREACHABLE)
    assert (found.outcome, found.iterations) == ("stalled", 20)
    assert "slowly" not in found.missing
    assert "fit again with max_iterations=40" in found.summary()
    last = found.trace.iloc[-1]
    assert found.excess == {name: last[f"step_{name}"] / UNREACHABLE["tolerance"] for name in "JKL"}
    assert found.excess["J"] > 1


def test_exact_averages_are_given_all_their_iterations() -> None:
    found = fit(RECORDING, 2, estimator="exact", start=NETWORK, max_iterations=150, **UNREACHABLE)
    assert found.trace["step_J"].iloc[-1] < 1e-12
    assert found.iterations == 150


@pytest.mark.parametrize("stop", [EVERY - 1, 2 * EVERY, WINDOWS[1].length + 3])
def test_a_saved_state_crawls_as_one_that_was_not(stop: int) -> None:
    learner = Learner(estimator="bp", bias=False, tolerance=1e-300, max_iterations=400)
    session = Session.of(RECORDING, 2, learner, seed=1, scales=nominal_scales(8, 2))
    assert_continues(session, stop=stop)
