"""Likelihood, forecasts and averages from samples, against sums over all unknown spins."""

import numpy as np
import pytest
from support.path_sums import some_network, some_steps

from kising import Couplings, draw_couplings, gradient, infer, simulate
from kising.errors import InputError
from kising.estimators.paths.annealing import annealed_log_likelihood
from kising.estimators.paths.enumeration import enumerate_paths
from kising.estimators.paths.network import Network, network_of
from kising.estimators.paths.particles import follow
from kising.estimators.paths.timeline import Timeline
from kising.estimators.slices import Slices
from kising.kernels.counter import key_of
from kising.learning.fitted.forecasts import forecasts

CASES = {
    "hidden": (1, 6, 3, [80], 0.0, 0),
    "gaps": (2, 6, 2, [40, 50], 0.15, 2),
    "none": (3, 7, 0, [80], 0.3, 0),
}


@pytest.fixture(params=CASES)
def problem(request) -> tuple[Network, Timeline]:
    seed, visible, hidden, lengths, missing, inputs = CASES[request.param]
    network = some_network(seed, visible, hidden, inputs=inputs, scale=0.4)
    return network, some_steps(seed, visible, lengths, inputs=inputs, missing=missing)


def test_the_annealed_likelihood_is_within_its_error(problem):
    network, timeline = problem
    exact = enumerate_paths(network, timeline).log_likelihood.sum()
    z = []
    for seed in range(3):
        found = annealed_log_likelihood(network, timeline, key=key_of(seed), sweeps=400)
        assert found.error < 4.0
        z.append((found.log_likelihood - exact) / found.error)
    assert np.max(np.abs(z)) < 4.0
    assert np.sqrt(np.mean(np.square(z))) < 2.0


def test_without_couplings_from_unknown_spins_the_likelihood_is_exact():
    network = some_network(1, 4, 2)
    network.weights[:4] = 0.0
    timeline = some_steps(1, 4, [20, 30], missing=0.2)
    exact = enumerate_paths(network, timeline).log_likelihood.sum()
    found = annealed_log_likelihood(network, timeline, key=key_of(1), sweeps=200)
    np.testing.assert_allclose(found, (exact, 0.0), rtol=0, atol=1e-9)


def test_particles_forecast_as_sums_do(problem):
    network, timeline = problem
    exact, nv = enumerate_paths(network, timeline), network.visible
    found = follow(network, timeline, seed=1, particles=4000)
    known = ~np.isnan(exact.forecast[:, :nv])
    assert np.array_equal(known, ~np.isnan(found.forecast))
    off = (found.forecast - exact.forecast[:, :nv])[known]
    assert np.abs(off).max() < 0.06
    assert np.sqrt(np.mean(off**2)) < 0.005
    # Of eight batches, the error of the mean has a t distribution, of variance 7/5.
    error = found.forecast_error[known]
    certain = error < 1e-12  # nothing unknown acts there
    assert np.abs(off[certain]).max(initial=0.0) < 1e-12
    assert np.sqrt(np.mean((off[~certain] / error[~certain]) ** 2)) < 1.5
    assert abs(found.log_likelihood.sum() - exact.log_likelihood.sum()) < 4 * found.error < 1.0
    again = follow(network, timeline, seed=1, particles=4000, threads=2)
    assert np.array_equal(found.forecast, again.forecast, equal_nan=True)


@pytest.mark.parametrize("strength", [1.0, 2.0])
def test_particles_follow_many_hidden_spins(strength):
    """Of 80 visible spins, each tells something about 8 hidden ones: hardly a state drawn without them is likely."""
    couplings = draw_couplings(80, 8, strength=strength, bias=0.3, hidden_coupling=strength, seed=1)
    slices = Slices.of([simulate(couplings, 60, seed=2).visible])
    timeline = Timeline.of(slices)
    exact = forecasts(couplings, slices, seed=1).up
    found = follow(network_of(couplings), timeline, seed=3)
    off = found.forecast[2:] - exact
    assert np.sqrt(np.mean(off**2)) < 0.004
    assert np.sqrt(np.mean((off / found.forecast_error[2:]) ** 2)) < 1.5
    joint = infer(couplings, slices.spins, estimator="exact").log_likelihood
    assert abs(found.log_likelihood[2:].sum() - joint.sum()) < 4 * found.error < 4.0


