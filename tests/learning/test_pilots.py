"""Several starts: learning continues from the likeliest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kising import bond_scales, draw_couplings, fit, gradient, simulate
from kising.learning import pilots
from kising.learning.pilots import likeliest_start, pilot
from kising.learning.session import Session
from kising.learning.starts import from_signs, seeds_of
from kising.options import Learner

# The likelihood of this one has maxima that differ by a thousand nats.
TRUTH = draw_couplings(20, 4, strength=2.0, connectivity=0.3, seed=50)
SCALES = bond_scales(20, 4, strength=2.0, connectivity=0.3)
LENGTH = 4_000
VISIBLE = simulate(TRUTH, LENGTH, seed=60).visible


def nats(result) -> float:
    return gradient(result.couplings, VISIBLE, estimator="exact").log_likelihood * (LENGTH - 2)


def session(visible: np.ndarray = VISIBLE, *, seed: int = 0, starts: int = 3, **options) -> Session:
    learner = Learner(**{"estimator": "exact", "start": "signs", "starts": starts} | options)
    return Session.of(visible, 4, learner, seed=seed, scales=SCALES, truth=TRUTH)


@pytest.mark.parametrize("estimator", ["exact", "gibbs"])
def test_learning_goes_on_from_the_likeliest_pilot(estimator: str) -> None:
    # With fewer iterations than a pilot makes, and fewer slices than it sees, a pilot is a session with one start.
    alone = session(starts=1, estimator=estimator, max_iterations=60)
    # The starts of this seed: the first is not the best, and with exact averages the second is far below it.
    found = [pilot(replace(alone, seed=own)) for own in seeds_of(3, 3)]
    assert found[0][1] < max(found, key=lambda one: one[1])[1]
    best = max(found, key=lambda one: one[1])[0]
    assert session(estimator=estimator, seed=3).start == best


def test_several_starts_reach_a_higher_maximum_than_a_bad_one() -> None:
    how = {"estimator": "exact", "start": "signs", "truth": TRUTH, "scales": SCALES, "prior": "none"}
    one, three = (fit(VISIBLE, 4, seed=0, starts=starts, **how) for starts in (1, 3))
    assert nats(three) > nats(one) + 100
    truth = gradient(TRUTH, VISIBLE, estimator="exact").log_likelihood * (LENGTH - 2)
    assert nats(three) > truth


def test_pilots_see_the_beginning_of_the_recording_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = VISIBLE.copy()
    changed[1_002:] *= -1
    monkeypatch.setattr(pilots, "PILOT_SLICES", 1_000)
    one, other = (
        session(visible, seed=1, starts=2, max_iterations=5).start for visible in (VISIBLE, changed)
    )
    assert one == other


def test_pilots_make_fewer_iterations_than_learning_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pilots, "PILOT_ITERATIONS", 4)
    short = [session(seed=1, starts=2, max_iterations=most).start for most in (4, 300)]
    assert short[0] == short[1]
    assert session(seed=1, starts=2, max_iterations=3).start != short[0]


def test_where_all_pilots_diverge_the_first_start_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pilots, "pilot", lambda short: (short.start, -np.inf))
    assert likeliest_start(session(seed=7)) == from_signs(TRUTH, SCALES, 7)


def test_a_run_that_diverges_is_never_the_likeliest() -> None:
    wild = session(starts=1, estimator="bp", step="gradient", rate=1e6)
    assert pilot(wild)[1] == -np.inf


def test_starts_are_apart_and_the_first_is_the_only_one() -> None:
    assert seeds_of(5, 1) == [5]
    assert len({str(own) for own in seeds_of((1, 2), 4)}) == 4


def test_couplings_to_start_from_are_one_start() -> None:
    with pytest.raises(ValueError, match="starts=2: must be 1 where start= gives couplings"):
        fit(VISIBLE, 4, start=TRUTH, starts=2, seed=1)
