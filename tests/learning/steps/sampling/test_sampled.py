"""Learning from samples: its slices, its chains and its verdict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kising import draw_couplings, fit, gradient, simulate
from kising.fitting.progress import describe, standing
from kising.learning.scores import nominal_scales
from kising.learning.session import Session
from kising.learning.state import EMState
from kising.learning.steps.sampling import phases
from kising.learning.steps.sampling import sampled as sampled_steps
from kising.learning.steps.sampling.phases import LEAST_APPROACH, MOMENTUM_FROM, NEAR
from kising.learning.steps.sampling.sampled import LEAST_SLICES, slices_used
from kising.options import Learner

NETWORK = draw_couplings(8, 2, seed=3)
RECORDING = simulate(NETWORK, 600, seed=4).visible


def test_long_recordings_are_begun_with_part_of_their_slices() -> None:
    assert slices_used(1_000_000, 0) == 125_000
    assert slices_used(1_000_000, MOMENTUM_FROM - 1) == 125_000
    assert slices_used(1_000_000, MOMENTUM_FROM) == 1_000_000
    assert slices_used(20_000, 0) == LEAST_SLICES
    assert slices_used(500, 0) == 500


def test_chains_that_are_not_used_yet_stay_as_they_were() -> None:
    recording = simulate(NETWORK, LEAST_SLICES + 502, seed=4).visible
    scales = nominal_scales(8, 2)
    session = Session.of(recording, 2, Learner(estimator="gibbs", bias=False), seed=5, scales=scales)
    first = session.begin()
    then = session.advance(first)
    before, after = first.sampler.chains, then.sampler.chains
    assert before.shape == after.shape == (LEAST_SLICES + 500, 2)
    assert np.array_equal(before[LEAST_SLICES:], after[LEAST_SLICES:])
    assert not np.array_equal(before[:500], after[:500])


def test_the_verdict_does_not_depend_on_the_budget() -> None:
    how = {"seed": 5, "estimator": "gibbs", "bias": False}
    first = fit(RECORDING, 2, **how)
    assert first.outcome == "converged"
    for budget in (first.iterations, 2 * first.iterations, 5000):
        again = fit(RECORDING, 2, max_iterations=budget, **how)
        assert (again.outcome, again.iterations) == ("converged", first.iterations)
        assert all(np.array_equal(x, y) for x, y in zip(again.couplings, first.couplings, strict=True))
    less = fit(RECORDING, 2, max_iterations=first.iterations - 1, **how)
    assert less.outcome == "stalled"
    assert "Monte-Carlo error" in less.missing or "averaged over" in less.missing
    least = fit(RECORDING, 2, max_iterations=LEAST_APPROACH - 1, **how)
    assert least.outcome == "stalled"
    assert least.missing.startswith(f"J: fewer than {LEAST_APPROACH} iterations; K:")
    assert least.excess == dict.fromkeys("JKL")
    assert first.excess == {}


SHORT = simulate(draw_couplings(6, 3, connectivity=0.3, seed=1), 400, seed=2).visible


@pytest.mark.parametrize("prior", ["none", 3.0, "auto"])
def test_a_recording_that_determines_little_does_not_keep_a_fit_from_converging(prior) -> None:
    found = fit(SHORT, 3, seed=1, estimator="gibbs", bias=False, prior=prior)
    assert found.outcome == "converged"
    assert found.iterations < 3000


def test_a_fit_that_stalled_says_which_block_drifts_and_how_far() -> None:
    """A hidden unit without data to hold it, which is still on its way after 70 iterations."""
    short = fit(SHORT, 3, seed=1, estimator="gibbs", bias=False, prior="none", max_iterations=70)
    assert short.outcome == "stalled"
    name, text = short.missing.split("; ")[0].split(": ")
    assert name in "JKL"
    assert text.startswith("drifts by ")
    assert float(text.split()[2]) > NEAR
    assert short.excess[name] > 1
    assert float(f"{short.excess[name] * NEAR:.2g}") == float(text.split()[2])
    assert f"Missing: {short.missing}"[:80] in short.summary()


def test_slices_that_join_late_have_settled_before_they_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the true couplings, the gradient of the iteration at which they join is as near to the exact one as later."""
    monkeypatch.setattr(sampled_steps, "LEAST_SLICES", 100)
    truth = draw_couplings(40, 8, connectivity=0.2, seed=1)
    visible = simulate(truth, 8000, seed=2).visible
    session = Session.of(
        visible,
        8,
        Learner(estimator="gibbs", start="signs", bias=False, prior="none"),
        seed=3,
        scales=nominal_scales(40, 8),
        truth=truth,
    )
    exact = gradient(truth, visible, estimator="exact").K
    state = replace(session.begin(), couplings=truth)
    assert slices_used(7998, MOMENTUM_FROM - 1) < slices_used(7998, MOMENTUM_FROM) == 7998
    distances = []
    for _ in range(MOMENTUM_FROM + 10):
        state, found = session.step.observe(state, threads=1)
        distances.append(np.sqrt(np.mean((found.K - exact) ** 2)))
        # The couplings stay where they are: only the chains move on.
        state = replace(state, trace=np.vstack([state.trace, np.zeros(state.trace.shape[1])]))
    later = np.mean(distances[MOMENTUM_FROM + 1 :])
    assert distances[MOMENTUM_FROM] < 1.2 * later


