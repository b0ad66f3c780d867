"""Inputs are centred and scaled while learning, and everything is given back for the inputs as they were."""

from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import network_with_fields

from kising import Couplings, fit
from kising.estimators.slices import Slices
from kising.learning.errors.standard import information, standard_errors
from kising.learning.inputs import InputUnits
from kising.recordings import as_segments

FAR = np.array([300.0, -4.0])


def recording(length: int = 3000):
    return network_with_fields(3, visible=6, hidden=2, bias=0.3, length=length)


@pytest.mark.parametrize("bias", [True, False])
def test_fields_are_the_same_inside_and_outside(bias: bool) -> None:
    truth, visible, u = recording(200)
    if not bias:
        truth = truth.only(("F", "G"))
    segments = as_segments(visible, u + FAR)
    units = InputUnits.of(segments, bias=bias)
    inner = units.inside(truth)
    natural, own = Slices.of(segments.spins, segments.covariates), units.slices(segments)
    for couplings in (truth, units.outside(inner)):
        outer = (natural.inputs @ couplings.F.T) + (couplings.h if bias else 0)
        np.testing.assert_allclose(own.inputs @ inner.F.T + (inner.h if bias else 0), outer, atol=1e-10)
    assert np.allclose(own.inputs.std(axis=0), 1)
    assert np.allclose(own.inputs.mean(axis=0), 0) == bias


def test_a_constant_input_changes_nothing_but_its_own_weights() -> None:
    _, visible, u = recording(500)
    constant = np.full((len(u), 1), 0.1)
    units = InputUnits.of(as_segments(visible, constant), bias=True)
    assert units.spread == [1.0]
    found = fit(visible, 0, covariates=constant, seed=1)
    assert found.outcome == "converged"
    assert np.all(np.abs(found.couplings.F) < 1e-6)


@pytest.mark.parametrize("estimator", ["exact", "bp", "gibbs"])
def test_an_input_far_from_zero_is_learned_as_any_other(estimator: str) -> None:
    _, visible, u = recording()
    how = {"seed": 2, "estimator": estimator}
    near = fit(visible, 2, covariates=u, **how)
    far = fit(visible, 2, covariates=u + FAR, **how)
    assert near.outcome == far.outcome == "converged"
    for name in ("J", "K", "L", "F", "G"):
        x, y = getattr(near.couplings, name), getattr(far.couplings, name)
        np.testing.assert_allclose(y, x, atol=1e-6)
    np.testing.assert_allclose(far.couplings.h, near.couplings.h - near.couplings.F @ FAR, atol=1e-4)
    np.testing.assert_allclose(far.couplings.b, near.couplings.b - near.couplings.G @ FAR, atol=1e-4)
    assert far.log_likelihood(visible, u + FAR) == pytest.approx(far.log_likelihood(), abs=1e-9)


def test_errors_of_biases_are_those_for_the_inputs_as_they_were() -> None:
    """By the covariance of all couplings, inverted as a whole."""
    truth, visible, u = recording(2000)
    shift = np.array([3.0, -0.5])
    found = standard_errors(truth, Slices.of([visible], [u]), seed=4, shift=shift)
    complete, missing = information(truth, Slices.of([visible], [u]), seed=4)
    covariance = np.linalg.inv(complete + 1e-6 * np.eye(len(complete)) - missing) / (len(visible) - 2)
    known, first_L = 6 + 1 + 2, 6 * (6 + 1 + 2) + 6 * 2
    for error, start in [
        *((found.h[i], known * i) for i in range(6)),
        *((found.b[a], first_L + known * a) for a in range(2)),
    ]:
        functional = np.zeros(len(covariance))
        functional[start + 6 : start + 9] = 1.0, *-shift
        assert error == pytest.approx(np.sqrt(functional @ covariance @ functional), rel=1e-6)
    plain = standard_errors(truth, Slices.of([visible], [u]), seed=4)
    for name in ("J", "K", "L", "F", "G"):
        np.testing.assert_allclose(getattr(found, name), getattr(plain, name), rtol=1e-9)


def test_errors_of_a_fit_do_not_depend_on_where_the_inputs_are() -> None:
    _, visible, u = recording(1500)
    how = {"seed": 2, "estimator": "exact", "errors": True}
    near, far = (fit(visible, 2, covariates=u + offset, **how) for offset in (0.0, FAR))
    for name in ("J", "K", "L", "F", "G"):
        x, y = (getattr(found.standard_error, name) for found in (near, far))
        np.testing.assert_allclose(x, y, rtol=1e-3)
    # A bias for inputs of zero, 300 away from all that was seen, is known as well as the weight is, times 300.
    np.testing.assert_allclose(far.standard_error.h, 300 * far.standard_error.F[:, 0], rtol=0.1)
    again = far.with_errors(visible, u + FAR).standard_error
    assert isinstance(again, Couplings)
    for x, y in zip(again, far.standard_error, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)


def test_monte_carlo_errors_of_biases_are_those_for_the_inputs_as_they_were() -> None:
    """In the errors of a fit as in those that are added later."""
    _, visible, u = recording(600)
    how = {"seed": 2, "estimator": "gibbs", "max_iterations": 55, "threads": 1}
    fitted = fit(visible, 2, covariates=u + FAR, errors=True, **how)
    noise, errors = fitted.monte_carlo_error, fitted.standard_error
    assert all(np.all(error >= x) for error, x in zip(errors, noise, strict=True))
    later = fit(visible, 2, covariates=u + FAR, **how).with_errors(visible, u + FAR).standard_error
    for x, y in zip(errors, later, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)
