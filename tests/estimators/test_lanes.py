"""Belief propagation, slices side by side: against its equations in fields, which lose no digits at any strength."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.brute_force import small_network

from kising import draw_couplings, gradient, infer, simulate
from kising.estimators.bp import propagation as bp
from kising.estimators.chunks import Chunk, Estimate, empty_estimate, fields
from kising.estimators.estep import EStep
from kising.kernels.vectors import width_of
from kising.model import Couplings
from kising.options import EStep as EStepOptions
from kising.options import Learner, choices

LANES = width_of("float64")
infer_bp = partial(infer, estimator="bp", correlations="closed")
gradient_bp = partial(gradient, estimator="bp", correlations="closed")

SETTLED = {"tolerance": 1e-24, "max_iterations": 1000}


def field_of(K: np.ndarray, field: np.ndarray) -> np.ndarray:
    """atanh(tanh K tanh field), without loss where either is large."""
    return 0.5 * (np.logaddexp(field + K, -field - K) - np.logaddexp(field - K, K - field))


def plain_messages(couplings: Couplings, chunk: Chunk, iterations: int) -> tuple[np.ndarray, ...]:
    """m, mu, pair beliefs and Bethe log Z of every slice after some undamped iterations, as docs/maths.md has them."""
    K = couplings.K
    m, mu, pair, log_z = [], [], [], []
    for theta, g in zip(chunk.theta, chunk.g, strict=True):
        h = np.tile(theta[:, None], K.shape[1])
        for _ in range(iterations):
            u = field_of(K, h)
            v = field_of(K, g - u.sum(axis=0) - u)
            h = theta[:, None] + v.sum(axis=1, keepdims=True) - v
        u = field_of(K, h)
        c = g - u.sum(axis=0) - u
        v = field_of(K, c)
        m.append(np.tanh(theta + v.sum(axis=1)))
        mu.append(np.tanh(g - u.sum(axis=0)))
        # The joint law of τ_i and σ_a in their cavity fields h and c.
        equal = np.logaddexp(h + c + K, -h - c + K)
        opposite = np.logaddexp(h - c - K, c - h - K)
        pair.append(np.tanh(0.5 * (equal - opposite)))
        # Each sum with its own factors 2cosh of cavity fields: they cancel.
        up = np.logaddexp(h + K, -h - K).sum(axis=0)
        down = np.logaddexp(h - K, K - h).sum(axis=0)
        row_up = np.logaddexp(c + K, -c - K).sum(axis=1)
        row_down = np.logaddexp(c - K, K - c).sum(axis=1)
        log_z.append(
            np.logaddexp(g - up, -down - g).sum()
            - np.logaddexp(theta + row_up, row_down - theta).sum()
            + np.logaddexp(equal, opposite).sum()
        )
    return np.array(m), np.array(mu), np.array(pair), np.array(log_z)


def estimate(couplings: Couplings, chunk: Chunk, correlations: str = "closed", **estep_options) -> Estimate:
    out = empty_estimate(len(chunk.g), *couplings.K.shape, keep_pairs=True)
    learner = Learner(estimator="bp", correlations=correlations, estep=EStepOptions(**estep_options))
    estep = EStep.of(learner, couplings.K.shape[1])
    bp.estimate(couplings, chunk, out, estep=estep, first=0)
    return out


@given(
    seed=st.integers(0, 10**6),
    visible=st.integers(1, 9),
    hidden=st.integers(1, 5),
    strength=st.sampled_from([0.1, 1.0, 3.0, 10.0, 30.0]),
    iterations=st.integers(1, 4),
)
def test_iterations_are_those_of_the_equations_at_any_strength(
    seed: int, visible: int, hidden: int, strength: float, iterations: int
) -> None:
    """Few iterations: beyond BP's instability, where it is chaotic, every error grows with each."""
    couplings, recording = small_network(
        seed, visible=visible, hidden=hidden, strength=strength, length=LANES + 5
    )
    # Stronger bonds than this are taken as this strong.
    couplings = couplings._replace(K=np.clip(couplings.K, -40, 40))
    chunk = fields(couplings, recording, slice(0, len(recording) - 2))
    found = estimate(couplings, chunk, "pair", max_iterations=iterations, damping=0.0, tolerance=1e-300)
    m, mu, pair, log_z = plain_messages(couplings, chunk, iterations)
    size = 1.0 + np.abs(couplings.K).sum() + np.abs(chunk.theta).sum(axis=1) + np.abs(chunk.g).sum(axis=1)
    for ours, theirs in ((found.m, m), (found.mu, mu), (found.pair, pair)):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    assert (np.abs(found.log_z - log_z) < 1e-12 * size).all()