def coupled_network(seed: int = 1) -> tuple[Couplings, np.ndarray, np.ndarray]:
    couplings = draw_couplings(5, 2, bias=0.3, hidden_coupling=1.5, seed=seed)
    couplings = couplings._replace(F=0.3 * np.ones((5, 1)), G=-0.4 * np.ones((2, 1)))
    covariates = np.sin(np.arange(60.0))[:, None]
    return couplings, simulate(couplings, 60, covariates=covariates, seed=seed).visible, covariates


def test_one_matrix_of_couplings_holds_all_blocks():
    couplings, visible, covariates = coupled_network()
    timeline = Timeline.of(Slices.of([visible], [covariates]))
    found = enumerate_paths(network_of(couplings), timeline).log_likelihood[1:]
    exact = infer(couplings, visible, covariates=covariates, estimator="exact").log_likelihood
    np.testing.assert_allclose(found[1:], exact, rtol=0, atol=1e-10)


@pytest.mark.parametrize("share", [0.0, 0.1])
@pytest.mark.parametrize("coupled", [True, False])
def test_sampled_averages_are_those_of_exact_ones(coupled, share):
    couplings, visible, covariates = coupled_network()
    if not coupled:
        couplings = couplings._replace(M=np.zeros((2, 2)))
    data = np.where(np.random.default_rng(1).random(visible.shape) < share, np.nan, visible)
    exact, sampled = (
        infer(couplings, data, covariates=covariates, estimator=name, sweeps=2000, seed=1)
        for name in ("exact", "gibbs")
    )
    for name in ("m", "mu", "pair", *(["in_time"] if coupled or share else [])):
        np.testing.assert_allclose(getattr(sampled, name), getattr(exact, name), rtol=0, atol=0.13)
        assert np.sqrt(np.mean((getattr(sampled, name) - getattr(exact, name)) ** 2)) < 0.03
    assert abs(np.mean(sampled.log_likelihood - exact.log_likelihood)) < 0.05


@pytest.mark.parametrize("coupled", [True, False])
def test_gradients_with_gaps(coupled):
    couplings, visible, covariates = coupled_network(2)
    if not coupled:
        couplings = couplings._replace(M=np.zeros((2, 2)))
    data = np.where(np.random.default_rng(1).random(visible.shape) < 0.1, np.nan, visible)
    found = gradient(couplings, data, covariates=covariates, estimator="exact")
    noisy = gradient(couplings, data, covariates=covariates, estimator="gibbs", sweeps=3000, seed=3)
    step = 1e-5
    for name in couplings._fields:
        if name == "M" and not coupled:
            assert found.M.size == 0
            continue
        block = getattr(couplings, name)
        np.testing.assert_allclose(getattr(noisy, name), getattr(found, name), rtol=0, atol=0.05)
        for place in np.ndindex(block.shape):
            moved = [block.copy(), block.copy()]
            moved[0][place] += step
            moved[1][place] -= step
            up, down = (
                gradient(couplings._replace(**{name: x}), data, covariates=covariates, estimator="exact")
                for x in moved
            )
            slope = (up.log_likelihood - down.log_likelihood) / (2 * step)
            np.testing.assert_allclose(getattr(found, name)[place], slope, rtol=0, atol=1e-7)


def test_who_does_not_know_gaps_says_so():
    couplings, visible, covariates = coupled_network()
    couplings = couplings._replace(M=np.zeros((2, 2)))
    data = visible.astype(float)
    data[5, 1] = np.nan
    with pytest.raises(
        InputError, match=r"estimator bp cannot treat missing entries; use auto, exact, gibbs, or"
    ):
        infer(couplings, data, covariates=covariates, estimator="bp")
    data[7] = np.nan
    wide = np.tile(data, (1, 3))
    many = draw_couplings(15, 2, seed=1)
    with pytest.raises(InputError, match=r"up to 17 of them, which is too many: .*use estimator gibbs"):
        infer(many, wide, estimator="exact")
