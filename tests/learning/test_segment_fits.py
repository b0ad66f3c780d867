"""Fits of recordings with several segments."""

from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import network_with_fields
from support.spin_data import random_spins

from kising import fit, gradient, infer
from kising.blocks import BLOCKS
from kising.estimators.slices import Slices
from kising.learning.errors.standard import information
from kising.learning.layout import slopes
from kising.learning.starts import fit_visible
from kising.learning.state import spin_products

BORDERS = [300, 700, 703, 1000]


@pytest.fixture(scope="module")
def cut():
    couplings, visible, u = network_with_fields(2, visible=6, hidden=2, length=1500)
    return couplings, np.split(visible, BORDERS), np.split(u, BORDERS)


def test_a_fit_of_segments_is_a_maximum_of_the_sum_over_their_slices(cut) -> None:
    _, spins, u = cut
    found = fit(spins, 2, covariates=u, seed=1, tolerance=1e-8, prior="none")
    assert found.outcome == "converged"
    n = [len(x) - 2 for x in spins]
    parts = [
        gradient(found.couplings, x, covariates=y, estimator="exact") for x, y in zip(spins, u, strict=True)
    ]
    for name in (name for name in BLOCKS if name != "M"):
        total = sum(k * getattr(part, name) for k, part in zip(n, parts, strict=True)) / sum(n)
        assert np.abs(total).max() < 1e-6
        assert np.abs(getattr(parts[0], name)).max() > 1e-3
    nats = sum(k * part.log_likelihood for k, part in zip(n, parts, strict=True)) / sum(n)
    assert found.log_likelihood() == pytest.approx(nats, rel=1e-12)
    assert found.log_likelihood(spins, u) == found.log_likelihood()
    joined = fit(np.concatenate(spins), 2, covariates=np.concatenate(u), seed=1, tolerance=1e-8)
    assert not np.allclose(joined.couplings.J, found.couplings.J, atol=1e-4)


def test_the_order_of_segments_changes_a_fit_by_rounding_alone(cut) -> None:
    _, spins, u = cut
    order = [4, 1, 3, 0, 2]
    # From a start that does not depend on the order, to where learning has nothing left to do.
    one, other = (
        fit([spins[k] for k in by], 2, covariates=[u[k] for k in by], seed=1, tolerance=1e-10)
        for by in (range(5), order)
    )
    assert one.outcome == other.outcome == "converged"
    for x, y in zip(one.couplings, other.couplings, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
    # The first step asks for no metric, and does not see the order at all.
    short = [
        fit(
            [spins[k] for k in by], 2, covariates=[u[k] for k in by], seed=1, estimator="bp", max_iterations=2
        )
        for by in (range(5), order)
    ]
    for x, y in zip(short[0].couplings, short[1].couplings, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-9)


@pytest.mark.parametrize("estimator", ["exact", "gibbs", "bp"])
def test_one_segment_is_learned_as_an_array_bit_for_bit(estimator: str) -> None:
    _, visible, u = network_with_fields(3, visible=5, hidden=2, length=600)
    how = {"estimator": estimator, "seed": 1, "max_iterations": 30, "errors": True}
    one = fit(visible, 2, covariates=u, **how)
    assert fit([visible], 2, covariates=[u], **how) == one
    assert fit(visible[None], 2, covariates=u[None], **how) == one
    assert fit(visible > 0, 2, covariates=u, **how) == one


def test_what_follows_from_a_recording_is_that_of_its_slices(cut) -> None:
    couplings, spins, u = cut
    slices = Slices.of(spins, u)
    before, now = (
        np.concatenate(
            [
                np.hstack([s[k : k - 2], np.ones((len(s) - 2, 1)), x[k : k - 2]])
                for s, x in zip(spins, u, strict=True)
            ]
        )
        for k in (0, 1)
    )
    products = spin_products(slices, bias=True)
    n = len(now)
    np.testing.assert_allclose(products.now, now.T @ now / n, atol=1e-12)
    np.testing.assert_allclose(products.before, before.T @ before / n, atol=1e-12)
    after = np.concatenate([s[2:] for s in spins])
    weights = fit_visible(slices, bias=True)
    np.testing.assert_allclose((after - np.tanh(now @ weights.T)).T @ now / n, 0, atol=1e-4)
    # Of visible spins alone, and of pieces put together, the information is the same sum.
    alone = couplings._replace(K=np.zeros((6, 0)), L=np.zeros((0, 6)), b=np.zeros(0), G=np.zeros((0, 2)))
    whole, _ = information(alone, slices, seed=1)
    parts = [information(alone, Slices.of([s], [x]), seed=1)[0] for s, x in zip(spins, u, strict=True)]
    total = sum((len(s) - 2) * part for s, part in zip(spins, parts, strict=True)) / n
    np.testing.assert_allclose(whole, total, atol=1e-12)


def test_answers_come_segment_by_segment(cut) -> None:
    _, spins, u = cut
    found = fit(spins, 2, covariates=u, seed=1, max_iterations=20)
    assert found.steps == 1500
    states, forecasts = found.hidden_states(spins, u), found.forecast(spins, u)
    assert [x.shape for x in states] == [(len(s) - 2, 2) for s in spins]
    for s, x, own, forecast in zip(spins, u, states, forecasts, strict=True):
        exact = infer(found.couplings, s, covariates=x, estimator="exact")
        np.testing.assert_allclose(own, exact.mu, atol=1e-12)
        np.testing.assert_allclose(forecast, found.forecast(s, x), atol=1e-12)
    n = [len(s) - 2 for s in spins]
    each = [found.forecast_log_likelihood(s, x) for s, x in zip(spins, u, strict=True)]
    assert found.forecast_log_likelihood(spins, u) == pytest.approx(np.dot(n, each) / sum(n), rel=1e-12)
    later = found.with_errors(spins, u).standard_error
    asked = fit(spins, 2, covariates=u, seed=1, max_iterations=20, errors=True).standard_error
    for a, b in zip(later, asked, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_steps_with_gaps_split_a_recording() -> None:
    spins = random_spins(400, 4).astype(float)
    holed = spins.copy()
    holed[150, 2] = np.nan
    with pytest.warns(match="gap|missing|NaN"):
        found = fit(holed, 1, seed=1, max_iterations=10, missing="drop")
    apart = fit([spins[:150], spins[151:]], 1, seed=1, max_iterations=10)
    assert found.couplings == apart.couplings
    assert max(np.abs(x).max() for x in slopes(gradient(apart.couplings, spins)) if x.size) > 0
