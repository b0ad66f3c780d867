"""Without hidden spins the model is one logistic regression per visible spin."""

from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import network_with_fields

from kising import Couplings, draw_couplings, fit, gradient, infer, simulate
from kising.errors import InputError
from kising.estimators.registry import ESTIMATORS, NAMES
from kising.learning.fitted.saving import load_fit

VISIBLE, LENGTH = 5, 1500


def newton(x: np.ndarray, after: np.ndarray) -> np.ndarray:
    """The weights W, (Nv, n), that maximise Σ_t Σ_i [s_i⁺ θ_i - log 2cosh θ_i], θ = W x."""
    weights = np.zeros((after.shape[1], x.shape[1]))
    for i, row in enumerate(weights):
        for _ in range(50):
            expected = np.tanh(x @ row)
            step = np.linalg.solve((x.T * (1 - expected**2)) @ x, x.T @ (after[:, i] - expected))
            row += step
            if np.abs(step).max() < 1e-14:
                break
        assert np.abs(x.T @ (after[:, i] - np.tanh(x @ row))).max() < 1e-8 * len(x)
    return weights


def recording(inputs: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    _, visible, u = network_with_fields(seed, visible=VISIBLE, hidden=0, inputs=inputs, length=LENGTH)
    return visible, u


def design(visible: np.ndarray, u: np.ndarray, *, bias: bool) -> np.ndarray:
    return np.hstack([visible[1:-1], np.ones((len(visible) - 2, int(bias))), u[1:-1]])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("inputs", [0, 2])
@pytest.mark.parametrize("options", [{}, {"step": "gradient", "rate": 1.0, "max_iterations": 3000}])
def test_a_fit_without_hidden_spins_is_a_logistic_regression(bias: bool, inputs: int, options: dict) -> None:
    visible, u = recording(inputs)
    # Inputs of other sizes: weights are in the units of the inputs, however learning goes.
    u = u * [1.0, 20.0][:inputs]
    wanted = newton(design(visible, u, bias=bias), visible[2:])
    found = fit(
        visible, 0, covariates=u if inputs else None, seed=1, bias=bias, prior="none", tolerance=1e-9,
        errors=True, **options,
    )  # fmt: skip
    assert found.outcome == "converged"
    names = ["J", *(["h"] if bias else []), *(["F"] if inputs else [])]
    assert [name for name, ok in found.converged.items() if ok] == list(found.converged) == names
    ours = found.couplings
    np.testing.assert_allclose(ours.J, wanted[:, :VISIBLE], atol=1e-6)
    if bias:
        np.testing.assert_allclose(ours.h, wanted[:, VISIBLE], atol=1e-6)
    else:
        assert not ours.h.any()
    np.testing.assert_allclose(ours.F, wanted[:, VISIBLE + bias :], atol=1e-6)
    assert [x.shape for x in (ours.K, ours.L, ours.b, ours.G)] == [(5, 0), (0, 5), (0,), (0, inputs)]
    # The same regression's likelihood, and its standard errors.
    x, after = design(visible, u, bias=bias), visible[2:]
    theta = x @ wanted.T
    nats = np.sum(after * theta - np.logaddexp(theta, -theta), axis=1).mean()
    assert found.log_likelihood() == pytest.approx(nats, abs=1e-9)
    errors = found.standard_error
    for i in range(VISIBLE):
        covariance = np.linalg.inv((x.T * (1 - np.tanh(theta[:, i]) ** 2)) @ x)
        rows = [errors.J[i], errors.h[i : i + 1] if bias else [], errors.F[i]]
        np.testing.assert_allclose(np.concatenate(rows), np.sqrt(np.diag(covariance)), rtol=1e-3)


@pytest.mark.parametrize("estimator", NAMES)
def test_every_estimator_is_the_same_where_nothing_is_hidden(estimator: str) -> None:
    visible, u = recording(2)
    rng = np.random.default_rng(1)
    couplings = draw_couplings(VISIBLE, 0, bias=0.4, seed=1)
    couplings = couplings._replace(F=rng.standard_normal((VISIBLE, 2)), G=np.empty((0, 2)))
    found = infer(couplings, visible, covariates=u, estimator=estimator)
    theta = visible[1:-1] @ couplings.J.T + couplings.h + u[1:-1] @ couplings.F.T
    np.testing.assert_allclose(found.m, np.tanh(theta), atol=1e-14)
    nats = np.sum(visible[2:] * theta - np.logaddexp(theta, -theta), axis=1)
    np.testing.assert_allclose(found.log_likelihood, nats, rtol=1e-12)
    assert (found.mu.shape, found.pair.shape) == ((LENGTH - 2, 0), (LENGTH - 2, VISIBLE, 0))
    assert found.converged.all()
    slopes = gradient(couplings, visible, covariates=u, estimator=estimator)
    np.testing.assert_allclose(slopes.F, (visible[2:] - found.m).T @ u[1:-1] / (LENGTH - 2), atol=1e-12)
    assert (slopes.corrected, slopes.abs_mu, slopes.abs_pair) == (0.0, 0.0, 0.0)
    learned = fit(visible, 0, covariates=u, estimator=estimator, seed=1, tolerance=1e-8, prior="none")
    assert learned.estimator == "exact"
    assert (
        learned.couplings
        == fit(visible, 0, covariates=u, estimator="exact", seed=2, tolerance=1e-8, prior="none").couplings
    )
    np.testing.assert_allclose(
        learned.couplings.J, newton(design(visible, u, bias=True), visible[2:])[:, :VISIBLE], atol=1e-6
    )


@pytest.mark.parametrize("options", [{"l1": 2.0}, {"decimate": 0.5}, {"prior": 0.5}, {"starts": 3}])
def test_every_option_goes_without_hidden_spins(options: dict) -> None:
    visible, u = recording(1)
    found = fit(visible, 0, covariates=u, seed=1, **options)
    assert found.outcome == "converged"
    plain = fit(visible, 0, covariates=u, seed=1)
    zeros = np.mean(found.couplings.J == 0)
    assert (0.1 < zeros < 0.9) == ("l1" in options or "decimate" in options)
    assert (np.abs(found.couplings.J).sum() < 0.99 * np.abs(plain.couplings.J).sum()) == (
        "starts" not in options
    )
    # Neither a penalty nor decimation takes fields away.
    assert found.couplings.h.all()
    assert found.couplings.F.all()


def test_what_else_can_be_done_with_such_a_fit(tmp_path) -> None:
    visible, u = recording(2)
    u = u * [1e-4, 1.0]
    found = fit(visible, 0, covariates=u, seed=1, errors=True)
    assert np.isfinite(found.forecast_log_likelihood(visible, u))
    # With nothing hidden, spins are independent given the past: the joint law is the product of the forecasts.
    assert found.forecast_log_likelihood(visible, u) == pytest.approx(found.log_likelihood(), rel=1e-9)
    assert found.hidden_states(visible, u).shape == (LENGTH - 2, 0)
    assert found.simulate(50, u[:50], seed=2).hidden.shape == (50, 0)
    assert set(found.edges().block) == {"J", "h", "F"}
    assert "0 hidden" in found.summary()
    found.save(tmp_path / "fit.npz")
    assert load_fit(tmp_path / "fit.npz") == found
    later = fit(visible, 0, covariates=u, seed=1).with_errors(visible, u).standard_error
    for x, y in zip(later, found.standard_error, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9)


def test_truth_and_starts_of_networks_without_hidden_spins() -> None:
    truth = draw_couplings(VISIBLE, 0, bias=0.4, seed=3)
    visible = simulate(truth, 4000, seed=4).visible
    found = fit(visible, 0, truth=truth, start="signs", seed=1)
    assert set(found.rmse) == {"J", "h"}
    assert max(found.rmse.values()) < 0.2
    start = Couplings(np.zeros((5, 5)), np.zeros((5, 0)), np.zeros((0, 5)))
    np.testing.assert_allclose(
        fit(visible, 0, start=start, seed=1, tolerance=1e-9).couplings.J,
        fit(visible, 0, seed=1, tolerance=1e-9).couplings.J,
        atol=1e-7,
    )
    with pytest.raises(InputError, match="hidden=-1"):
        fit(visible, -1, seed=1)


def test_a_hidden_spin_that_does_nothing_changes_nothing() -> None:
    visible, u = recording(2)
    rng = np.random.default_rng(5)
    alone = draw_couplings(VISIBLE, 0, bias=0.4, seed=1)
    alone = alone._replace(F=rng.standard_normal((VISIBLE, 2)), G=np.empty((0, 2)))
    beside = alone._replace(
        K=np.zeros((VISIBLE, 1)), L=rng.standard_normal((1, VISIBLE)), b=np.ones(1), G=np.ones((1, 2))
    )
    for entry in ESTIMATORS:
        how = {"covariates": u, "estimator": entry.name, "sweeps": 20, "seed": 1}
        one, two = gradient(alone, visible, **how), gradient(beside, visible, **how)
        for name in ("J", "h", "F"):
            np.testing.assert_allclose(getattr(two, name), getattr(one, name), atol=1e-7)
        accuracy = 1e-4 if entry.samples else 1e-9
        assert two.log_likelihood == pytest.approx(one.log_likelihood, abs=accuracy)
