"""Learning biases and the weights of known inputs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from support.brute_force import gradient_of_bonds, network_with_fields
from support.resuming import assert_continues

from kising import Couplings, bond_scales, draw_couplings, fit, gradient, simulate
from kising.blocks import BLOCKS, REQUIRED
from kising.estimators.slices import Slices
from kising.learning.checkpoint import load, save
from kising.learning.errors.standard import information
from kising.learning.layout import rows_of, slopes
from kising.learning.scores import align, matched, nominal_scales, rmse
from kising.learning.session import Session
from kising.learning.state import Anchor, prepare, spin_products
from kising.learning.steps.metric import SMOOTH, complete_errors, metric_of, metric_step
from kising.learning.steps.scaled import RIDGE, scaled_step
from kising.learning.steps.sparsity.penalised import penalties
from kising.model import BondScales
from kising.options import Learner

BIAS = 0.3
LEARNED = ("J", "K", "L", "h", "b")


def scales_for(visible: int, hidden: int) -> BondScales:
    return bond_scales(visible, hidden, strength=1.0, connectivity=1.0, bias=BIAS)


def with_inputs(seed: int, length: int, *, visible: int = 8, hidden: int = 2):
    return network_with_fields(seed, visible=visible, hidden=hidden, bias=BIAS, length=length)


# Recovery


@pytest.mark.parametrize("estimator", ["exact", "gibbs"])
@pytest.mark.parametrize("seed", [2, 3])
def test_biases_come_back_and_couplings_suffer_without_them(estimator: str, seed: int) -> None:
    truth = draw_couplings(12, 3, bias=BIAS, seed=seed)
    visible = simulate(truth, 4000, seed=seed + 100).visible
    how = {"truth": truth, "scales": scales_for(12, 3), "seed": seed, "estimator": estimator}
    found, without = (fit(visible, 3, bias=bias, **how) for bias in (True, False))
    assert found.outcome == without.outcome == "converged"
    assert (set(found.rmse), set(without.rmse)) == (set(LEARNED), set(REQUIRED))
    assert (set(found.converged), set(without.converged)) == (set(LEARNED), set(REQUIRED))
    assert found.rmse["h"] < 0.3
    assert found.rmse["b"] < 0.3
    # Without biases, J stands in for them.
    assert without.rmse["J"] > 1.3 * found.rmse["J"]
    assert found.log_likelihood() > without.log_likelihood() + 0.05
    assert not without.couplings.h.any()
    assert without.couplings.h.shape == (12,)


@pytest.mark.parametrize("estimator", ["exact", "bp", "tap", "gibbs"])
def test_weights_of_inputs_come_back(estimator: str) -> None:
    truth, visible, u = with_inputs(1, 6000)
    # In other units: of one, the weights are a hundred times smaller.
    units = np.array([100.0, 0.2])
    found = fit(
        visible, 2, covariates=u * units, truth=truth._replace(F=truth.F / units, G=truth.G / units), seed=2,
        start="signs", estimator=estimator,
    )  # fmt: skip
    assert set(found.rmse) == set(BLOCKS) - {"M"}
    np.testing.assert_allclose(found.couplings.F * units, truth.F, atol=0.12)
    np.testing.assert_allclose(found.couplings.G * units, truth.G, atol=0.35)
    assert found.rmse["F"] < 0.1
    plain = fit(visible, 2, covariates=u, truth=truth, seed=2, start="signs", estimator=estimator)
    for x, y in zip(found.couplings._replace(F=found.couplings.F * units), plain.couplings, strict=True):
        if x.shape == truth.F.shape:
            np.testing.assert_allclose(x, y, atol=1e-6)


def test_inputs_that_are_left_out_are_missed() -> None:
    _, visible, u = with_inputs(1, 4000)
    told, untold = (fit(visible, 2, covariates=x, seed=2) for x in (u, None))
    assert told.log_likelihood() > untold.log_likelihood() + 0.1


def test_a_converged_fit_is_a_maximum_in_every_block() -> None:
    _, visible, u = with_inputs(2, 2000)
    found = fit(visible, 2, covariates=u, seed=3, tolerance=1e-8, prior="none")
    assert found.outcome == "converged"
    for name, slope in (
        slopes(gradient(found.couplings, visible, covariates=u, estimator="exact"))._asdict().items()
    ):
        assert np.abs(slope).max(initial=0.0) < 1e-6, name


@pytest.mark.parametrize("step", ["scaled", "gradient"])
def test_a_penalty_spares_fields(step: str) -> None:
    truth = draw_couplings(8, 2, connectivity=0.3, bias=BIAS, seed=4)
    visible = simulate(truth, 3000, seed=5).visible
    found = fit(
        visible, 2, truth=truth, seed=3, l1=2.0, step=step, rate=0.5, tolerance=1e-9, max_iterations=4000
    )
    assert found.outcome == "converged"
    here = gradient(found.couplings, visible, estimator="exact")
    penalty = penalties(here, spin_products(visible, bias=True), 2998, 2.0)
    for name in LEARNED:
        x, slope, cost = (getattr(of, name) for of in (found.couplings, here, penalty))
        assert (cost > 0).all() == (name in REQUIRED)
        assert (x == 0).any() == (name in REQUIRED)
        np.testing.assert_allclose(slope[x != 0], (cost * np.sign(x))[x != 0], atol=1e-7)
        assert (np.abs(slope[x == 0]) <= cost[x == 0] + 1e-7).all()


def test_decimation_spares_fields() -> None:
    truth = draw_couplings(8, 2, connectivity=0.4, bias=BIAS, seed=4)
    visible = simulate(truth, 5000, seed=5).visible
    for decimate in (0.4, "known"):
        found = fit(visible, 2, truth=truth, seed=3, decimate=decimate, tolerance=1e-8, max_iterations=1000)
        assert found.outcome == "converged"
        here = gradient(found.couplings, visible, estimator="exact")
        for name in LEARNED:
            x, slope, true = (getattr(of, name) for of in (found.couplings, here, truth))
            share = 0.4 if decimate == 0.4 else np.mean(true != 0)
            assert np.count_nonzero(x) == (round(share * x.size) if name in REQUIRED else x.size)
            np.testing.assert_allclose(slope[x != 0], 0, atol=1e-7)


@pytest.mark.parametrize(
    "options",
    [{"estimator": "bp"}, {"estimator": "exact", "l1": 1e-9}, {"estimator": "exact", "decimate": 1.0}],
)
@pytest.mark.parametrize("seed", [5, 8])
def test_steps_do_not_overshoot_with_biases(options: dict, seed: int) -> None:
    """Where spins are often driven hard, the mean of 1 - m² says little about the information of a bias. Divided by
    it, steps oscillate without end.
    """
    truth = draw_couplings(8, 2, connectivity=0.4, bias=BIAS, seed=seed)
    visible = simulate(truth, 5000, seed=5).visible
    found = fit(visible, 2, seed=3, truth=truth, prior="none", **options)
    changes = np.diff(found.trace.log_likelihood)
    late = changes[len(changes) // 2 :]
    assert -np.sum(late[late < 0]) < 0.01
    exact = fit(visible, 2, seed=3, estimator="exact", prior="none")
    assert found.log_likelihood() > exact.log_likelihood() - 0.02


def test_a_prior_pulls_fields_too() -> None:
    _, visible, u = with_inputs(2, 2000)
    width = 0.5
    found = fit(
        visible, 2, covariates=(u - u.mean(axis=0)) / u.std(axis=0), seed=3, prior=width, tolerance=1e-8
    )
    here = gradient(
        found.couplings, visible, covariates=(u - u.mean(axis=0)) / u.std(axis=0), estimator="exact"
    )
    for name, sd in nominal_scales(8, 2)._asdict().items():
        x, slope = (getattr(of, name) for of in (found.couplings, here))
        np.testing.assert_allclose(slope, x / (width * sd) ** 2 / 1998, atol=1e-6)


def test_spikes_that_do_not_interact_have_no_couplings() -> None:
    """Sparse independent spikes: with biases, J is zero within its errors. Without, J stands in for silence."""
    rng = np.random.default_rng(7)
    rates = np.linspace(0.02, 0.15, 10)
    shares = []
    for _ in range(3):
        spikes = rng.random((5000, 10)) < rates
        found = fit(spikes, 0, seed=1, errors=True, prior="none")
        z = found.couplings.J / found.standard_error.J
        shares.append(z)
        wrong = fit(spikes, 0, seed=1, errors=True, bias=False, prior="none")
        assert np.sqrt(np.mean((wrong.couplings.J / wrong.standard_error.J) ** 2)) > 3
    z = np.concatenate(shares)
    # 300 numbers: the root mean square of normal ones would be 1 ± 0.04.
    assert 0.88 < np.sqrt(np.mean(z**2)) < 1.12
    assert np.mean(np.abs(z) > 1.96) == pytest.approx(0.05, abs=0.04)


# Standard errors


def test_complete_less_missing_is_the_curvature_of_the_likelihood() -> None:
    couplings, visible, u = network_with_fields(1, visible=3, hidden=2, inputs=1, strength=1.2, length=300)
    complete, missing = information(couplings, Slices.of([visible], [u]), seed=3, samples=1500)
    assert np.abs(missing).max() > 0.2

    def in_order(x: Couplings) -> np.ndarray:
        known, hidden = rows_of(x)
        return np.concatenate([known[:, :5].ravel(), x.K.ravel(), hidden.ravel()])

    columns, h = [], 1e-4
    for name in BLOCKS:
        for index in np.ndindex(getattr(couplings, name).shape):
            sides = []
            for sign in (1, -1):
                block = getattr(couplings, name).copy()
                block[index] += sign * h
                at = couplings._replace(**{name: block})
                sides.append(in_order(slopes(gradient(at, visible, covariates=u, estimator="exact"))))
            columns.append((sides[1] - sides[0]) / (2 * h))
    # Columns came block by block; rows of the matrix are in the order of the information.
    numbers = Couplings(*np.split(np.arange(len(columns)), np.cumsum([x.size for x in couplings])[:-1]))
    shaped = Couplings(*(n.reshape(x.shape) for n, x in zip(numbers, couplings, strict=True)))
    order = in_order(shaped)
    np.testing.assert_allclose(complete - missing, np.array(columns)[order], atol=0.012)


def test_intervals_of_every_block_hold_the_truth_as_often_as_they_say() -> None:
    inside: dict[str, list[np.ndarray]] = {name: [] for name in BLOCKS if name != "M"}
    for n in range(2, 18):
        truth, visible, u = with_inputs(n, 4000)
        found = fit(visible, 2, covariates=u, start="signs", truth=truth, seed=n, errors=True)
        assert found.outcome == "converged"
        for name in inside:
            x, error, true = (getattr(of, name) for of in (found.couplings, found.standard_error, truth))
            assert error.shape == x.shape
            inside[name].append((np.abs(x - true) < 1.96 * error).ravel())
    for name, flags in inside.items():
        hits = np.concatenate(flags)
        low, high = stats.binom.interval(0.999, hits.size, 0.95)
        assert low <= hits.sum() <= high, (name, hits.mean())


# Alignment


@pytest.mark.parametrize("seed", range(5))
def test_alignment_takes_fields_along(seed: int) -> None:
    truth, _, _ = network_with_fields(seed, visible=6, hidden=4)
    rng = np.random.default_rng(seed)
    order, signs = rng.permutation(4), rng.choice([-1.0, 1.0], 4)
    turned = truth._replace(
        K=truth.K[:, order] * signs,
        L=truth.L[order] * signs[:, None],
        b=truth.b[order] * signs,
        G=truth.G[order] * signs[:, None],
    )
    scales = nominal_scales(6, 4)
    assert matched(turned, truth, scales) == truth
    assert max(rmse(matched(turned, truth, scales), truth, scales).values()) == 0
    # Of a learner without biases, their places stay empty.
    bare = align(turned, truth, scales).apply(turned.only(()))
    assert [x.size for x in bare[3:]] == [0, 0, 0, 0, 0]
    np.testing.assert_array_equal(bare.L, truth.L)


@pytest.mark.parametrize(
    "options",
    [
        {"estimator": "exact", "tolerance": 1e-8},
        # These need not converge. Their first step is turned; the metric of later ones is made of draws.
        {"estimator": "bp", "max_iterations": 2},
        {"estimator": "tap", "max_iterations": 2},
        {"estimator": "exact", "l1": 1.0, "max_iterations": 2},
    ],
)
def test_learning_from_a_turned_start_ends_in_turned_couplings(options: dict) -> None:
    truth, visible, u = with_inputs(3, 1500)
    order, signs = np.array([1, 0]), np.array([1.0, -1.0])
    turned = truth._replace(
        K=truth.K[:, order] * signs,
        L=truth.L[order] * signs[:, None],
        b=truth.b[order] * signs,
        G=truth.G[order] * signs[:, None],
    )
    one, other = (fit(visible, 2, covariates=u, start=start, seed=1, **options) for start in (truth, turned))
    for name in ("b", "G"):
        x, y = getattr(one.couplings, name), getattr(other.couplings, name)
        np.testing.assert_allclose((y.T * signs).T[order], x, atol=1e-5)
    np.testing.assert_allclose(other.couplings.h, one.couplings.h, atol=1e-5)


# Steps


def test_scaled_steps_solve_with_the_information_of_all_that_is_known() -> None:
    couplings, visible, u = network_with_fields(3, visible=4, hidden=2, length=500)
    slices = Slices.of([visible], [u])
    here = gradient(couplings, slices, estimator="exact")
    products = spin_products(slices, bias=True)
    x = np.hstack([visible[1:-1], np.ones((498, 1)), u[1:-1]])
    np.testing.assert_allclose(products.now, x.T @ x / 498, atol=1e-12)
    before = np.hstack([visible[:-2], np.ones((498, 1)), u[:-2]])
    np.testing.assert_allclose(products.before, before.T @ before / 498, atol=1e-12)
    C = np.block([[products.now, here.visible_hidden], [here.visible_hidden.T, here.hidden_hidden]])
    step, slope = rows_of(scaled_step(here, products)), rows_of(slopes(here))
    np.testing.assert_allclose((step.visible * here.freedom_visible[:, None]) @ C, slope.visible, atol=1e-4)
    np.testing.assert_allclose(
        (step.hidden * here.freedom_hidden[:, None]) @ products.before, slope.hidden, atol=1e-4
    )


def test_metric_steps_solve_with_the_information_of_every_row() -> None:
    couplings, visible, u = network_with_fields(3, visible=4, hidden=2, length=400)
    slices = Slices.of([visible], [u])
    sigma = np.random.default_rng(1).choice(np.array([-1, 1], np.int8), (398, 2))
    metric = metric_of(Anchor(couplings, sigma, True, SMOOTH), slices)
    here = gradient(couplings, slices, estimator="exact")
    step, slope = rows_of(metric_step(metric, here)), rows_of(slopes(here))
    errors = rows_of(complete_errors(metric, 398, couplings))
    known = np.hstack([visible[1:-1], np.ones((398, 1)), u[1:-1]])
    before = np.hstack([visible[:-2], np.ones((398, 1)), u[:-2]])
    theta = known @ np.hstack([couplings.J, couplings.h[:, None], couplings.F]).T + sigma @ couplings.K.T
    field = before @ np.hstack([couplings.L, couplings.b[:, None], couplings.G]).T
    for x, f, ours, theirs, error in (
        (np.hstack([known, sigma]), theta, step.visible, slope.visible, errors.visible),
        (before, field, step.hidden, slope.hidden, errors.hidden),
    ):
        C = x.T @ x / 398
        for i in range(f.shape[1]):
            weights = 1 - np.tanh(f[:, i]) ** 2
            own = (x.T * weights) @ x / 398
            mixed = SMOOTH.own * own + SMOOTH.average * weights.mean() * C + RIDGE * np.eye(x.shape[1])
            np.testing.assert_allclose(mixed @ ours[i], theirs[i], atol=1e-12)
            np.testing.assert_allclose(
                error[i], np.sqrt(np.diag(np.linalg.inv(own + RIDGE * np.eye(len(own)))) / 398)
            )


# States


def session(estimator: str, **options) -> Session:
    truth, visible, u = with_inputs(2, 800)
    learner = Learner(**{"estimator": estimator, "max_iterations": 90, "tolerance": 1e-12} | options)
    scales = scales_for(8, 2)
    return Session.of(Slices.of([visible[:500], visible[500:]], [u[:500], u[500:]]), 2, learner, seed=1,
                      scales=scales, truth=truth)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "stop"),
    [
        ({"estimator": "exact"}, 5),
        ({"estimator": "exact", "start": "random"}, 20),
        ({"estimator": "exact", "step": "gradient"}, 7),
        ({"estimator": "gibbs"}, 3),
        ({"estimator": "gibbs", "start": "random"}, 80),
        ({"estimator": "bp", "max_iterations": 20}, 10),
        ({"estimator": "exact", "l1": 1.0, "max_iterations": 30}, 9),
        ({"estimator": "exact", "decimate": 0.5, "max_iterations": 30}, 9),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_learning_continues_bit_for_bit(options: dict, stop: int, bias: bool) -> None:
    learning = session(**options, bias=bias)
    assert_continues(learning, stop=stop)
    begun = learning.begin()
    wanted = {"J": 64, "K": 16, "L": 16, "h": 8 * bias, "b": 2 * bias, "F": 16, "G": 4, "M": 0}
    assert {name: x.size for name, x in begun.couplings._asdict().items()} == wanted
    assert load(save(begun)) == begun
    # A state with biases is none of a session without, nor the other way round.
    other = session(**options, bias=not bias)
    assert other.resume(save(begun)) is None
    assert learning.resume(save(begun)) == begun


def test_a_problem_says_which_fields_are_learned() -> None:
    _, visible, u = with_inputs(2, 100)
    scales = scales_for(8, 2)
    for slices, bias, fields in (
        (visible, False, []),
        (visible, True, ["h", "b"]),
        (Slices.of([visible], [u]), False, ["F", "G"]),
        (Slices.of([visible], [u]), True, ["h", "b", "F", "G"]),
    ):
        assert prepare(slices, 2, scales, bias=bias).learned_blocks == fields


def test_without_biases_their_gradient_does_not_enter() -> None:
    couplings = draw_couplings(5, 2, seed=1)
    visible = simulate(couplings, 300, seed=2).visible
    bare, whole = gradient_of_bonds(couplings, visible), gradient(couplings, visible, estimator="exact")
    for name in REQUIRED:
        np.testing.assert_allclose(getattr(bare, name), getattr(whole, name), atol=1e-14)
    assert [getattr(bare, name).size for name in "hbFG"] == [0, 0, 0, 0]
    assert whole.visible_hidden.shape == (6, 2)
    np.testing.assert_allclose(whole.visible_hidden[:5], bare.visible_hidden, atol=1e-14)
