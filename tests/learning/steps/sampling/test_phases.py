"""Means of noisy couplings over iterations, their drift and their Monte-Carlo error."""

from __future__ import annotations

import numpy as np
import pytest

from kising.learning.state import Sampler
from kising.learning.steps.sampling.phases import (
    FIRST_BATCH,
    LEAST_APPROACH,
    LEAST_AVERAGE,
    LEAST_SHARE,
    LONG_FROM,
    LONG_MOMENTUM,
    MOMENTUM,
    MOMENTUM_FROM,
    MOST_BATCHES,
    arrive,
    begin_sampling,
    drifts,
    gain,
    mean,
    momentum,
    monte_carlo_error,
)

BLOCKS = [slice(0, 300), slice(300, 400), slice(400, 500)]
STATISTICAL = np.ones(500)


def feed(sampler: Sampler, values: np.ndarray) -> Sampler:
    for value in values:
        sampler = arrive(sampler, value, BLOCKS, STATISTICAL, noise=0.1, iteration=sampler.iterations)
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
def test_a_drift_of_one_block_goes_on_until_it_ends(block: int) -> None:
    way = np.minimum(0.05 * np.arange(600), 15.0)
    values = 0.1 * noise(600)
    values[:, BLOCKS[block]] += way[:, None]
    sampler = feed(begin_sampling(10, 2, 500, seed=1), values[:300])
    assert not sampler.averages
    # Half of the last third, 50 iterations, is a way of 2.5.
    assert drifts(sampler, BLOCKS, STATISTICAL)[block] == pytest.approx(2.5, rel=0.1)
    sampler = feed(sampler, values[300:])
    assert sampler.averages
    # The mean of an approach that was cut short is that of where it was of late, not of the whole way.
    cut = feed(begin_sampling(10, 2, 500, seed=1), values[:300])
    assert mean(cut) is None
    assert np.mean(mean(cut, cut_short=True)[BLOCKS[block]]) > 10
    assert monte_carlo_error(cut, BLOCKS) is None
    assert np.all(monte_carlo_error(cut, BLOCKS, cut_short=True)[BLOCKS[block]] > 0.5)


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
    values = 0.01 * noise(300)
    still = monte_carlo_error(feed(averaging(), values), BLOCKS)
    values[:, BLOCKS[1]] += np.linspace(0, 1, 300)[:, None]
    moving = monte_carlo_error(feed(averaging(), values), BLOCKS)
    np.testing.assert_array_equal(moving[BLOCKS[0]], still[BLOCKS[0]])
    # From its first half to its second the mean has gone by a half.
    assert np.sqrt(np.mean(moving[BLOCKS[1]] ** 2)) > 0.1


def test_an_average_that_drifts_goes_back_to_full_steps() -> None:
    """Once it is long enough, and only where the drift keeps the error of a block above its limit."""
    way = np.linspace(0, 1, LEAST_AVERAGE)[:, None]
    drifting = 0.01 * noise(LEAST_AVERAGE)
    drifting[:, BLOCKS[1]] += way
    before = feed(averaging(), drifting[:-1])
    assert (before.averages, before.iterations) == (True, LEAST_AVERAGE - 1)
    assert monte_carlo_error(before, BLOCKS)[BLOCKS[1]].mean() > 0.1
    after = feed(before, drifting[-1:])
    assert (after.averages, after.iterations, len(after.batches), gain(after)) == (False, 0, 0, 1.0)
    # A drift that is small against the statistical error does no harm, nor does scatter, however large it is.
    assert feed(averaging(), 0.1 * drifting).averages
    assert feed(averaging(), 5.0 * noise(LEAST_AVERAGE)).averages


def test_the_longer_learning_takes_the_longer_an_average_may_drift() -> None:
    drifting = 0.01 * noise(2 * LEAST_AVERAGE) + np.linspace(0, 2, 2 * LEAST_AVERAGE)[:, None]
    late = int(LEAST_AVERAGE / LEAST_SHARE) + 1
    for earlier, back in ((late - LEAST_AVERAGE - 2, LEAST_AVERAGE), (late, 2 * LEAST_AVERAGE)):
        sampler, n = averaging(), 0
        while sampler.averages:
            sampler = arrive(sampler, drifting[n], BLOCKS, STATISTICAL, noise=0.1, iteration=earlier + n)
            n += 1
        assert n == back


def test_noise_is_no_drift() -> None:
    """The halves differ by 0.4 of it: only what it does not explain counts."""
    loud = feed(begin_sampling(10, 2, 500, seed=1), 0.8 * noise(LEAST_APPROACH))
    assert loud.averages


def test_momentum_waits_until_couplings_are_near() -> None:
    sampler = begin_sampling(10, 2, 500, seed=1)
    far = feed(sampler, noise(MOMENTUM_FROM - 1) + 0.5 * np.arange(MOMENTUM_FROM - 1)[:, None])
    assert momentum(far) == 0.0
    near = feed(far, noise(1) + 20)
    assert momentum(near) == MOMENTUM
    assert momentum(averaging()) == MOMENTUM


def test_a_long_approach_takes_more_momentum_and_averages_the_usual() -> None:
    sampler = begin_sampling(10, 2, 500, seed=1)
    shares = [momentum(sampler._replace(iterations=n)) for n in (0, MOMENTUM_FROM, LONG_FROM)]
    assert shares == [0.0, MOMENTUM, LONG_MOMENTUM]
    assert momentum(sampler._replace(averages=True, iterations=LONG_FROM)) == MOMENTUM
