from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.brute_force import assert_is_gradient, enumerate_slices, one_input_each, small_network

from kising import Couplings, draw_couplings, gradient, infer, simulate
from kising.options import choices

infer_bp = partial(infer, estimator="bp", correlations="closed")
gradient_bp = partial(gradient, estimator="bp", correlations="closed")

CORRELATIONS = choices("learner.correlations")
SETTLED = {"tolerance": 1e-24, "max_iterations": 2000}


@given(
    seed=st.integers(0, 10**6),
    visible=st.integers(1, 7),
    hidden=st.integers(1, 4),
    strength=st.sampled_from([0.1, 1.0, 3.0, 10.0, 30.0]),
    correlations=st.sampled_from(CORRELATIONS),
)
def test_exact_on_trees_at_any_strength(
    seed: int, visible: int, hidden: int, strength: float, correlations: str
) -> None:
    couplings, _ = small_network(seed, visible=visible, hidden=hidden, strength=strength)
    couplings = one_input_each(couplings, seed)
    recording = simulate(couplings, 12, seed=seed + 1).visible
    moments = infer_bp(couplings, recording, estimator="bp", correlations=correlations)
    truth = enumerate_slices(couplings, recording)
    np.testing.assert_allclose(moments.m, truth.m, atol=1e-9)
    np.testing.assert_allclose(moments.mu, truth.mu, atol=1e-9)
    np.testing.assert_allclose(moments.pair, truth.pair, atol=1e-9)
    np.testing.assert_allclose(moments.log_likelihood, truth.log_likelihood, atol=1e-9)
    assert moments.converged.all()
    assert moments.corrected.sum() == 0


@given(seed=st.integers(0, 10**6), visible=st.integers(2, 7), hidden=st.integers(1, 4))
def test_messages_satisfy_their_equations(seed: int, visible: int, hidden: int) -> None:
    """The fixed point, from the messages' definition: iterate the tanh/atanh form from the marginals' cavity
    values.
    """
    couplings, recording = small_network(seed, visible=visible, hidden=hidden)
    J, K, L, *_ = couplings
    t = np.tanh(K)
    moments = infer_bp(couplings, recording, correlations="pair", **SETTLED)
    for k in np.flatnonzero(moments.converged):
        before, now, after = recording[k : k + 3].astype(float)
        theta, g = J @ now, K.T @ after + L @ before
        # Recover the cavity values from the pair belief p = (t + m μ)/(1 + t m μ) and the marginals: the
        # message field u from τ_i to σ_a solves mu = tanh(atanh(mu_cavity) + u), u = atanh(t m_cavity);
        # iterate the published form to get them.
        m_cavity = np.tile(np.tanh(theta)[:, None], hidden)
        for _ in range(5000):
            u = np.arctanh(t * m_cavity)
            mu_cavity = np.tanh(g - u.sum(axis=0) - u)
            w = np.arctanh(t * mu_cavity)
            new = np.tanh(theta[:, None] + w.sum(axis=1, keepdims=True) - w)
            change = np.abs(new - m_cavity).max()
            m_cavity = 0.5 * (m_cavity + new)
            if change < 1e-13:
                break
        else:
            continue
        np.testing.assert_allclose(moments.mu[k], np.tanh(g - u.sum(axis=0)), atol=1e-8)
        np.testing.assert_allclose(moments.m[k], np.tanh(theta + w.sum(axis=1)), atol=1e-8)
        product = m_cavity * mu_cavity
        np.testing.assert_allclose(moments.pair[k], (t + product) / (1 + t * product), atol=1e-8)


@given(seed=st.integers(0, 10**6), strength=st.sampled_from([0.3, 1.0, 1.5]))
def test_closed_equals_converged_iterated(seed: int, strength: float) -> None:
    couplings, recording = small_network(seed, visible=6, hidden=3, strength=strength)
    closed = infer_bp(couplings, recording, correlations="closed", **SETTLED)
    iterated = infer_bp(couplings, recording, correlations="iterated", **SETTLED)
    both = closed.converged & iterated.converged
    assert both.mean() > 0.5
    np.testing.assert_allclose(closed.pair[both], iterated.pair[both], atol=1e-7)


def test_closed_is_the_response_of_m_to_a_hidden_field() -> None:
    """χ_ib = ∂m_i/∂b_b: shift one hidden spin's field, through L and a visible spin that is always up."""
    rng = np.random.default_rng(3)
    J, K, L, *_ = draw_couplings(6, 3, seed=11)
    recording = np.where(rng.random((5, 6)) < 0.5, -1, 1)
    recording[:, 0] = 1
    moments = infer_bp(Couplings(J, K, L), recording, correlations="closed", **SETTLED)
    step = 1e-5
    for b in range(3):
        shifted = []
        for sign in (1, -1):
            L2 = L.copy()
            L2[b, 0] += sign * step
            shifted.append(infer_bp(Couplings(J, K, L2), recording, correlations="pair", **SETTLED).m)
        response = (shifted[0] - shifted[1]) / (2 * step)
        chi = moments.pair[:, :, b] - moments.m * moments.mu[:, b : b + 1]
        np.testing.assert_allclose(chi, response, atol=1e-8)


