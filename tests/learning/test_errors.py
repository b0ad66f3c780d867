"""The observed information against second derivatives of the exact likelihood, and its errors against the truth."""

from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import gradient_of_bonds

from kising import Couplings, bond_scales, draw_couplings, fit, simulate
from kising.blocks import REQUIRED
from kising.learning.errors import standard as module
from kising.learning.errors.standard import information, standard_errors
from kising.learning.layout import slopes


def flat(couplings: Couplings) -> np.ndarray:
    return np.concatenate([x.ravel() for x in couplings])


def shaped(vector: np.ndarray, like: Couplings) -> Couplings:
    parts = np.split(vector, np.cumsum([x.size for x in like])[:-1])
    return Couplings(*(part.reshape(x.shape) for part, x in zip(parts, like, strict=True)))


def curvature(couplings: Couplings, visible: np.ndarray) -> np.ndarray:
    """Minus the second derivatives of the mean log-likelihood of a slice, by differences of its exact gradient."""
    here, columns, h = flat(couplings), [], 1e-4
    for k in range(len(here)):
        step = np.eye(len(here))[k] * h
        up, down = (gradient_of_bonds(shaped(here + sign * step, couplings), visible) for sign in (1, -1))
        columns.append((flat(slopes(down)) - flat(slopes(up))) / (2 * h))
    return np.array(columns)


@pytest.fixture(scope="module")
def small():
    couplings = draw_couplings(4, 2, strength=1.2, seed=1).only(())
    return couplings, simulate(couplings, 300, seed=2).visible


def test_complete_less_missing_is_the_curvature_of_the_likelihood(small) -> None:
    couplings, visible = small
    complete, missing = information(couplings, visible, seed=3, samples=1500)
    observed = complete - missing
    np.testing.assert_array_equal(complete, complete.T)
    np.testing.assert_allclose(missing, missing.T, atol=1e-14)
    expected = curvature(couplings, visible)
    # Every element of every pair of blocks, where the missing part is as large as 0.5.
    assert np.abs(missing).max() > 0.4
    np.testing.assert_allclose(observed, expected, atol=0.005)


def test_few_samples_have_no_bias() -> None:
    couplings = draw_couplings(10, 2, seed=1).only(())
    visible = simulate(couplings, 4000, seed=2).visible
    many = [standard_errors(couplings, visible, seed=k) for k in range(6)]
    exact = np.sqrt(np.diag(np.linalg.inv(curvature(couplings, visible))) / (len(visible) - 2))
    found = np.mean([flat(x) for x in many], axis=0)
    np.testing.assert_allclose(found, exact, rtol=0.06)


def test_chunks_do_not_matter(small, monkeypatch: pytest.MonkeyPatch) -> None:
    couplings, visible = small
    whole = information(couplings, visible, seed=3)
    monkeypatch.setattr(module, "LEAST_CHUNK_NUMBERS", 20_000)
    parts = information(couplings, visible, seed=3)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_what_the_data_do_not_tell_has_no_finite_error_and_the_rest_has() -> None:
    """A hidden spin without bonds to later spins: nothing is known of the bonds that it has from earlier ones."""
    truth = draw_couplings(10, 2, seed=1)
    truth.K[:, 1] = 0.0
    visible = simulate(truth, 3000, seed=2).visible
    errors = standard_errors(truth, visible, seed=3)
    without = standard_errors(Couplings(truth.J, truth.K[:, :1], truth.L[:1]), visible, seed=3)
    assert np.isinf(errors.L[1]).all()
    # Bonds to later spins can be told, though not well, while those from earlier ones are held.
    assert np.isfinite(errors.K[:, 1]).all()
    for ours, alone in (
        (errors.J, without.J),
        (errors.K[:, 0], without.K[:, 0]),
        (errors.L[0], without.L[0]),
    ):
        np.testing.assert_allclose(ours, alone, rtol=0.2)


def test_a_network_that_is_too_large_is_refused_before_learning() -> None:
    visible = simulate(draw_couplings(99, 2, seed=1), 200, seed=2).visible
    with pytest.raises(
        ValueError, match="a network of 99 visible and 2 hidden spins has 10197; allowed: up to 10000"
    ):
        fit(visible, 2, seed=1, errors=True, bias=False)


def covered(networks: range, *, visible: int, hidden: int, length: int, estimator: str) -> dict[str, float]:
    """How many of the true couplings lie within 1.96 standard errors of the learned ones."""
    inside: dict[str, list[float]] = {x: [] for x in REQUIRED}
    scales = bond_scales(visible, hidden, strength=1.0, connectivity=1.0)
    for n in networks:
        truth = draw_couplings(visible, hidden, seed=[n, 1])
        spins = simulate(truth, length, seed=[n, 2]).visible
        found = fit(
            spins, hidden, estimator=estimator, start="signs", truth=truth, scales=scales, seed=[n, 3], errors=True,
            bias=False,
        )  # fmt: skip
        for name in REQUIRED:
            x, error, true = (getattr(y, name) for y in (found.couplings, found.standard_error, truth))
            inside[name].append(float(np.mean(np.abs(x - true) < 1.96 * error)))
    return {name: float(np.mean(x)) for name, x in inside.items()}


@pytest.mark.parametrize(
    ("estimator", "networks"),
    [("gibbs", range(4)), pytest.param("exact", range(4, 14), marks=pytest.mark.slow)],
)
def test_intervals_hold_the_truth_as_often_as_they_say(estimator: str, networks: range) -> None:
    found = covered(networks, visible=20, hidden=4, length=10_000, estimator=estimator)
    for name, share in found.items():
        assert 0.92 <= share <= 0.97, name


def test_errors_of_sampling_are_part_of_the_errors() -> None:
    truth = draw_couplings(8, 2, seed=1)
    spins = simulate(truth, 2000, seed=2).visible
    found = fit(spins, 2, estimator="gibbs", start="signs", truth=truth, seed=3, errors=True)
    alone = standard_errors(found.couplings, spins, seed=(3, 2), widths=found.prior_widths)
    for total, noise, data in zip(found.standard_error, found.monte_carlo_error, alone, strict=True):
        np.testing.assert_allclose(total**2, noise**2 + data**2)
    assert fit(spins, 2, estimator="exact", start="signs", truth=truth, seed=3).standard_error is None
