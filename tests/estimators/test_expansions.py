"""TAP and naive mean field."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.brute_force import assert_is_gradient, small_network

from kising import draw_couplings, gradient, infer, simulate
from kising.estimators import tap
from kising.estimators.chunks import Chunk, Estimate, empty_estimate, fields
from kising.estimators.estep import EStep
from kising.kernels.vectors import width_of
from kising.model import Couplings
from kising.options import Learner

LANES = width_of("float64")
CODE = {"tap": tap.estimate, "mean-field": tap.estimate_mean_field}
SETTLED = {"tolerance": 1e-26, "max_iterations": 5000, "damping": 0.3}


@pytest.mark.parametrize("estimator", ["tap", "mean-field"])
@given(seed=st.integers(0, 10**6))
def test_values_satisfy_their_equations(estimator: str, seed: int) -> None:
    couplings, recording = small_network(seed, visible=5, hidden=3, strength=0.5)
    J, K, L, *_ = couplings
    moments = infer(couplings, recording, estimator=estimator, **SETTLED)
    assert moments.converged.all()
    theta = recording[1:-1] @ J.T
    g = recording[2:] @ K + recording[:-2] @ L.T
    m, mu = moments.m, moments.mu
    second = K**2 if estimator == "tap" else np.zeros_like(K)
    np.testing.assert_allclose(m, np.tanh(theta + mu @ K.T - m * ((1 - mu**2) @ second.T)), atol=1e-10)
    np.testing.assert_allclose(mu, np.tanh(g - m @ K + mu * ((1 - m**2) @ second)), atol=1e-10)
    connected = K * (1 - m[:, :, None] ** 2) * (1 - mu[:, None, :] ** 2) if estimator == "tap" else 0
    np.testing.assert_allclose(moments.pair, m[:, :, None] * mu[:, None, :] + connected, atol=1e-10)


@pytest.mark.parametrize("estimator", ["tap", "mean-field"])
@given(seed=st.integers(0, 10**6))
def test_gradient_is_that_of_its_own_likelihood(estimator: str, seed: int) -> None:
    couplings, recording = small_network(seed, visible=4, hidden=2, strength=0.5, length=6)
    how = {"estimator": estimator, **SETTLED}
    assert_is_gradient(gradient(couplings, recording, **how), couplings, recording, how)


@pytest.mark.parametrize(("estimator", "order"), [("tap", 3), ("mean-field", 2)])
def test_error_order_by_halving_couplings(estimator: str, order: int) -> None:
    """At given fields, TAP keeps all terms up to the second order in K, mean field those of the first."""
    couplings, recording = small_network(3, visible=6, hidden=3, length=200)
    errors = []
    for factor in (0.08, 0.04, 0.02):
        weaker = couplings._replace(K=factor * couplings.K)
        exact = infer(weaker, recording, estimator="exact")
        approximate = infer(weaker, recording, estimator=estimator, **SETTLED)
        errors.append(
            [
                np.sqrt(np.mean((getattr(approximate, x) - getattr(exact, x)) ** 2))
                for x in ("m", "mu", "pair")
            ]
        )
    slopes = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    assert slopes[:, 1] == pytest.approx([order, order], abs=0.3)
    # The pair average is a derivative of the free energy by K: one order less.
    assert slopes[:, 2] == pytest.approx([order - 1, order - 1], abs=0.3)


def estimate(couplings: Couplings, chunk: Chunk, estimator: str) -> Estimate:
    out = empty_estimate(len(chunk.g), *couplings.K.shape, keep_pairs=True)
    estep = EStep.of(Learner(estimator=estimator), couplings.K.shape[1])
    CODE[estimator](couplings, chunk, out, estep=estep, first=0)
    return out


@pytest.mark.parametrize("hidden", [1, 5, 6])
@pytest.mark.parametrize("estimator", ["tap", "mean-field"])
def test_a_slice_does_not_depend_on_its_neighbours(estimator: str, hidden: int) -> None:
    """Its numbers are the same bits in any order of slices, in any company, and alone. Each is in the sums once."""
    couplings = draw_couplings(11, hidden, strength=6.0, connectivity=0.7, seed=6)
    visible = simulate(couplings, 12 * LANES + 9, seed=2).visible
    chunk = fields(couplings, visible, slice(0, len(visible) - 2))
    whole = estimate(couplings, chunk, estimator)
    # Lanes are refilled at very different times.
    assert len(np.unique(whole.iterations)) > 5
    if (estimator, hidden) == ("tap", 5):
        # Here some slices go on to the end.
        assert 0.5 < whole.converged.mean() < 1
    order = np.random.default_rng(3).permutation(len(chunk.g))
    for chosen in (order, order[: 2 * LANES + 1], order[:7], order[:1], *order[-12:, None]):
        part = estimate(couplings, chunk.take(chosen), estimator)
        for name in ("m", "mu", "pair", "log_z", "converged", "iterations"):
            np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[chosen])
        np.testing.assert_allclose(part.pair_sum, part.pair.sum(axis=0), rtol=0, atol=1e-10)
        np.testing.assert_allclose(part.pair_abs, np.abs(part.pair).sum(), rtol=1e-12)
