from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.brute_force import enumerate_slices, small_network

from kising import draw_couplings, infer, simulate
from kising.errors import InputError
from kising.estimators.exact import enumeration
from kising.estimators.registry import entry


@given(
    seed=st.integers(0, 10**6),
    visible=st.integers(1, 7),
    hidden=st.integers(1, 5),
    strength=st.sampled_from([0.01, 0.3, 1.0, 3.0, 10.0, 300.0]),
)
def test_equals_enumeration(seed: int, visible: int, hidden: int, strength: float) -> None:
    couplings, recording = small_network(seed, visible=visible, hidden=hidden, strength=strength)
    moments = infer(couplings, recording, estimator="exact")
    truth = enumerate_slices(couplings, recording)
    np.testing.assert_allclose(moments.m, truth.m, atol=1e-10)
    np.testing.assert_allclose(moments.mu, truth.mu, atol=1e-10)
    np.testing.assert_allclose(moments.pair, truth.pair, atol=1e-10)
    np.testing.assert_allclose(moments.log_likelihood, truth.log_likelihood, rtol=1e-12, atol=1e-10)
    assert moments.converged.all()


def test_long_gray_walk_keeps_its_digits() -> None:
    # 2^14 multiplications of the odds: their rounding must not add up.
    couplings = draw_couplings(3, 14, strength=2.0, seed=1)
    recording = simulate(couplings, 4, seed=2).visible
    moments = infer(couplings, recording, estimator="exact")
    truth = enumerate_slices(couplings, recording)
    np.testing.assert_allclose(moments.pair, truth.pair, atol=1e-10)
    np.testing.assert_allclose(moments.log_likelihood, truth.log_likelihood, atol=1e-10)


def test_more_visible_spins_than_factors_of_one_product() -> None:
    # At weak fields every factor 1 + e^{-2|f|} is near 2, and 2^1100 is no floating-point number.
    couplings = draw_couplings(1100, 1, strength=0.01, seed=1)
    recording = simulate(couplings, 4, seed=2).visible
    moments = infer(couplings, recording, estimator="exact")
    truth = enumerate_slices(couplings, recording)
    np.testing.assert_allclose(moments.mu, truth.mu, atol=1e-10)
    np.testing.assert_allclose(moments.log_likelihood, truth.log_likelihood, rtol=1e-12)


@pytest.mark.parametrize("strength", [2.0, 8.0, 25.0, 60.0, 150.0])
def test_strong_couplings_of_many_spins_are_taken_side_by_side(
    strength: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights far beyond floating point, also of slices that no state explains; 150: the kernel of strong fields."""
    couplings = draw_couplings(60, 4, seed=5)
    couplings = couplings._replace(K=strength * couplings.K, L=strength * couplings.L)
    recording = np.where(np.random.default_rng(6).random((30, 60)) < 0.5, -1, 1)
    truth = enumerate_slices(couplings, recording)
    taken = []
    monkeypatch.setattr(
        enumeration,
        "_one_at_a_time",
        lambda *given, original=enumeration._one_at_a_time: (taken.append(True), original(*given)),
    )
    moments = infer(couplings, recording, estimator="exact")
    assert bool(taken) == (strength == 150.0)
    for name in ("m", "mu", "pair"):
        np.testing.assert_allclose(getattr(moments, name), getattr(truth, name), atol=1e-9)
    np.testing.assert_allclose(moments.log_likelihood, truth.log_likelihood, rtol=1e-12)


def test_too_many_hidden_spins_are_refused_with_a_way_out() -> None:
    couplings = draw_couplings(2, entry("exact").largest_hidden + 1, seed=0)
    message = (
        r"hidden: 21 is too large for estimator exact.*; allowed: up to 20, or another estimator \(gibbs, bp"
    )
    with pytest.raises(InputError, match=message):
        infer(couplings, np.ones((3, 2)), estimator="exact")
