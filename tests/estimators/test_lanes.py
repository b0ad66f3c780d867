"""Belief propagation, slices side by side: against the kernel that takes them one at a time."""

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
from kising.options import Learner

LANES = width_of("float64")
infer_bp = partial(infer, estimator="bp", correlations="closed")
gradient_bp = partial(gradient, estimator="bp", correlations="closed")

SETTLED = {"tolerance": 1e-24, "max_iterations": 1000}


def one_at_a_time(couplings: Couplings, visible: np.ndarray, **how) -> tuple:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bp, "STRONGEST_LANE_COUPLING", -1.0)
        return infer_bp(couplings, visible, **how)


def estimate(couplings: Couplings, chunk: Chunk) -> Estimate:
    out = empty_estimate(len(chunk.g), *couplings.K.shape, keep_pairs=True)
    estep = EStep.of(Learner(estimator="bp", correlations="closed"), couplings.K.shape[1])
    bp.estimate(couplings, chunk, out, estep=estep, first=0)
    return out


@given(
    seed=st.integers(0, 10**6),
    visible=st.integers(1, 9),
    hidden=st.integers(1, 5),
    strength=st.sampled_from([0.1, 0.5, 1.0]),
    correlations=st.sampled_from(["closed", "pair", "corrected"]),
)
def test_equals_one_slice_at_a_time(
    seed: int, visible: int, hidden: int, strength: float, correlations: str
) -> None:
    couplings, recording = small_network(
        seed, visible=visible, hidden=hidden, strength=strength, length=LANES + 20
    )
    many = infer_bp(couplings, recording, correlations=correlations, **SETTLED)
    one = one_at_a_time(couplings, recording, correlations=correlations, **SETTLED)
    settled = many.converged & one.converged
    for name in ("m", "mu", "log_likelihood"):
        np.testing.assert_allclose(getattr(many, name)[settled], getattr(one, name)[settled], atol=1e-9)
    np.testing.assert_allclose(many.pair[settled], one.pair[settled], atol=1e-7)


def test_a_slice_does_not_depend_on_its_neighbours() -> None:
    """Its numbers are the same bits in any order of slices, in any company, and alone."""
    couplings = draw_couplings(12, 4, seed=1)
    visible = simulate(couplings, 3 * LANES + 9, seed=2).visible
    chunk = fields(couplings, visible, slice(0, len(visible) - 2))
    whole = estimate(couplings, chunk)
    order = np.random.default_rng(3).permutation(len(chunk.g))
    for chosen in (order, order[:7], order[:1]):
        part = estimate(couplings, chunk.take(chosen))
        for name in ("m", "mu", "pair", "log_z", "converged", "iterations", "corrected"):
            np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[chosen])


def test_bonds_left_out_are_bonds_that_vanish() -> None:
    couplings = draw_couplings(30, 6, connectivity=0.2, seed=4)
    visible = simulate(couplings, 300, seed=5).visible
    nearly = couplings._replace(K=np.where(couplings.K == 0, 1e-13, couplings.K))
    sparse, dense = (infer_bp(x, visible, **SETTLED) for x in (couplings, nearly))
    settled = sparse.converged & dense.converged
    assert settled.mean() > 0.9
    for name in ("m", "mu", "log_likelihood", "pair"):
        np.testing.assert_allclose(getattr(sparse, name)[settled], getattr(dense, name)[settled], atol=1e-9)


def test_slices_that_leave_floating_point_are_taken_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    couplings = draw_couplings(8, 3, seed=6)
    couplings = couplings._replace(L=couplings.L.copy())
    # A field of 800 where the first spin and the second agree: e^800 is not a number of floating point.
    couplings.L[0, :2] = 400.0
    visible = simulate(couplings, 200, seed=7).visible
    truth = one_at_a_time(couplings, visible, **SETTLED)
    monkeypatch.setattr(bp, "_largest_exponent", lambda *_: 1.0)
    with np.errstate(over="ignore"):
        moments = infer_bp(couplings, visible, **SETTLED)
        slopes = gradient_bp(couplings, visible, **SETTLED)
    together = (visible[:-2, 0] == visible[:-2, 1]).mean()
    assert 0 < together < 1
    np.testing.assert_allclose(moments.mu, truth.mu, atol=1e-9)
    np.testing.assert_allclose(moments.pair, truth.pair, atol=1e-7)
    mean = visible[2:].T @ moments.mu / len(moments.mu) - moments.pair.mean(axis=0)
    np.testing.assert_allclose(slopes.K, mean, atol=1e-12)


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


def test_slices_beyond_single_precision_are_taken_in_double() -> None:
    couplings = draw_couplings(8, 3, strength=0.5, seed=6)
    couplings = couplings._replace(L=couplings.L.copy())
    # A field of 120 where the first spin and the second agree: beyond float32, well within float64.
    couplings.L[0, :2] = 60.0
    visible = simulate(couplings, 200, seed=7).visible
    double = infer_bp(couplings, visible)
    single = infer_bp(couplings, visible, precision="float32")
    together = visible[:-2, 0] == visible[:-2, 1]
    assert 0 < together.mean() < 1
    for name in ("m", "mu", "log_likelihood", "pair"):
        ours, theirs = getattr(single, name), getattr(double, name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
        # Those that fell back are the very bits of float64; the others are not.
        np.testing.assert_array_equal(ours[together], theirs[together])
    assert not np.array_equal(single.m, double.m)
    slopes = gradient_bp(couplings, visible, precision="float32")
    mean = visible[2:].T @ single.mu / len(single.mu) - single.pair.mean(axis=0)
    np.testing.assert_allclose(slopes.K, mean, atol=1e-5)
