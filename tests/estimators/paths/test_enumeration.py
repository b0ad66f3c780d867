"""Sums over all states of unknown spins, carried through time, against direct sums."""

import numpy as np
import pytest
from support.path_sums import some_network, some_steps, sum_paths

from kising.estimators.paths.enumeration import enumerate_paths, is_feasible, unknown_counts
from kising.estimators.paths.sampler import first_states, sweep
from kising.estimators.paths.statistics import complete_sums
from kising.estimators.paths.timeline import Timeline
from kising.kernels.counter import key_of

CASES = {
    "hidden": (1, 3, 2, [6], 0.0, 0),
    "segments": (3, 3, 2, [3, 2, 4], 0.0, 1),
    "gaps": (4, 3, 1, [7], 0.3, 2),
    "gaps-and-segments": (5, 2, 2, [4, 1, 4], 0.3, 0),
    "no-hidden": (6, 4, 0, [8], 0.4, 0),
}


@pytest.fixture(params=CASES)
def problem(request):
    seed, visible, hidden, lengths, missing, inputs = CASES[request.param]
    network = some_network(seed, visible, hidden, inputs=inputs)
    return network, some_steps(seed, visible, lengths, inputs=inputs, missing=missing)


def test_likelihood_averages_and_gradient(problem):
    network, steps = problem
    judge, found = sum_paths(network, steps), enumerate_paths(network, steps)
    np.testing.assert_allclose(found.log_likelihood.sum(), judge.log_likelihood, rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        [found.mean[site] for site in judge.sites], judge.weights @ judge.states, rtol=0, atol=1e-10
    )
    score = np.einsum("s,skj->kj", judge.weights, judge.scores)
    np.testing.assert_allclose(found.sums.score[:, : len(score)], score, rtol=0, atol=1e-10)


def test_the_score_is_the_slope_of_the_likelihood(problem):
    network, steps = problem
    score, step = enumerate_paths(network, steps).sums.score, 1e-5

    def likelihood(**changed):
        return enumerate_paths(network._replace(**changed), steps).log_likelihood.sum()

    n = len(network.bias)
    for name, first in (("weights", 0), ("bias", n), ("sensitivity", n + 1)):
        block = getattr(network, name)
        for place in np.ndindex(block.shape):
            moved = [block.copy(), block.copy()]
            moved[0][place] += step
            moved[1][place] -= step
            slope = (likelihood(**{name: moved[0]}) - likelihood(**{name: moved[1]})) / (2 * step)
            column = first + (place[1] if len(place) == 2 else 0)
            np.testing.assert_allclose(score[place[0], column], slope, rtol=0, atol=1e-7)


def test_forecasts_know_the_past_alone():
    network, steps = some_network(4, 3, 2), some_steps(4, 3, [8], missing=0.2)
    found = enumerate_paths(network, steps)
    for t in range(2, 8):
        past = Timeline(
            steps.spins[: t + 1], steps.inputs[: t + 1], np.array([0, t + 1]), steps.missing[: t + 1].copy()
        )
        past.missing[t] = True
        np.testing.assert_allclose(
            found.forecast[t, :3], 0.5 + 0.5 * enumerate_paths(network, past).mean[t, :3]
        )
    known = ~steps.missing[1:].any(axis=1)
    assert known.any()
    alone = np.where(steps.spins > 0, found.forecast[:, :3], 1 - found.forecast[:, :3])[1:][known]
    # Without hidden spins, forecasts of single spins would multiply to the chance of all.
    assert not np.allclose(np.log(alone).sum(axis=1), found.log_likelihood[1:][known])


def test_strong_couplings_stay_finite():
    network, steps = some_network(1, 3, 2, scale=40.0), some_steps(1, 3, [30], missing=0.2)
    found = enumerate_paths(network, steps)
    assert np.isfinite(found.log_likelihood).all()
    assert np.isfinite(found.sums.score).all()


def test_what_is_feasible():
    steps = some_steps(1, 6, [50], missing=0.3)
    assert is_feasible(steps, 2)
    assert unknown_counts(steps, 2).tolist() == [
        2 * (t < 49) + int(steps.missing[t].sum()) for t in range(50)
    ]
    assert not is_feasible(steps, 11)
    assert not is_feasible(some_steps(1, 40, [50], missing=0.9), 0)


def test_sums_over_sampled_states_have_the_exact_mean(problem):
    network, steps = problem
    key = key_of(1)
    states = first_states(steps, network.hidden, key)
    scores = []
    for k in range(4000):
        sweep(network, steps, states, key=key, iteration=k)
        scores.append(complete_sums(network, steps, states).score)
    batches = np.mean(np.reshape(scores, (20, -1, *scores[0].shape)), axis=1)
    error = batches.std(axis=0, ddof=1) / np.sqrt(20)
    z = (batches.mean(axis=0) - enumerate_paths(network, steps).sums.score) / (error + 1e-3)
    assert np.abs(z).max() < 4.5
    assert np.sqrt(np.mean(z**2)) < 1.7


def test_sums_do_not_depend_on_threads_or_on_what_hidden_spins_do_last():
    network, steps = some_network(2, 4, 3), some_steps(2, 4, [6000, 3000])
    states = first_states(steps, 3, key_of(1))
    one, two = (complete_sums(network, steps, states, threads=n) for n in (1, 3))
    assert all(np.array_equal(x, y) for x, y in zip(one, two, strict=True))
    states[[5999, 8999], 4:] *= -1
    turned = complete_sums(network, steps, states)
    assert np.array_equal(one.score, turned.score)
