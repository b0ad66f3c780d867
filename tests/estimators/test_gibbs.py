"""The sampler against the sum over all states."""

from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import small_network

from kising import draw_couplings, gradient, infer, simulate
from kising.estimators.chunks import CHUNK_SLICES, Weights, empty_estimate, fields
from kising.estimators.gibbs.chains import LARGEST_EXPONENT, _largest_exponent, first_chains, sweep
from kising.estimators.gibbs.importance import log_z
from kising.estimators.gradient import sampled_gradient
from kising.estimators.slices import as_slices
from kising.kernels.counter import key_of
from kising.model import Couplings


@pytest.mark.parametrize(("strength", "connectivity"), [(0.5, 1.0), (1.0, 1.0), (1.0, 0.3), (2.0, 1.0)])
def test_averages_are_the_exact_ones_within_their_errors(strength: float, connectivity: float) -> None:
    couplings = draw_couplings(9, 3, strength=strength, connectivity=connectivity, seed=1)
    visible = simulate(couplings, 130, seed=2).visible
    sampled = infer(couplings, visible, estimator="gibbs", sweeps=800, seed=3)
    exact = infer(couplings, visible, estimator="exact")
    for name in ("m", "mu", "pair"):
        error = getattr(sampled.errors, name)
        difference = getattr(sampled, name) - getattr(exact, name)
        assert error.shape == difference.shape
        if connectivity == 1 and strength <= 1:
            # Where states turn up often enough to leave a scatter. Of eight batches an error is itself uncertain:
            # what is tested is the typical size of difference/error.
            seen = error > 1e-6
            share = difference[seen] / error[seen]
            assert 0.5 < np.median(np.abs(share)) < 1.1
            assert np.mean(np.abs(share) > 4) < 0.02
        assert np.sqrt(np.mean(difference**2)) < 0.03
    slopes = gradient(couplings, visible, estimator="gibbs", sweeps=800, seed=3)
    truth = gradient(couplings, visible, estimator="exact")
    for name in "JKL":
        np.testing.assert_allclose(getattr(slopes, name), getattr(truth, name), atol=0.01)


def test_the_law_of_a_chain_is_the_posterior() -> None:
    """Not only its averages: every state as often as it is likely."""
    couplings, visible = small_network(4, visible=4, hidden=2, strength=1.5, length=12)
    block = fields(couplings, visible, slice(0, 10))
    key = key_of(1)
    chains = first_chains(10, 2, key)
    counts = np.zeros((10, 4))
    n = 6000
    for k in range(n):
        sweep(
            couplings,
            block,
            chains,
            empty_estimate(10, 4, 2, keep_pairs=False),
            first=0,
            key=key,
            iteration=k,
        )
        counts[np.arange(10), (chains[:, 0] > 0) + 2 * (chains[:, 1] > 0)] += 1
    states = np.array([[-1, -1], [1, -1], [-1, 1], [1, 1]])
    f = block.theta[:, None, :] + (states @ couplings.K.T)[None]
    log_weight = block.g @ states.T - np.sum(np.logaddexp(f, -f), axis=2)
    law = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    law /= law.sum(axis=1, keepdims=True)
    # Successive states are correlated: as if a fifth of them were independent.
    np.testing.assert_array_less(np.abs(counts / n - law), 5 * np.sqrt(law * (1 - law) * 5 / n) + 1e-3)


