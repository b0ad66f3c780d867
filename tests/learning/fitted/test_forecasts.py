from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.brute_force import small_network

from kising import Couplings, draw_couplings, simulate
from kising.estimators import chunks
from kising.learning.fitted import forecasts as module
from kising.learning.fitted.forecasts import forecast_log_likelihood, forecasts

SEED = 1


def by_direct_sum(couplings: Couplings, visible: np.ndarray) -> np.ndarray:
    """P(s_i(t+1) = +1) as a sum over hidden states, each with its prior probability."""
    rows = []
    states = np.array(list(itertools.product([-1.0, 1.0], repeat=couplings.K.shape[1])))
    for before, now in itertools.pairwise(visible[:-1]):
        b = couplings.L @ before
        prior = np.prod(1 / (1 + np.exp(-2 * states * b)), axis=1)
        f = couplings.J @ now + states @ couplings.K.T
        rows.append(prior @ (1 / (1 + np.exp(-2 * f))))
    return np.array(rows)


@given(st.integers(0, 1000), st.integers(1, 5), st.integers(1, 6), st.floats(0.1, 3.0))
def test_forecasts_are_sums_over_hidden_states(seed: int, visible: int, hidden: int, strength: float) -> None:
    couplings, recording = small_network(seed, visible=visible, hidden=hidden, strength=strength, length=9)
    up, down = forecasts(couplings, recording, seed=SEED)
    expected = by_direct_sum(couplings, recording)
    np.testing.assert_allclose(up, expected, rtol=1e-10)
    np.testing.assert_allclose(down, 1 - expected, atol=1e-12)


def test_the_largest_sums_agree_too() -> None:
    couplings, recording = small_network(3, visible=3, hidden=12, length=6)
    found = forecasts(couplings, recording, seed=SEED)
    np.testing.assert_allclose(found.up, by_direct_sum(couplings, recording), rtol=1e-10)


@pytest.mark.parametrize("hidden", [13, 16, 17])
@pytest.mark.parametrize("strength", [1.0, 4.0])
def test_draws_come_within_their_error_of_the_sum(hidden: int, strength: float) -> None:
    couplings = draw_couplings(4, hidden, strength=strength, seed=2)
    recording = simulate(couplings, 70, seed=3).visible
    found = forecasts(couplings, recording, seed=SEED)
    # The sum over the first slices, and over those on either side of a border between pieces.
    for part in (slice(0, 3), slice(63, 66)):
        error = found.up[part] - by_direct_sum(couplings, recording[part.start : part.stop + 2])
        assert np.abs(error).max() < 0.01
        assert np.sqrt(np.mean(error**2)) < 0.004
    np.testing.assert_allclose(found.up + found.down, 1.0, rtol=1e-12)
    assert forecasts(couplings, recording, seed=SEED) == found
    assert forecasts(couplings, recording, seed=2) != found


def test_antithetic_draws_halve_the_error_of_independent_ones_at_least() -> None:
    couplings = draw_couplings(20, 13, seed=2)
    recording = simulate(couplings, 7, seed=3).visible
    error = forecasts(couplings, recording, seed=SEED).up - by_direct_sum(couplings, recording)
    up = by_direct_sum(couplings, recording)
    # Between ±1 with this mean, single draws could be as noisy as a coin; those of x are monotone in σ.
    assert np.sqrt(np.mean(error**2)) < 0.5 * np.sqrt(np.mean(up * (1 - up)) / module.DRAWS)


@given(st.integers(0, 1000), st.sampled_from([1, 4, 14]))
def test_without_hidden_effects_a_forecast_is_the_logistic_of_the_field(seed: int, hidden: int) -> None:
    couplings, recording = small_network(seed, hidden=hidden, length=6)
    couplings = couplings._replace(K=np.zeros_like(couplings.K))
    found = forecasts(couplings, recording, seed=SEED)
    logistic = 1 / (1 + np.exp(-2 * recording[1:-1] @ couplings.J.T))
    np.testing.assert_allclose(found.up, logistic, rtol=1e-12)


def test_without_hidden_spins_too() -> None:
    couplings, recording = small_network(1, hidden=1)
    none = Couplings(couplings.J, couplings.K[:, :0], couplings.L[:0])
    found = forecasts(none, recording, seed=SEED)
    np.testing.assert_allclose(found.up, 1 / (1 + np.exp(-2 * recording[1:-1] @ couplings.J.T)), rtol=1e-12)


@pytest.mark.parametrize("hidden", [2, 14])
def test_enormous_couplings_forecast_certainties(hidden: int) -> None:
    couplings, recording = small_network(1, hidden=hidden, length=30)
    large = couplings._replace(J=1e90 * couplings.J, L=1e90 * couplings.L)
    found = forecasts(large, recording, seed=SEED)
    np.testing.assert_array_equal(found.up > 0.5, recording[1:-1] @ couplings.J.T > 0)
    assert np.isfinite(forecast_log_likelihood(found, recording)).all()
    both = forecasts(Couplings(*(1e90 * x for x in couplings)), recording, seed=SEED)
    assert np.isfinite(np.array(both)).all()


@pytest.mark.parametrize("hidden", [3, 13])
def test_threads_chunks_and_length_change_nothing(hidden: int, monkeypatch: pytest.MonkeyPatch) -> None:
    couplings = draw_couplings(3, hidden, seed=1)
    recording = simulate(couplings, 150, seed=2).visible
    whole = forecasts(couplings, recording, seed=SEED)
    monkeypatch.setattr(chunks, "CHUNK_SLICES", 32)
    for threads in (1, 3):
        assert forecasts(couplings, recording, seed=SEED, threads=threads) == whole
    assert np.array_equal(forecasts(couplings, recording[:100], seed=SEED).up, whole.up[:98])


def test_every_slice_has_draws_of_its_own() -> None:
    couplings = draw_couplings(3, 13, seed=1)
    found = forecasts(couplings, np.ones((150, 3), np.int8), seed=SEED)
    assert len(np.unique(found.up[:, 0])) > 140


def test_the_score_is_the_log_probability_of_what_happened() -> None:
    couplings, recording = small_network(4)
    up = by_direct_sum(couplings, recording)
    likely = np.where(recording[2:] == 1, up, 1 - up)
    scores = forecast_log_likelihood(forecasts(couplings, recording, seed=SEED), recording)
    np.testing.assert_allclose(scores, np.log(likely).sum(axis=1), rtol=1e-12)


def test_no_forecast_beats_the_true_network_s_on_average() -> None:
    couplings = draw_couplings(6, 3, seed=1)
    recording = simulate(couplings, 20_000, seed=2).visible
    true, wrong = (
        forecast_log_likelihood(forecasts(network, recording, seed=SEED), recording).mean()
        for network in (couplings, couplings._replace(L=-couplings.L))
    )
    assert true > wrong + 0.01
    # Forecasts are calibrated: among those near p, a share p comes true.
    up, happened = forecasts(couplings, recording, seed=SEED).up, recording[2:] > 0
    for low in np.arange(0.1, 0.9, 0.2):
        near = (up >= low) & (up < low + 0.2)
        assert abs(happened[near].mean() - up[near].mean()) < 5 / np.sqrt(near.sum())
