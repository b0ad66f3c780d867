from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.brute_force import enumerate_slices, small_network

from kising import draw_couplings, fit, infer, simulate
from kising.errors import InputError
from kising.fitting.record import record
from kising.learning.fit import Fit
from kising.recordings import as_segments


def fitted(
    estimator: str = "exact", *, visible: int = 4, hidden: int = 3, length: int = 300, **options
) -> Fit:
    _, recording = small_network(7, visible=visible, hidden=hidden, length=length)
    return fit(recording, hidden, estimator=estimator, seed=1, **{"max_iterations": 5, **options})


@pytest.mark.parametrize("estimator", ["exact", "bp", "gibbs", "tap"])
def test_held_out_scores_and_states_are_exact_for_every_estimator(estimator: str) -> None:
    found = fitted(estimator)
    _, other = small_network(11, length=40)
    averages = enumerate_slices(found.couplings, other)
    assert found.log_likelihood(other) == pytest.approx(averages.log_likelihood.mean(), rel=1e-12)
    states = found.hidden_states(other)
    np.testing.assert_allclose(states, averages.mu, atol=1e-10)
    assert states.shape == (38, 3)
    assert np.abs(states).max() <= 1


@pytest.mark.parametrize("estimator", ["exact", "bp", "gibbs"])
def test_the_training_data_score_as_if_they_were_held_out(estimator: str) -> None:
    _, recording = small_network(7, length=300)
    found = fit(recording, 3, estimator=estimator, seed=1, max_iterations=5)
    assert found.log_likelihood() == found.log_likelihood(recording) == found.training_log_likelihood
    assert found.log_likelihood(recording, threads=2) == found.log_likelihood()


def test_with_many_hidden_spins_a_fit_is_scored_by_its_own_estimator() -> None:
    _, recording = small_network(7, visible=5, hidden=13, length=60)
    sampled = fit(recording, 13, seed=1, max_iterations=4)
    assert sampled.estimator == "gibbs"
    exact = infer(sampled.couplings, recording, estimator="exact")
    assert sampled.log_likelihood() == pytest.approx(exact.log_likelihood.mean(), abs=0.01)
    assert sampled.log_likelihood() == sampled.log_likelihood(recording)
    np.testing.assert_allclose(sampled.hidden_states(recording), exact.mu, atol=0.15)
    assert np.abs(sampled.hidden_states(recording) - exact.mu).mean() < 0.02
    bethe = fit(recording, 13, estimator="bp", seed=1, max_iterations=4)
    same = infer(bethe.couplings, recording, estimator="bp")
    assert bethe.log_likelihood() == pytest.approx(same.log_likelihood.mean(), rel=1e-12)
    np.testing.assert_array_equal(bethe.hidden_states(recording), same.mu)


def test_hidden_states_are_aligned_in_time() -> None:
    """Row k is time step k+1: of a simulation, the true states there are the nearest."""
    truth = draw_couplings(30, 2, strength=2.0, seed=1)
    recording = simulate(truth, 400, seed=2)
    found = replace(fitted(visible=30, hidden=2, max_iterations=1), couplings=truth)
    states = found.hidden_states(recording.visible)
    overlaps = [np.mean(np.sign(states) * recording.hidden[k : k + 398]) for k in range(3)]
    assert overlaps[1] > 0.9
    assert max(overlaps[0], overlaps[2]) < 0.5


def test_forecasts_of_a_fit_and_their_score() -> None:
    found = fitted()
    _, other = small_network(11, length=40)
    forecast = found.forecast(other)
    assert forecast.shape == (38, 4)
    happened = np.where(other[2:] > 0, forecast, 1 - forecast)
    assert found.forecast_log_likelihood(other) == pytest.approx(
        np.log(happened).sum(axis=1).mean(), rel=1e-9
    )
    # The joint law knows how spins go together, and the product of its marginals does not.
    simulated = found.simulate(5000, seed=3).visible
    assert found.forecast_log_likelihood(simulated) < found.log_likelihood(simulated)


def test_a_fit_simulates_its_couplings() -> None:
    found = fitted()
    assert found.simulate(50, seed=3) == simulate(found.couplings, 50, seed=3)


@pytest.mark.parametrize("use", ["log_likelihood", "forecast", "forecast_log_likelihood", "hidden_states"])
def test_other_recordings_are_checked(use: str) -> None:
    method = getattr(fitted(), use)
    with pytest.raises(InputError, match="the recording has 5 spins; expected 4"):
        method(np.ones((10, 5)))
    with pytest.raises(InputError, match="no segment has 3 steps in a row"):
        method(np.ones((2, 4)))
    with pytest.raises(InputError, match="step 0, spin 0 is 2: spins are ±1 or 0/1"):
        method(np.full((10, 4), 2))


@pytest.mark.filterwarnings("ignore::kising.errors.RecordingWarning")
@pytest.mark.parametrize(
    ("visible", "hidden", "share", "kind"),
    [
        (6, 2, 0.0, "exact"),
        (6, 2, 0.1, "exact"),
        (30, 2, 0.6, "annealed sampling"),
        (5, 13, 0.0, "importance sampling"),
        (5, 13, 0.1, "annealed sampling"),
    ],
)
def test_a_fit_says_what_its_likelihood_is(visible: int, hidden: int, share: float, kind: str) -> None:
    """What decides is how many spins are unknown at a time, missing ones and hidden ones."""
    _, recording = small_network(7, visible=visible, hidden=2, length=60)
    gaps = np.where(np.random.default_rng(1).random(recording.shape) < share, np.nan, recording)
    found = fit(gaps, hidden, estimator="gibbs", seed=1, max_iterations=2, threads=1)
    assert found.likelihood == kind
    assert f" of the training data ({kind})" in found.summary()
    assert record(found, as_segments(gaps), None, Path("x.csv"), "").likelihood == kind
