"""Averaging what is noisy, and knowing how noisy it is."""

from __future__ import annotations

import numpy as np
import pytest

from kising.learning.state import Sampler
from kising.learning.steps.sampled import (
    FIRST_BATCH,
    LEAST_APPROACH,
    MOST_BATCHES,
    arrive,
    begin_sampling,
    gain,
    mean,
    monte_carlo_error,
)

BLOCKS = [slice(0, 300), slice(300, 400), slice(400, 500)]
STATISTICAL = np.ones(500)


def feed(sampler: Sampler, values: np.ndarray, longest: int = 10**6) -> Sampler:
    for value in values:
        sampler = arrive(sampler, value, BLOCKS, STATISTICAL, longest_approach=longest)
    return sampler


def noise(n: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 500))


def averaging() -> Sampler:
    return begin_sampling(10, 2, 500, seed=1)._replace(averages=True)


def test_steps_that_lead_nowhere_end_the_approach() -> None:
    sampler = feed(begin_sampling(10, 2, 500, seed=1), 0.1 * noise(LEAST_APPROACH - 1))
    assert not sampler.averages
    assert (gain(sampler), mean(sampler)) == (1.0, None)
    sampler = feed(sampler, 0.1 * noise(1))
    assert sampler.averages
    assert sampler.iterations == 0


@pytest.mark.parametrize("block", range(3))
def test_a_drift_of_one_block_goes_on_until_it_must_not(block: int) -> None:
    values = 0.1 * noise(199)
    values[:, BLOCKS[block]] += 0.05 * np.arange(199)[:, None]
    sampler = feed(begin_sampling(10, 2, 500, seed=1), values, longest=200)
    assert not sampler.averages
    assert feed(sampler, values[:1], longest=200).averages


def test_the_average_is_that_of_all_iterations_through_all_mergers() -> None:
    values = noise(FIRST_BATCH * MOST_BATCHES * 5 + 3)
    sampler = feed(averaging(), values)
    np.testing.assert_allclose(mean(sampler), values.mean(axis=0), atol=1e-12)
    assert len(sampler.batches) <= MOST_BATCHES
    assert sampler.batch > FIRST_BATCH
    assert gain(sampler) == pytest.approx((len(values) + 1) ** -0.6)


def test_the_error_is_that_of_independent_numbers() -> None:
    values = noise(640)
    error = monte_carlo_error(feed(averaging(), values), BLOCKS)
    assert np.sqrt(np.mean(error**2)) == pytest.approx(1 / np.sqrt(640), rel=0.1)
    assert monte_carlo_error(feed(averaging(), values[:10]), BLOCKS) is None


def test_correlated_numbers_have_a_larger_error() -> None:
    values = noise(2000)
    for k in range(1, len(values)):
        values[k] += 0.8 * values[k - 1]
    error = monte_carlo_error(feed(averaging(), values), BLOCKS)
    # Var of a mean of n: (1+ρ)/(1-ρ) times that of independent numbers of the same variance, 1/(1-ρ²).
    expected = np.sqrt(1.8 / 0.2 / (1 - 0.64) / 2000)
    assert np.sqrt(np.mean(error**2)) == pytest.approx(expected, rel=0.15)


def test_drift_enters_the_error_of_its_block_alone() -> None:
    values = 0.01 * noise(320)
    still = monte_carlo_error(feed(averaging(), values), BLOCKS)
    values[:, BLOCKS[1]] += np.linspace(0, 1, 320)[:, None]
    moving = monte_carlo_error(feed(averaging(), values), BLOCKS)
    np.testing.assert_array_equal(moving[BLOCKS[0]], still[BLOCKS[0]])
    # From its first half to its second the mean has gone by a half.
    assert np.sqrt(np.mean(moving[BLOCKS[1]] ** 2)) > 0.1


def test_a_block_that_had_not_arrived_is_told_apart() -> None:
    values = 0.1 * noise(100)
    values[:, BLOCKS[1]] += 0.05 * np.arange(100)[:, None]
    assert feed(begin_sampling(10, 2, 500, seed=1), values, longest=100).arrived == (True, False, True)
    # Noise is no drift, though the halves differ by 0.3 of it: only what it does not explain counts.
    loud = feed(begin_sampling(10, 2, 500, seed=1), 0.8 * noise(LEAST_APPROACH))
    assert (loud.averages, loud.arrived) == (True, (True, True, True))
    # Too short a way says nothing.
    short = feed(begin_sampling(10, 2, 500, seed=1), 0.1 * noise(20), longest=20)
    assert (short.averages, short.arrived) == (True, (False, False, False))
