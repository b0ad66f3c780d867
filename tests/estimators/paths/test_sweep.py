"""Sweeps along paths, against direct sums over all unknown spins."""

import numpy as np
import pytest
from support.path_sums import some_network, some_steps, sum_paths

from kising.estimators.paths import sampler
from kising.estimators.paths.blocks import block_steps, blocks_of
from kising.estimators.paths.network import Network, tilt
from kising.estimators.paths.sampler import first_states, sweep
from kising.estimators.paths.timeline import Timeline
from kising.kernels.counter import key_of

BATCHES = 20
CASES = {
    "hidden": (1, 3, 2, [6], 0.0, 0),
    "blocks": (2, 3, 2, [7], 0.0, 0),
    "segments": (3, 3, 2, [3, 2, 4], 0.0, 1),
    "gaps": (4, 3, 1, [7], 0.3, 2),
    "gaps-and-segments": (5, 2, 2, [4, 1, 4], 0.3, 0),
    "no-hidden": (6, 4, 0, [8], 0.4, 0),
    "odd": (7, 2, 3, [4], 0.2, 0),
}


def sampled(
    network: Network, steps: Timeline, sites, sweeps: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Means of all spins and of all their products, batch by batch."""
    key = key_of(seed)
    states = first_states(steps, network.hidden, key)
    t, u = (list(x) for x in zip(*sites, strict=True))
    firsts, seconds = [], []
    for k in range(50 + sweeps):
        sweep(network, steps, states, key=key, iteration=k)
        if k >= 50:
            x = states[t, u].astype(float)
            firsts.append(x)
            seconds.append(np.outer(x, x))
    shape = (BATCHES, sweeps // BATCHES)
    means = (np.reshape(x, (*shape, *np.shape(x)[1:])).mean(axis=1) for x in (firsts, seconds))
    return tuple(means)


@pytest.mark.parametrize("case", CASES)
def test_moments_are_those_of_direct_sums(case, monkeypatch):
    seed, visible, hidden, lengths, missing, inputs = CASES[case]
    network = some_network(seed, visible, hidden, inputs=inputs)
    steps = some_steps(seed, visible, lengths, inputs=inputs, missing=missing)
    monkeypatch.setattr(sampler, "block_steps", lambda units: 16 if case == "hidden" else 4)
    judge = sum_paths(network, steps)
    wanted = (judge.weights @ judge.states, (judge.states.T * judge.weights) @ judge.states)
    found = sampled(network, steps, judge.sites, 10_000, seed)
    for batches, value in zip(found, wanted, strict=True):
        error = batches.std(axis=0, ddof=1) / np.sqrt(BATCHES)
        z = (batches.mean(axis=0) - value) / (error + 1e-3)
        assert np.abs(z).max() < 4.5
        assert np.sqrt(np.mean(z**2)) < 1.7


def test_known_spins_and_the_last_hidden_ones_stay():
    network, steps = some_network(1, 3, 2), some_steps(1, 3, [30, 40], missing=0.2)
    states = first_states(steps, 2, key_of(1))
    before = states.copy()
    for k in range(5):
        sweep(network, steps, states, key=key_of(1), iteration=k)
    assert np.array_equal(states[:, :3][~steps.missing], steps.spins[~steps.missing])
    assert np.array_equal(states[[29, 69], 3:], before[[29, 69], 3:])
    assert not np.array_equal(states[:, 3:], before[:, 3:])


def test_threads_change_no_bit(monkeypatch):
    monkeypatch.setattr(sampler, "PORTION", 64)
    network, steps = some_network(2, 4, 3), some_steps(2, 4, [3000, 50, 1000], missing=0.1)
    found = []
    for threads in (1, 3):
        states = first_states(steps, 3, key_of(2))
        for k in range(4):
            sweep(network, steps, states, key=key_of(2), iteration=k, threads=threads)
        found.append(states)
    assert np.array_equal(*found)


def test_strong_couplings_draw_no_nonsense():
    network = some_network(3, 3, 3, scale=30.0)
    steps = some_steps(3, 3, [200], missing=0.2)
    states = first_states(steps, 3, key_of(3))
    for k in range(6):
        sweep(network, steps, states, key=key_of(3), iteration=k)
    assert set(np.unique(states)) == {-1, 1}


def test_the_tilt_follows_the_largest_couplings():
    ring = np.zeros((4, 4))
    for a in range(4):
        ring[(a + 1) % 4, a] = -1.5
    network = Network(
        np.block([[np.zeros((2, 2)), np.zeros((2, 4))], [np.zeros((4, 2)), ring]]),
        np.zeros(6),
        np.zeros((6, 0)),
        2,
    )
    assert tilt(network).tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize("shifted", [False, True])
def test_blocks_cover_every_step_once(shifted):
    bounds = np.array([0, 5, 105, 105 + 64, 1000])
    even, odd = blocks_of(bounds, 32, shifted=shifted)
    rows = sorted([*even.tolist(), *odd.tolist()])
    steps = [t for a, b, _, _ in rows for t in range(a, b)]
    assert steps == list(range(1000))
    for colour in (even, odd):
        for one, other in zip(colour[:-1].tolist(), colour[1:].tolist(), strict=True):
            assert one[1] < other[0] or one[3] <= other[2]


def test_block_lengths_depend_on_the_network_alone():
    assert [block_steps(n) for n in (1, 24, 100, 10_000)] == [2048, 1360, 320, 128]