@pytest.mark.parametrize("size", [10.0, 40.0])
def test_rows_and_columns_of_many_strong_bonds(size: float) -> None:
    """Products over a row or a column leave floating point many times over; the sums of fields mostly cancel."""
    couplings = draw_couplings(60, 20, bonds="binary", seed=1)
    couplings = couplings._replace(K=size * np.sign(couplings.K))
    recording = np.where(np.random.default_rng(2).random((20, 60)) < 0.5, -1, 1)
    chunk = fields(couplings, recording, slice(0, 18))
    for iterations in (1, 3):
        found = estimate(couplings, chunk, "pair", max_iterations=iterations, damping=0.0)
        m, mu, pair, log_z = plain_messages(couplings, chunk, iterations)
        for ours, theirs in ((found.m, m), (found.mu, mu), (found.pair, pair)):
            np.testing.assert_allclose(ours, theirs, atol=1e-8)
        np.testing.assert_allclose(found.log_z, log_z, rtol=1e-10)


@pytest.mark.parametrize("correlations", choices("learner.correlations"))
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_powers_of_two_change_nothing(
    correlations: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products that are rescaled after almost every bond, where they need not be."""
    couplings = draw_couplings(12, 5, strength=1.5, seed=3)
    visible = simulate(couplings, 60, seed=4).visible
    chunk = fields(couplings, visible, slice(0, 58))
    plain = estimate(couplings, chunk, correlations, precision=precision)
    monkeypatch.setattr(bp, "LARGEST_EXPONENT", {"float64": 3.0, "float32": 3.0})
    rescaled = estimate(couplings, chunk, correlations, precision=precision)
    accurate = {"rtol": 1e-8, "atol": 1e-8} if precision == "float64" else {"rtol": 1e-2, "atol": 1e-2}
    fine = plain.converged & rescaled.converged
    assert fine.mean() > 0.8
    for name in ("m", "mu", "pair", "log_z"):
        np.testing.assert_allclose(getattr(rescaled, name)[fine], getattr(plain, name)[fine], **accurate)


@pytest.mark.parametrize(
    ("correlations", "damping"), [("closed", "adaptive"), ("iterated", "adaptive"), ("iterated", 0.0)]
)
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_slice_does_not_depend_on_its_neighbours(
    correlations: str, damping: float | str, precision: str
) -> None:
    """Its numbers are the same bits in any order of slices, in any company, and alone. Each is in the sums once."""
    couplings = draw_couplings(12, 6, strength=3.0, seed=6)
    visible = simulate(couplings, 12 * LANES + 9, seed=2).visible
    chunk = fields(couplings, visible, slice(0, len(visible) - 2))
    how = {"correlations": correlations, "damping": damping, "precision": precision}
    whole = estimate(couplings, chunk, **how)
    if damping == 0.0:
        # Slices that settle, that diverge, and that go on to the end: lanes are refilled at very different times.
        assert 0.5 < whole.converged.mean() < 1
        assert np.abs(whole.pair).max() > 1e5
    order = np.random.default_rng(3).permutation(len(chunk.g))
    for chosen in (order, order[: 2 * LANES + 1], order[:7], order[:1], *order[-12:, None]):
        part = estimate(couplings, chunk.take(chosen), **how)
        for name in ("m", "mu", "pair", "log_z", "converged", "iterations", "corrected"):
            np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[chosen])
        size = np.abs(part.pair).sum()
        digits = 1e-13 if precision == "float64" else 1e-5
        np.testing.assert_allclose(part.pair_sum, part.pair.sum(axis=0), rtol=0, atol=digits * size)
        np.testing.assert_allclose(part.pair_abs, size, rtol=digits)


def test_bonds_left_out_are_bonds_that_vanish() -> None:
    couplings = draw_couplings(30, 6, connectivity=0.2, seed=4)
    visible = simulate(couplings, 300, seed=5).visible
    nearly = couplings._replace(K=np.where(couplings.K == 0, 1e-13, couplings.K))
    sparse, dense = (infer_bp(x, visible, **SETTLED) for x in (couplings, nearly))
    settled = sparse.converged & dense.converged
    assert settled.mean() > 0.9
    for name in ("m", "mu", "log_likelihood", "pair"):
        np.testing.assert_allclose(getattr(sparse, name)[settled], getattr(dense, name)[settled], atol=1e-9)


def test_fields_beyond_floating_point_are_certainties() -> None:
    couplings = draw_couplings(8, 3, seed=6)
    couplings = couplings._replace(L=couplings.L.copy())
    # A field of 800 where the first spin and the second agree: e^800 is not a number of floating point.
    couplings.L[0, :2] = 400.0
    visible = simulate(couplings, 200, seed=7).visible
    moments = infer_bp(couplings, visible, **SETTLED)
    together = visible[:-2, 0] == visible[:-2, 1]
    assert 0 < together.mean() < 1
    np.testing.assert_allclose(moments.mu[together, 0], visible[:-2, 0][together], atol=1e-15)
    # In the other slices the field is that of a network without these two.
    couplings.L[0, :2] = 0.0
    np.testing.assert_allclose(
        moments.mu[~together], infer_bp(couplings, visible, **SETTLED).mu[~together], atol=1e-9
    )


@given(
    seed=st.integers(0, 10**6),
    visible=st.integers(1, 9),
    hidden=st.integers(1, 5),
    correlations=st.sampled_from(["closed", "pair", "corrected"]),
)
def test_single_precision_is_double_precision_to_its_own_digits(
    seed: int, visible: int, hidden: int, correlations: str
) -> None:
    couplings, recording = small_network(seed, visible=visible, hidden=hidden, strength=0.5, length=60)
    how = {"correlations": correlations, "tolerance": 1e-12, "max_iterations": 500}
    double = infer_bp(couplings, recording, **how)
    single = infer_bp(couplings, recording, precision="float32", **how)
    settled = double.converged & single.converged
    assert settled.mean() > 0.9
    for name in ("m", "mu", "log_likelihood", "pair"):
        theirs = getattr(double, name)[settled]
        np.testing.assert_allclose(getattr(single, name)[settled], theirs, rtol=1e-4, atol=1e-4)


def test_single_precision_reaches_beyond_its_own_range() -> None:
    couplings = draw_couplings(8, 3, strength=0.5, seed=6)
    couplings = couplings._replace(L=couplings.L.copy())
    # A field of 120 where the first spin and the second agree: beyond float32, well within float64.
    couplings.L[0, :2] = 60.0
    visible = simulate(couplings, 200, seed=7).visible
    double = infer_bp(couplings, visible)
    single = infer_bp(couplings, visible, precision="float32")
    assert 0 < (visible[:-2, 0] == visible[:-2, 1]).mean() < 1
    for name in ("m", "mu", "log_likelihood", "pair"):
        ours, theirs = getattr(single, name), getattr(double, name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
    assert not np.array_equal(single.m, double.m)
    slopes = gradient_bp(couplings, visible, precision="float32")
    mean = visible[2:].T @ single.mu / len(single.mu) - single.pair.mean(axis=0)
    np.testing.assert_allclose(slopes.K, mean, atol=1e-5)


def test_bonds_beyond_single_precision_are_taken_in_double() -> None:
    couplings, recording = small_network(1, visible=6, hidden=3)
    couplings.K[0, 0] = 20.0
    double, single = (infer_bp(couplings, recording, precision=p) for p in ("float64", "float32"))
    for name in ("m", "mu", "log_likelihood", "pair"):
        np.testing.assert_array_equal(getattr(single, name), getattr(double, name))
