"""The metric of a learner's steps."""

from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import gradient_of_bonds

from kising import bond_scales, draw_couplings, simulate
from kising.estimators.gibbs.chains import first_chains
from kising.kernels.counter import key_of
from kising.learning.checkpoint import load, save
from kising.learning.session import Session
from kising.learning.state import Anchor, EMState
from kising.learning.steps import metric as module
from kising.learning.steps.metric import (
    NOISY,
    SMOOTH,
    LastAnchor,
    bounded,
    complete_errors,
    is_due,
    metric_of,
    metric_step,
    of_chains,
    of_marginals,
)
from kising.learning.steps.scaled import RIDGE
from kising.model import Couplings
from kising.options import Learner

NV, NH, LENGTH = 5, 2, 400


@pytest.fixture(scope="module")
def network():
    couplings = draw_couplings(NV, NH, seed=1).only(())
    visible = simulate(couplings, LENGTH, seed=2).visible
    return couplings, visible, first_chains(LENGTH - 2, NH, key_of(3))


def information(
    couplings: Couplings, visible: np.ndarray, chains: np.ndarray, row: int
) -> tuple[np.ndarray, np.ndarray]:
    """A_i and the mean of x xᵀ, slice by slice as the formula has it."""
    own, average = 0.0, 0.0
    for t, sigma in enumerate(chains):
        x = np.concatenate([visible[t + 1], sigma]).astype(float)
        field = couplings.J[row] @ visible[t + 1] + couplings.K[row] @ sigma
        own = own + (1 - np.tanh(field) ** 2) * np.outer(x, x) / len(chains)
        average = average + np.outer(x, x) / len(chains)
    return own, average


@pytest.mark.parametrize("mixture", [NOISY, SMOOTH])
def test_rows_are_divided_by_their_own_information(network, mixture) -> None:
    couplings, visible, chains = network
    metric = metric_of(Anchor(couplings, chains, True, mixture), visible)
    slopes = gradient_of_bonds(couplings, visible)
    step = metric_step(metric, slopes)
    errors = complete_errors(metric, LENGTH - 2, couplings)
    for i in range(NV):
        own, average = information(couplings, visible, chains, i)
        mixed = mixture.own * own + mixture.average * own[0, 0] * average + RIDGE * np.eye(NV + NH)
        ours = np.concatenate([step.J[i], step.K[i]])
        np.testing.assert_allclose(mixed @ ours, np.concatenate([slopes.J[i], slopes.K[i]]), atol=1e-12)
        expected = np.sqrt(np.diag(np.linalg.inv(own + RIDGE * np.eye(NV + NH))) / (LENGTH - 2))
        np.testing.assert_allclose(np.concatenate([errors.J[i], errors.K[i]]), expected)
    before = visible[:-2].astype(float)
    for a in range(NH):
        freedom = 1 - np.tanh(before @ couplings.L[a]) ** 2
        own, average = (before.T * freedom) @ before / len(before), before.T @ before / len(before)
        mixed = mixture.own * own + mixture.average * freedom.mean() * average + RIDGE * np.eye(NV)
        np.testing.assert_allclose(mixed @ step.L[a], slopes.L[a], atol=1e-12)


def test_a_row_that_is_hardly_ever_free_has_large_errors_and_short_steps(network) -> None:
    """A strong bond decides what spin 2 does: its couplings may be anything, but for the prior."""
    couplings, visible, chains = network
    K = couplings.K.copy()
    K[2, 1] = 8.0
    saturated = couplings._replace(K=K)
    width = 3.0
    learner = Learner(estimator="gibbs", bias=False, prior=width)
    scales = bond_scales(NV, NH, strength=1.0, connectivity=1.0)
    prior = Session.of(visible, NH, learner, seed=1, scales=scales).step.prior
    anchor = Anchor(saturated, chains, True, NOISY)
    free, held = (
        complete_errors(metric_of(anchor, visible, x), LENGTH - 2, couplings) for x in (None, prior)
    )
    own, _ = information(saturated, visible, chains, 2)
    assert own[0, 0] < 1e-3
    np.testing.assert_allclose(free.K[2], np.sqrt(np.diag(np.linalg.inv(own + RIDGE * np.eye(7))) / 398)[NV:])
    assert free.K[2, 1] > 10
    # With next to no information, the error is the width of the prior.
    assert held.K[2, 1] == pytest.approx(width * scales.K, rel=0.05)
    assert max(held.K[[0, 1, 3, 4]].max(), held.J[[0, 1, 3, 4]].max()) < 0.2
    step = metric_step(metric_of(anchor, visible), couplings)
    assert np.abs(step.K[2]).max() < 200


