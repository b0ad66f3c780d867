"""What the steps of a learner are measured by."""

from __future__ import annotations

import numpy as np
import pytest

from kising import bond_scales, draw_couplings, gradient, simulate
from kising.estimators.gibbs.chains import first_chains
from kising.estimators.inference import EStep
from kising.kernels.counter import key_of
from kising.learning import metric as module
from kising.learning.checkpoint import load, save
from kising.learning.em import Learning, advance, begin, pose, sampler_of
from kising.learning.metric import (
    NOISY,
    SMOOTH,
    Anchor,
    bounded,
    complete_errors,
    is_due,
    metric_of,
    metric_step,
    of_chains,
    of_marginals,
)
from kising.learning.steps import RIDGE
from kising.model import Couplings

NV, NH, LENGTH = 5, 2, 400


@pytest.fixture(scope="module")
def network():
    couplings = draw_couplings(NV, NH, seed=1)
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


@pytest.mark.parametrize("shares", [NOISY, SMOOTH])
def test_rows_are_divided_by_their_own_information(network, shares) -> None:
    couplings, visible, chains = network
    metric = metric_of(Anchor(couplings, chains, True, shares), visible)
    slopes = gradient(couplings, visible, estimator="exact")
    step = metric_step(metric, slopes)
    errors = complete_errors(metric, LENGTH - 2)
    for i in range(NV):
        own, average = information(couplings, visible, chains, i)
        mixed = shares.own * own + shares.average * own[0, 0] * average + RIDGE * np.eye(NV + NH)
        ours = np.concatenate([step.J[i], step.K[i]])
        np.testing.assert_allclose(mixed @ ours, np.concatenate([slopes.J[i], slopes.K[i]]), atol=1e-12)
        expected = np.sqrt(np.diag(np.linalg.inv(mixed)) / (LENGTH - 2))
        np.testing.assert_allclose(np.concatenate([errors.J[i], errors.K[i]]), expected)
    before = visible[:-2].astype(float)
    for a in range(NH):
        freedom = 1 - np.tanh(before @ couplings.L[a]) ** 2
        own, average = (before.T * freedom) @ before / len(before), before.T @ before / len(before)
        mixed = shares.own * own + shares.average * freedom.mean() * average + RIDGE * np.eye(NV)
        np.testing.assert_allclose(mixed @ step.L[a], slopes.L[a], atol=1e-12)


def test_early_steps_and_large_networks_are_measured_by_averages(
    network, monkeypatch: pytest.MonkeyPatch
) -> None:
    couplings, visible, chains = network
    early = metric_of(of_chains(couplings, chains, 4), visible)
    assert (len(early.JK), len(early.L)) == (1, 1)
    # One matrix, and for each row a weight between its mean and the bound 1 that no information passes.
    assert np.all(early.weight_JK >= 0.5)
    assert metric_step(early, gradient(couplings, visible, estimator="exact")).K.shape == (NV, NH)
    assert complete_errors(early, 100).L.shape == (NH, NV)
    assert of_chains(couplings, chains, 16).rows
    monkeypatch.setattr(module, "MOST_NUMBERS", 10)
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


@pytest.mark.parametrize("estimator", ["gibbs", "exact"])
def test_a_state_that_was_saved_goes_on_by_the_same_metric(network, estimator: str) -> None:
    truth, visible, _ = network
    scales = bond_scales(NV, NH, strength=1.0, connectivity=1.0)
    problem = pose(visible, scales, truth, aligned=False)
    learning = Learning(estep=EStep(estimator=estimator), tolerance=1e-13)
    state = begin(truth, sampler_of(truth, problem, learning, seed=4))
    for _ in range(20):
        state = advance(state, problem, learning)
    other = load(save(state))
    assert other.anchor is not None
    assert other.metric is None
    for _ in range(5):
        state, other = (advance(x, problem, learning) for x in (state, other))
    np.testing.assert_array_equal(state.trace, other.trace)
    for mine, theirs in zip(state.couplings, other.couplings, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("how", "has_one"),
    [
        ({"estep": EStep(estimator="exact")}, True),
        ({"estep": EStep(estimator="bp")}, False),
        ({"estep": EStep(estimator="exact"), "l1": 1.0}, False),
    ],
)
def test_approximate_averages_and_sparse_steps_have_no_metric(network, how, has_one: bool) -> None:
    truth, visible, _ = network
    problem = pose(visible, bond_scales(NV, NH, strength=1.0, connectivity=1.0), truth, aligned=False)
    learning = Learning(tolerance=1e-13, **how)
    state = begin(truth)
    for _ in range(3):
        state = advance(state, problem, learning)
    assert (state.metric is not None) == has_one
