"""Recovery: learned couplings approach the true ones as data grow, and belief propagation costs J nothing."""

from __future__ import annotations

import numpy as np
import pytest

from kising import Couplings, bond_scales, draw_couplings, fit, gradient, simulate
from kising.blocks import REQUIRED

LENGTHS = (1_000, 10_000, 40_000)
NETWORKS = range(5)
SCALES = bond_scales(20, 4, strength=1.0, connectivity=1.0)


def learn(network: int, length: int, estimator: str):
    truth = draw_couplings(20, 4, seed=[network, 1])
    visible = simulate(truth, length, seed=[network, 2]).visible
    return fit(
        visible, 4, estimator=estimator, correlations="corrected", start="signs", truth=truth, scales=SCALES,
        seed=[network, 3], threads=2, bias=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def exact_fits():
    return {(n, length): learn(n, length, "exact") for n in NETWORKS for length in LENGTHS}


def test_error_falls_as_one_over_root_t_with_exact_averages(exact_fits) -> None:
    for block in "JKL":
        errors = [np.mean([exact_fits[n, length].rmse[block] for n in NETWORKS]) for length in LENGTHS]
        slope = np.polyfit(np.log(LENGTHS), np.log(errors), 1)[0]
        assert slope == pytest.approx(-0.5, abs=0.1), block


def test_default_step_converges_in_under_sixty_iterations(exact_fits) -> None:
    assert {f.outcome for f in exact_fits.values()} == {"converged"}
    assert max(f.iterations for f in exact_fits.values()) < 60


def test_bp_reaches_the_error_of_exact_averages_in_j(exact_fits) -> None:
    bp = np.mean([learn(n, 10_000, "bp").rmse["J"] for n in NETWORKS])
    exact = np.mean([exact_fits[n, 10_000].rmse["J"] for n in NETWORKS])
    assert bp < 1.05 * exact


@pytest.mark.parametrize("network", [2, 6])
def test_learning_does_not_end_on_a_plateau_where_bonds_saturate(network: int) -> None:
    """Sparse strong networks on which steps divided by averaged information are next to nothing far from the end."""
    truth = draw_couplings(12, 3, connectivity=0.15, seed=network)
    visible = simulate(truth, 5_000, seed=network).visible
    scales = bond_scales(12, 3, strength=1.0, connectivity=0.15)
    nats = {}
    for name, start in {"signs": "signs", "truth": truth}.items():
        result = fit(
            visible, 3, estimator="exact", start=start, truth=truth, scales=scales, seed=network, bias=False
        )
        assert result.outcome == "converged"
        nats[name] = gradient(result.couplings, visible, estimator="exact").log_likelihood * 4_998
    assert nats["signs"] > nats["truth"] - 1


def test_recovery_does_not_depend_on_names_of_hidden_units() -> None:
    truth = draw_couplings(10, 2, seed=1)
    visible = simulate(truth, 20_000, seed=2).visible
    result = fit(visible, 2, estimator="exact", start="random", truth=truth, seed=4, bias=False)
    turned = Couplings(truth.J, -truth.K[:, ::-1], -truth.L[::-1])
    again = fit(visible, 2, estimator="exact", start="random", truth=turned, seed=4, bias=False)
    assert result.rmse == pytest.approx(again.rmse)
    assert max(result.rmse.values()) < 0.15


def test_samples_are_as_good_as_sums_over_all_states(exact_fits) -> None:
    length = 10_000
    errors = {}
    for n in NETWORKS:
        found = learn(n, length, "gibbs")
        assert found.outcome == "converged"
        assert found.estimator == "gibbs"
        exact = exact_fits[n, length]
        for name in REQUIRED:
            noise, ours, theirs = (
                getattr(x, name) for x in (found.monte_carlo_error, found.couplings, exact.couplings)
            )
            # The two fits differ by the noise that the sampler owns up to, and by little else.
            difference = np.sqrt(np.mean((ours - theirs) ** 2))
            assert difference < 3 * np.sqrt(np.mean(noise**2))
            errors.setdefault(name, []).append((found.rmse[name], exact.rmse[name]))
    for pairs in errors.values():
        ours, theirs = np.mean(pairs, axis=0)
        assert ours == pytest.approx(theirs, rel=0.02)