@given(seed=st.integers(0, 10**6), strength=st.sampled_from([0.3, 1.0]))
def test_pair_gradient_is_that_of_the_bethe_likelihood(seed: int, strength: float) -> None:
    couplings, recording = small_network(seed, visible=4, hidden=2, strength=strength, length=6)
    slopes = gradient_bp(couplings, recording, estimator="bp", correlations="pair", **SETTLED)
    assert_is_gradient(slopes, couplings, recording, {"estimator": "bp", "correlations": "pair", **SETTLED})


@given(seed=st.integers(0, 10**6), strength=st.sampled_from([0.3, 1.0, 3.0]))
def test_exact_gradient_is_that_of_the_likelihood(seed: int, strength: float) -> None:
    couplings, recording = small_network(seed, visible=4, hidden=2, strength=strength, length=6)
    slopes = gradient(couplings, recording, estimator="exact")
    assert_is_gradient(slopes, couplings, recording, {"estimator": "exact"})


def test_error_falls_with_the_couplings_as_loops_do() -> None:
    """The smallest loop of the replicated graph has four bonds: halving K must cut the error of μ by well
    over 2³.
    """
    errors = []
    for strength in (0.4, 0.2, 0.1):
        couplings, recording = small_network(2, visible=6, hidden=3, strength=strength, length=40)
        exact = infer(couplings, recording, estimator="exact")
        closed = infer_bp(couplings, recording, estimator="bp", **SETTLED)
        errors.append(np.sqrt(np.mean((closed.mu - exact.mu) ** 2)))
    assert errors[0] / errors[1] > 8
    assert errors[1] / errors[2] > 8


def test_closed_beats_pair_at_weak_coupling() -> None:
    couplings, recording = small_network(4, visible=8, hidden=4, strength=0.3, length=60)
    exact = infer(couplings, recording, estimator="exact").pair
    error = {
        way: np.sqrt(np.mean((infer_bp(couplings, recording, correlations=way, **SETTLED).pair - exact) ** 2))
        for way in ("closed", "pair")
    }
    assert error["closed"] < error["pair"] / 5


def test_damping_settles_what_oscillates() -> None:
    couplings = draw_couplings(20, 4, strength=2.0, seed=5)
    recording = simulate(couplings, 2000, seed=6).visible
    settled = {
        damping: infer_bp(couplings, recording, correlations="pair", damping=damping).converged.mean()
        for damping in (0.0, 0.5, None)
    }
    assert settled[0.0] < settled[0.5]
    assert settled[0.0] < settled[None]


def test_damping_does_not_move_the_fixed_point() -> None:
    couplings, recording = small_network(9, visible=6, hidden=3)
    plain, damped = (infer_bp(couplings, recording, damping=d, **SETTLED) for d in (0.0, 0.7))
    both = plain.converged & damped.converged
    assert both.any()
    np.testing.assert_allclose(plain.pair[both], damped.pair[both], atol=1e-9)


def test_unsettled_slices_are_counted() -> None:
    couplings, recording = small_network(1, visible=6, hidden=3, length=50)
    moments = infer_bp(couplings, recording, max_iterations=1, tolerance=1e-30)
    assert not moments.converged.any()
    assert (moments.iterations == 1).all()
    assert gradient_bp(couplings, recording, max_iterations=1, tolerance=1e-30).converged == 0.0


@pytest.mark.parametrize(
    ("way", "cure"), [("closed", "corrected"), ("iterated", "iterated-corrected"), ("closed", "bounded")]
)
def test_correction_replaces_impossible_averages_and_nothing_else(way: str, cure: str) -> None:
    couplings = draw_couplings(20, 10, strength=3.0, seed=5)
    recording = simulate(couplings, 400, seed=6).visible
    raw = infer_bp(couplings, recording, correlations=way)
    cured = infer_bp(couplings, recording, correlations=cure)
    impossible = np.abs(raw.pair) > 1
    assert impossible.any()
    np.testing.assert_array_equal(cured.pair[~impossible], raw.pair[~impossible])
    replacement = raw.m[:, :, None] * raw.mu[:, None, :]
    if cure == "bounded":
        replacement = infer_bp(couplings, recording, correlations="pair").pair
    np.testing.assert_allclose(cured.pair[impossible], replacement[impossible], atol=1e-12)
    np.testing.assert_array_equal(cured.corrected, impossible.sum(axis=(1, 2)))
    share = gradient_bp(couplings, recording, correlations=cure).corrected
    assert share == pytest.approx(impossible.mean())