#: Iterations of the approach and of the average that is given up, where `there_and_back` is used.
APPROACH, AVERAGE = LEAST_APPROACH, 80


@pytest.fixture
def there_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Approaches end at once, and every average turns out to drift."""
    monkeypatch.setattr(phases, "NEAR", np.inf)
    monkeypatch.setattr(phases, "LEAST_AVERAGE", AVERAGE)
    monkeypatch.setattr(phases, "MOST_BATCHES", AVERAGE // phases.FIRST_BATCH)
    monkeypatch.setattr(phases, "_average_drifts", lambda *_: True)


def states_of(max_iterations: int, **options) -> tuple[Session, list[EMState]]:
    learner = Learner(
        **{"estimator": "gibbs", "bias": False, "noise": 1e-6} | options, max_iterations=max_iterations
    )
    session = Session.of(RECORDING, 2, learner, seed=5, scales=nominal_scales(8, 2))
    return session, list(session.states(session.begin()))


@pytest.mark.usefixtures("there_and_back")
@pytest.mark.parametrize("after", [2, 3, 20])
def test_a_fit_that_went_back_to_full_steps_says_so_and_averages_what_there_is(after: int) -> None:
    session, states = states_of(APPROACH + AVERAGE + after)
    last = states[-1]
    assert [x.sampler.averages for x in (states[APPROACH - 1], states[-after - 2], last)] == [
        True,
        True,
        False,
    ]
    found = session.result(last)
    text = f"back to full steps only {'1 iteration' if after == 2 else f'{after - 1} iterations'} ago"
    assert found.missing.startswith(f"J: {text}; K:")
    if after < 5:
        mean = np.mean([x.couplings.J for x in states[-after:-1]], axis=0)
        np.testing.assert_allclose(found.couplings.J, mean, atol=1e-12)
    assert np.array_equal(found.couplings.J, last.couplings.J) == (after == 2)


def test_a_fit_that_has_just_begun_is_where_its_last_step_led() -> None:
    session, states = states_of(3)
    assert session.result(states[-1]).couplings.J.tolist() == states[-1].couplings.J.tolist()


@pytest.mark.usefixtures("there_and_back")
def test_what_is_shown_of_a_fit_that_went_back_is_how_it_stands() -> None:
    session, states = states_of(2 * (APPROACH + AVERAGE) - 20)
    learner, back = session.learner, APPROACH + AVERAGE
    averaged, again, second = states[back - 2], states[back + 9], states[-2]
    assert standing(averaged, learner).trend
    now = standing(again, learner)
    assert (np.isnan(now.excess), now.trend) == (True, False)
    assert "Monte-Carlo error" not in describe(now, None)
    assert np.isnan(standing(states[back + APPROACH + 5], learner).excess)
    now = standing(second, learner)
    allowed = 10**7
    free = standing(second, learner.model_copy(update={"max_iterations": allowed}))
    assert now.excess == pytest.approx(np.max(session.step.noise(states[-3])) / learner.noise)
    assert free.iterations_left == pytest.approx(
        min(second.sampler.iterations * (now.excess**2 - 1) + learner.hold, allowed - second.iteration)
    )