def test_early_steps_and_large_networks_are_measured_by_averages(
    network, monkeypatch: pytest.MonkeyPatch
) -> None:
    couplings, visible, chains = network
    early = metric_of(of_chains(couplings, chains, 4), visible)
    assert [len(x) for x in early.matrices] == [1, 1]
    # One matrix, and for each row a weight between its mean and the bound 1 that no information passes.
    assert np.all(early.weights.visible >= 0.5)
    assert metric_step(early, gradient_of_bonds(couplings, visible)).K.shape == (NV, NH)
    assert complete_errors(early, 100, couplings).L.shape == (NH, NV)
    assert of_chains(couplings, chains, 16).rows
    monkeypatch.setattr(module, "LARGEST_METRIC", 10)
    assert not of_chains(couplings, chains, 16).rows


def test_a_metric_is_made_anew_ever_more_seldom() -> None:
    assert [k for k in range(300) if is_due(k, noisy=True)] == [0, 1, 4, 16, 64, 256]
    assert [k for k in range(300) if is_due(k, noisy=False)] == [1, 2, 4, 8, 16, 32, 64, 128, 256]


def test_without_chains_hidden_states_are_drawn_from_their_marginals() -> None:
    mu = np.tile([-0.9, 0.0, 0.5], (20_000, 1))
    couplings = draw_couplings(4, 3, seed=5)
    drawn = of_marginals(couplings, mu, 8)
    assert set(np.unique(drawn.chains)) == {-1, 1}
    np.testing.assert_allclose(drawn.chains.mean(axis=0), mu[0], atol=0.03)
    np.testing.assert_array_equal(drawn.chains, of_marginals(couplings, mu, 8).chains)
    assert not np.array_equal(drawn.chains, of_marginals(couplings, mu, 16).chains)


def test_no_coupling_moves_by_more_than_its_bond_scale(network) -> None:
    couplings, _, _ = network
    scales = bond_scales(NV, NH, strength=1.0, connectivity=1.0)
    step = Couplings(*(100.0 * x for x in couplings))
    for cut, dx, sd in zip(bounded(step, scales), step, scales, strict=True):
        np.testing.assert_allclose(cut, np.sign(dx) * np.minimum(np.abs(dx), sd))


def session(network, **options) -> Session:
    truth, visible, _ = network
    scales = bond_scales(NV, NH, strength=1.0, connectivity=1.0)
    learner = Learner(tolerance=1e-13, bias=False, **options)
    return Session.of(visible, NH, learner, seed=4, scales=scales, truth=truth, start=truth)


def after(learning: Session, state: EMState, iterations: int) -> EMState:
    for _ in range(iterations):
        state = learning.advance(state)
    return state


@pytest.mark.parametrize("estimator", ["gibbs", "exact"])
def test_a_state_that_was_saved_goes_on_by_the_same_metric(network, estimator: str) -> None:
    learning, elsewhere = (session(network, estimator=estimator) for _ in range(2))
    state = after(learning, learning.begin(), 20)
    read = load(save(state))
    assert read.anchor is not None
    assert after(elsewhere, read, 5) == after(learning, state, 5)


def test_a_metric_is_made_once_for_each_anchor(network) -> None:
    couplings, _, chains = network
    made = []
    cache, one, other = LastAnchor(), *(of_chains(couplings, chains, k) for k in (4, 16))
    last = [
        cache.of(anchor, lambda x: made.append(x) or len(made)) for anchor in (one, one, other, other, one)
    ]
    assert last == [1, 1, 2, 2, 3]
    assert made == [one, other, one]


@pytest.mark.parametrize("how", [{}, {"l1": 1.0}, {"decimate": 0.5}])
def test_information_is_computed_once_for_each_anchor(network, how, monkeypatch: pytest.MonkeyPatch) -> None:
    real, anchors = module.information_of, []
    for place in ("metric", "sampling.sparse_samples"):
        monkeypatch.setattr(
            f"kising.learning.steps.{place}.information_of",
            lambda anchor, *more: anchors.append(anchor) or real(anchor, *more),
        )
    learning = session(network, estimator="gibbs", **how)
    after(learning, learning.begin(), 3)
    assert len(anchors) == 2  # of iterations 0 and 1


@pytest.mark.parametrize(
    ("options", "has_one"),
    [
        ({"estimator": "exact"}, True),
        ({"estimator": "exact", "step": "gradient"}, True),
        ({"estimator": "gibbs"}, True),
        ({"estimator": "bp"}, False),
        ({"estimator": "exact", "l1": 1.0}, False),
        ({"estimator": "exact", "decimate": 0.5}, False),
    ],
)
def test_approximate_averages_and_sparse_steps_have_no_metric(network, options, has_one: bool) -> None:
    learning = session(network, **options)
    assert (after(learning, learning.begin(), 3).anchor is not None) == has_one


def test_a_network_too_large_for_a_metric_learns_without(network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_METRIC", 10)
    learning = session(network, estimator="exact")
    assert after(learning, learning.begin(), 3).anchor is None
