"""Averages and gradients of networks with biases and known inputs, by every estimator."""

from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import (
    assert_is_gradient,
    enumerate_slices,
    network_with_fields,
    one_input_each,
    small_network,
)

from kising import Couplings, draw_couplings, gradient, infer, simulate
from kising.blocks import BLOCKS
from kising.errors import InputError
from kising.estimators.chunks import CHUNK_SLICES, fields
from kising.estimators.registry import ESTIMATORS, Estimator
from kising.estimators.slices import Slices
from kising.options import choices

each = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.name)
SMOOTH = [entry for entry in ESTIMATORS if not entry.samples]
smooth = pytest.mark.parametrize("estimator", SMOOTH, ids=lambda estimator: estimator.name)
SETTLED = {"tolerance": 1e-24, "max_iterations": 3000}


@smooth
@pytest.mark.parametrize("hidden", [2, 0])
def test_the_gradient_of_every_block_is_that_of_the_likelihood(estimator: Estimator, hidden: int) -> None:
    couplings, recording, u = network_with_fields(4, visible=3, hidden=hidden, strength=0.5)
    how = {"estimator": estimator.name, "correlations": "pair", "covariates": u, **SETTLED}
    slopes = gradient(couplings, recording, **how)
    assert [getattr(slopes, name).size for name in BLOCKS] == [x.size for x in couplings]
    # The slopes of fields are no smaller than those of couplings: what is compared is not noise.
    learned = [getattr(slopes, name) for name in BLOCKS if getattr(slopes, name).size]
    assert all(np.abs(x).max() > 1e-3 for x in learned)
    assert_is_gradient(slopes, couplings, recording, how)


@pytest.mark.parametrize("seed", range(3))
def test_exact_averages_are_sums_over_all_states(seed: int) -> None:
    couplings, recording, u = network_with_fields(seed, length=30, strength=1.5, bias=0.8)
    found = infer(couplings, recording, covariates=u, estimator="exact")
    truth = enumerate_slices(couplings, recording, u)
    for name in ("m", "mu", "pair", "log_likelihood"):
        np.testing.assert_allclose(getattr(found, name), getattr(truth, name), rtol=0, atol=1e-10)


def test_belief_propagation_with_fields_is_exact_on_trees() -> None:
    couplings, _, u = network_with_fields(3, length=40, bias=0.8)
    couplings = one_input_each(couplings, 1)
    recording = simulate(couplings, 40, covariates=u, seed=2).visible
    how = {"covariates": u, "estimator": "bp", "correlations": "pair", **SETTLED}
    found, truth = infer(couplings, recording, **how), enumerate_slices(couplings, recording, u)
    for name in ("m", "mu", "log_likelihood"):
        np.testing.assert_allclose(getattr(found, name), getattr(truth, name), atol=1e-9)


def test_samples_are_the_sums_within_their_errors() -> None:
    couplings, recording, u = network_with_fields(5, length=200, bias=0.8)
    found = infer(couplings, recording, covariates=u, estimator="gibbs", sweeps=400, seed=3)
    truth = enumerate_slices(couplings, recording, u)
    for name in ("m", "mu", "pair", "log_likelihood"):
        share = (getattr(found, name) - getattr(truth, name)) / np.maximum(getattr(found.errors, name), 1e-3)
        assert np.sqrt(np.mean(share**2)) < 1.3, name
    sampled = gradient(couplings, recording, covariates=u, estimator="gibbs", sweeps=400, seed=3)
    exact = gradient(couplings, recording, covariates=u, estimator="exact")
    for name in ("h", "b", "F", "G"):
        np.testing.assert_allclose(getattr(sampled, name), getattr(exact, name), atol=0.01)
        assert np.abs(getattr(exact, name)).max() > 0.01


