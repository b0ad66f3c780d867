"""Sweeps over a whole recording, on several threads."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from kising.estimators.paths.blocks import Bounds, block_steps, blocks_of
from kising.estimators.paths.network import Network, tilt
from kising.estimators.paths.sweep import Mask, Tables, new_tile, sweep_blocks
from kising.estimators.paths.timeline import Timeline
from kising.kernels.counter import philox, uniform
from kising.kernels.jit import kernel
from kising.model import Spins

# Timeline that a thread is given at a time.
PORTION = 16384
# Word of the counter's last place: what a number is for.
FIRST = 5


def first_states(timeline: Timeline, hidden: int, key: np.uint64) -> Spins:
    """The states that sampling begins with, (T, N): every unknown spin ±1 with equal chances."""
    n, nv = timeline.spins.shape
    states = np.empty((n, nv + hidden), np.int8)
    states[:, :nv] = timeline.spins
    _toss(key, timeline.missing, states)
    return states


@kernel
def _toss(key: np.uint64, missing: Mask, states: Spins) -> None:
    nv = missing.shape[1]
    for t in range(states.shape[0]):
        for u in range(states.shape[1]):
            if u >= nv or (missing.shape[0] > 0 and missing[t, u]):
                word = philox(key, np.uint64(t), np.uint64(u), np.uint64(0), np.uint64(FIRST))[0]
                states[t, u] = 1 if uniform(word) < 0.5 else -1


def tables_of(network: Network, *, tilted: bool) -> Tables:
    """What a sweep needs of a network."""
    W = network.weights
    order = tilt(network) if tilted else np.arange(network.hidden)
    return Tables(
        W, network.bias, network.sensitivity, np.exp(4.0 * W), np.exp(-4.0 * W), np.exp(-2.0 * W), order
    )


def sweep(
    network: Network, timeline: Timeline, states: Spins, *, key: np.uint64, iteration: int, threads: int = 1
) -> None:
    """Draw all unknown spins of a recording once; `states` is changed in place. Straight and tilted paths, and two
    ways to cut time into blocks, take turns with the number of the iteration.
    """
    tables = tables_of(network, tilted=iteration % 2 == 1)
    length = block_steps(len(network.bias))
    n_inputs = network.sensitivity.shape[1]
    for colour in blocks_of(timeline.bounds, length, shifted=iteration // 2 % 2 == 1):

        def work(part: slice, blocks: Bounds = colour) -> None:
            tile = new_tile(len(network.bias), n_inputs, length)
            sweep_blocks(
                tables, states, timeline.missing, timeline.inputs, blocks[part], key, iteration, tile
            )

        parts = list(_portions(colour))
        if threads == 1 or len(parts) == 1:
            for part in parts:
                work(part)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(work, parts))


def _portions(blocks: Bounds) -> Iterator[slice]:
    """Blocks that one thread takes one after the other."""
    total, first = 0, 0
    for k, (start, stop, _, _) in enumerate(blocks.tolist()):
        total += stop - start
        if total >= PORTION or k + 1 == len(blocks):
            yield slice(first, k + 1)
            total, first = 0, k + 1