def test_chains_depend_neither_on_threads_nor_on_blocks() -> None:
    couplings = draw_couplings(6, 5, seed=1)
    visible = simulate(couplings, CHUNK_SLICES + 300, seed=2).visible
    key = key_of(3)
    n = len(visible) - 2
    chains = first_chains(n, 5, key)
    before = chains.copy()
    one, moved = sampled_gradient(couplings, visible, chains, key=key, iteration=4, threads=1)
    two, moved_too = sampled_gradient(couplings, visible, chains, key=key, iteration=4, threads=2)
    np.testing.assert_array_equal(chains, before)
    np.testing.assert_array_equal(moved, moved_too)
    for x, y in zip(one, two, strict=True):
        np.testing.assert_array_equal(x, y)
    # The second half of the recording by itself, told which slices these are.
    part = slice(n // 2, n)
    alone = chains[part].copy()
    out = empty_estimate(n - n // 2, 6, 5, keep_pairs=False)
    sweep(couplings, fields(couplings, visible, part), alone, out, first=n // 2, key=key, iteration=4)
    np.testing.assert_array_equal(alone, moved[part])
    # Another iteration, and another key, move them elsewhere.
    for other in ({"key": key, "iteration": 5}, {"key": key_of(4), "iteration": 4}):
        assert not np.array_equal(sampled_gradient(couplings, visible, chains, threads=1, **other)[1], moved)


def test_strong_couplings_end_in_finite_numbers() -> None:
    couplings = Couplings(*(200.0 * x for x in draw_couplings(7, 3, seed=5)))
    visible = simulate(couplings, 60, seed=6).visible
    sampled = infer(couplings, visible, estimator="gibbs", sweeps=20, seed=1)
    for name in ("m", "mu", "pair", "log_likelihood"):
        assert np.isfinite(getattr(sampled, name)).all()
    assert np.abs(sampled.mu).max() <= 1


def test_single_precision_gives_the_averages_of_double_precision() -> None:
    couplings = draw_couplings(30, 6, connectivity=0.5, seed=5)
    slices, key = as_slices(simulate(couplings, 502, seed=6).visible), key_of(1)
    found = []
    for kind in (np.float32, np.float64):
        chunk = Weights.of(couplings, slices, kind).fields(slices, slice(0, 500))
        chains, out = first_chains(500, 6, key), empty_estimate(500, 30, 6, keep_pairs=True)
        sweep(couplings, chunk, chains, out, first=0, key=key, iteration=0)
        found.append((out, chains))
    (single, one), (double, two) = found
    assert not np.array_equal(single.m, double.m)
    np.testing.assert_array_equal(one, two)
    for name in ("m", "mu", "pair"):
        np.testing.assert_allclose(getattr(single, name), getattr(double, name), atol=3e-6)
    np.testing.assert_allclose(single.pair_sum, double.pair_sum, atol=500 * 3e-6)


@pytest.mark.parametrize("strength", [3.0, 20.0])
def test_couplings_beyond_the_range_of_products_give_the_exact_odds(strength: float) -> None:
    """Of single precision, and of double precision. With one hidden spin, one visit knows its average."""
    K = strength * np.sign(np.random.default_rng(1).normal(size=(12, 1)))
    couplings = draw_couplings(12, 1, seed=5)._replace(K=K)
    slices, key = as_slices(simulate(couplings, 202, seed=6).visible), key_of(1)
    chunk = Weights.of(couplings, slices, np.float32).fields(slices, slice(0, 200))
    assert _largest_exponent(K, chunk) > LARGEST_EXPONENT["float32" if strength == 3 else "float64"]
    out = empty_estimate(200, 12, 1, keep_pairs=False)
    sweep(couplings, chunk, first_chains(200, 1, key), out, first=0, key=key, iteration=0)
    f = chunk.theta[:, None, :].astype(float) + np.array([1.0, -1.0])[:, None] * K.T
    log_weight = chunk.g * np.array([1.0, -1.0]) - np.sum(np.logaddexp(f, -f), axis=2)
    mu = np.tanh(0.5 * (log_weight[:, :1] - log_weight[:, 1:]))
    np.testing.assert_allclose(out.mu, mu, atol=1e-4)


@pytest.mark.parametrize("strength", [0.3, 1.0])
def test_likelihood_by_importance_sampling(strength: float) -> None:
    couplings = draw_couplings(10, 4, strength=strength, seed=7)
    visible = simulate(couplings, 200, seed=8).visible
    block = fields(couplings, visible, slice(0, 198))
    mu = infer(couplings, visible, estimator="bp").mu
    exact = infer(couplings, visible, estimator="exact")
    constant = np.sum(block.after * block.theta, axis=1) - np.logaddexp(block.b, -block.b).sum(axis=1)
    found, error = log_z(couplings, block, mu, first=0, key=key_of(9), draws=400)
    share = (found + constant - exact.log_likelihood) / error
    assert 0.8 < np.sqrt(np.mean(share**2)) < 1.3
    assert error.max() < 0.2
    more, smaller = log_z(couplings, block, mu, first=0, key=key_of(9), draws=1600)
    assert np.median(error / smaller) == pytest.approx(2, rel=0.2)
    assert not np.array_equal(found, more)
    sampled = infer(couplings, visible, estimator="gibbs", seed=3)
    share = (sampled.log_likelihood - exact.log_likelihood) / sampled.errors.log_likelihood
    assert 0.8 < np.sqrt(np.mean(share**2)) < 1.3


def test_a_sampler_wants_a_seed() -> None:
    couplings, visible = small_network(1)
    with pytest.raises(ValueError, match="seed: give a number"):
        infer(couplings, visible, estimator="gibbs")
    with pytest.raises(ValueError, match="sweeps=2"):
        infer(couplings, visible, estimator="gibbs", sweeps=2, seed=1)