@each
def test_the_gradient_is_made_of_moments(estimator: Estimator) -> None:
    """In more than one chunk, whose fields are cut as their spins are."""
    n = CHUNK_SLICES + 40
    couplings, recording, u = network_with_fields(6, visible=5, hidden=2, strength=0.7, length=n + 2)
    how = {"estimator": estimator.name, "covariates": u, "sweeps": 8, "seed": 1}
    moments, slopes = infer(couplings, recording, **how), gradient(couplings, recording, **how)
    surprise = recording[2:] - moments.m
    expected = np.tanh(recording[:-2] @ couplings.L.T + couplings.b + u[:-2] @ couplings.G.T)
    hidden_surprise = moments.mu - expected
    np.testing.assert_allclose(slopes.h, surprise.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(slopes.F, surprise.T @ u[1:-1] / n, atol=1e-12)
    np.testing.assert_allclose(slopes.b, hidden_surprise.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(slopes.G, hidden_surprise.T @ u[:-2] / n, atol=1e-12)
    np.testing.assert_allclose(slopes.L, hidden_surprise.T @ recording[:-2] / n, atol=1e-12)
    again = gradient(couplings, recording, threads=3, **how)
    assert again == slopes


@each
def test_a_bias_is_the_weight_of_an_input_that_is_one(estimator: Estimator) -> None:
    couplings, recording, _ = network_with_fields(7, inputs=0, length=50, strength=0.7)
    as_input = Couplings(
        couplings.J, couplings.K, couplings.L, F=couplings.h[:, None], G=couplings.b[:, None]
    )
    how = {"estimator": estimator.name, "sweeps": 20, "seed": 1}
    ours = gradient(couplings, recording, **how)
    theirs = gradient(as_input, recording, covariates=np.ones((50, 1)), **how)
    np.testing.assert_allclose(theirs.F[:, 0], ours.h, atol=1e-9)
    np.testing.assert_allclose(theirs.G[:, 0], ours.b, atol=1e-9)
    np.testing.assert_allclose(theirs.h, ours.h, atol=1e-9)
    np.testing.assert_allclose(theirs.J, ours.J, atol=1e-9)
    assert theirs.log_likelihood == pytest.approx(ours.log_likelihood, rel=1e-9)


@each
def test_inputs_that_have_no_weight_change_no_average(estimator: Estimator) -> None:
    couplings, recording = small_network(8, length=60)
    nothing = couplings._replace(F=np.zeros((4, 1)), G=np.zeros((3, 1)))
    u = np.random.default_rng(1).standard_normal((60, 1))
    how = {"estimator": estimator.name, "sweeps": 20, "seed": 1}
    assert infer(nothing, recording, covariates=u, **how) == infer(couplings, recording, **how)


WAYS = [
    (entry.name, rule)
    for entry in SMOOTH
    for rule in (choices("learner.correlations") if "learner.correlations" in entry.reads else ("pair",))
]


@pytest.mark.parametrize(("estimator", "correlations"), WAYS)
@pytest.mark.parametrize("seed", range(3))
def test_permuting_and_flipping_hidden_units_with_their_fields(
    estimator: str, correlations: str, seed: int
) -> None:
    """A flip takes b and G along; without them it would be another network."""
    couplings, recording, u = network_with_fields(seed, visible=5, strength=0.7, length=40)
    how = {"estimator": estimator, "correlations": correlations, "covariates": u, **SETTLED}
    order, signs = np.array([2, 0, 1]), np.array([1, -1, -1])
    moved = couplings._replace(
        K=couplings.K[:, order] * signs,
        L=couplings.L[order] * signs[:, None],
        b=couplings.b[order] * signs,
        G=couplings.G[order] * signs[:, None],
    )
    base, turned = infer(couplings, recording, **how), infer(moved, recording, **how)
    settled = base.converged & turned.converged
    assert settled.mean() > 0.8
    np.testing.assert_allclose(turned.m[settled], base.m[settled], atol=1e-9)
    np.testing.assert_allclose(turned.mu[settled], (base.mu[:, order] * signs)[settled], atol=1e-9)
    np.testing.assert_allclose(turned.log_likelihood[settled], base.log_likelihood[settled], atol=1e-9)
    if settled.all():
        ours, theirs = (gradient(x, recording, **how) for x in (couplings, moved))
        np.testing.assert_allclose(theirs.b, ours.b[order] * signs, atol=1e-9)
        np.testing.assert_allclose(theirs.G, ours.G[order] * signs[:, None], atol=1e-9)
    half = infer(moved._replace(b=couplings.b[order]), recording, **how)
    assert not np.allclose(half.log_likelihood, base.log_likelihood, atol=1e-3)


@each
def test_strong_fields_end_in_finite_numbers(estimator: Estimator) -> None:
    couplings, recording, u = network_with_fields(9, length=30)
    for name in ("h", "b", "F", "G"):
        strong = couplings._replace(**{name: 1000 * np.sign(getattr(couplings, name))})
        found = infer(strong, recording, covariates=u, estimator=estimator.name, sweeps=8, seed=1)
        for part in ("m", "mu", "pair", "log_likelihood"):
            assert np.isfinite(getattr(found, part)).all(), (name, part)
        assert np.abs(found.mu).max() <= 1 + 1e-12
        slopes = gradient(strong, recording, covariates=u, estimator=estimator.name, sweeps=8, seed=1)
        assert all(np.isfinite(getattr(slopes, block)).all() for block in BLOCKS)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_fields_beyond_the_range_of_floats_are_those_of_one_slice_at_a_time(precision: str) -> None:
    """An input of 300 on one step in ten: e^600 is not a float32, and e^1200 not a float64."""
    couplings, _, _ = network_with_fields(10, inputs=1, visible=8, strength=0.5)
    u = np.where(np.arange(200) % 10 == 3, 600.0, 0.1)[:, None]
    couplings = couplings._replace(G=np.ones((3, 1)), F=np.zeros((8, 1)))
    recording = simulate(couplings, 200, covariates=u, seed=1).visible
    how = {"covariates": u, "estimator": "bp", "correlations": "pair"}
    found = infer(couplings, recording, precision=precision, **how)
    exact = infer(couplings, recording, covariates=u, estimator="exact")
    driven = u[:-2, 0] > 1
    assert 0.05 < driven.mean() < 0.15
    # Hidden spins that are driven so hard are up, and belief propagation among known spins is exact.
    np.testing.assert_allclose(found.mu[driven], 1.0, atol=1e-6)
    np.testing.assert_allclose(found.m[driven], exact.m[driven], atol=1e-6)
    np.testing.assert_allclose(found.m, exact.m, atol=0.05)
    np.testing.assert_allclose(found.log_likelihood, exact.log_likelihood, rtol=1e-3, atol=0.05)


@pytest.mark.parametrize("hidden", [3, 0])
def test_bounds_of_fields_hold_for_all_spins_and_for_the_inputs_given(hidden: int) -> None:
    couplings, recording, u = network_with_fields(11, hidden=hidden, length=200)
    chunk = fields(couplings, Slices.of([recording], [5 * u]), slice(0, 198))
    bounds = chunk.bounds
    for field, bound in zip((chunk.theta, chunk.b), bounds, strict=True):
        assert (np.abs(field) <= bound + 1e-12).all()
        assert (bound < 4 * np.abs(field).max(axis=0)).all()


@pytest.mark.parametrize("function", [infer, gradient])
def test_inputs_that_do_not_fit_are_refused(function) -> None:
    couplings, recording, u = network_with_fields(1)
    with pytest.raises(InputError, match="weights for 2 inputs"):
        function(couplings, recording)
    with pytest.raises(InputError, match="weights for 2 inputs"):
        function(couplings, recording, covariates=u[:, :1])
    with pytest.raises(InputError, match="weights for 0 inputs"):
        function(draw_couplings(4, 3, seed=1), recording, covariates=u)
    with pytest.raises(InputError, match="covariates"):
        function(couplings, recording, covariates=u[:-1])
    with pytest.raises(InputError, match="covariates"):
        function(couplings, recording, covariates=np.where(u == u[3, 1], np.inf, u))
