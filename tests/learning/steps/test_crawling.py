"""Learning that crawls is ended, and says so; learning that arrives is not."""

from __future__ import annotations

import numpy as np
import pytest
from support.resuming import assert_continues

from kising import draw_couplings, fit, simulate
from kising.learning.scores import nominal_scales
from kising.learning.session import Session
from kising.learning.steps.crawling import STILL, WINDOW, is_out_of_reach, is_still
from kising.options import Learner

NETWORK = draw_couplings(8, 2, seed=3)
RECORDING = simulate(NETWORK, 600, seed=4).visible
#: Steps come down to rounding and no further.
UNREACHABLE = {"tolerance": 1e-300, "bias": False, "seed": 5}


@pytest.mark.parametrize("rate", [0.95, 0.99, 0.999])
def test_a_trend_is_followed_to_where_it_passes_the_tolerance(rate: float) -> None:
    sizes = 1e-2 * rate ** np.arange(2 * WINDOW)
    needed = np.log(1e-4 / sizes[-1]) / np.log(rate)
    assert is_out_of_reach(sizes, 1e-4, int(needed) - 1)
    assert not is_out_of_reach(sizes, 1e-4, int(needed) + 2)


def test_steps_that_do_not_shrink_never_arrive_unless_they_have() -> None:
    sizes = np.full(2 * WINDOW, 1e-3)
    assert is_out_of_reach(sizes, 1e-4, 10**9)
    assert not is_out_of_reach(sizes, 1e-2, 1)


def test_one_small_step_of_a_window_is_what_counts() -> None:
    """Accelerated steps go up and down on their way."""
    sizes = np.full(2 * WINDOW, 1e-2)
    sizes[-5] = 1e-3
    assert not is_out_of_reach(sizes, 1e-4, WINDOW)


def test_every_block_must_be_still() -> None:
    still, moving = np.full(50, 0.9 * STILL), np.full(5, 1.1 * STILL)
    assert is_still([still, still, np.empty(0)])
    assert not is_still([still, moving])


def test_a_fit_that_crawls_ends_and_says_so() -> None:
    found = fit(RECORDING, 2, estimator="bp", max_iterations=2000, **UNREACHABLE)
    assert found.outcome == "stalled"
    assert 2 * WINDOW < found.iterations < 500
    assert found.iterations % WINDOW == 1
    assert "shrinks too slowly to reach it" in found.missing
    # What came of it is what a fit that ends by itself has.
    usual = fit(RECORDING, 2, estimator="bp", bias=False, seed=5)
    assert usual.outcome == "converged"
    assert (
        max(np.abs(x - y).max() for x, y in zip(found.couplings, usual.couplings, strict=True) if x.size)
        < 1e-2
    )


def test_a_fit_at_its_limit_does_not_say_that_it_crawled() -> None:
    found = fit(RECORDING, 2, estimator="bp", max_iterations=20, **UNREACHABLE)
    assert (found.outcome, found.iterations) == ("stalled", 20)
    assert "slowly" not in found.missing


def test_exact_averages_are_given_all_their_iterations() -> None:
    found = fit(RECORDING, 2, estimator="exact", start=NETWORK, max_iterations=5 * WINDOW, **UNREACHABLE)
    assert found.trace["step_J"].iloc[-1] < 1e-12
    assert found.iterations == 5 * WINDOW


@pytest.mark.parametrize("stop", [WINDOW - 1, WINDOW + 5])
def test_a_saved_state_crawls_as_one_that_was_not(stop: int) -> None:
    learner = Learner(estimator="bp", bias=False, tolerance=1e-300, max_iterations=400)
    session = Session.of(RECORDING, 2, learner, seed=1, scales=nominal_scales(8, 2))
    assert_continues(session, stop=stop)
