"""What learning needs of one state of all spins: the score of complete data, summed over steps (docs/maths.md, "The
larger model")

    Σ_t (z(t+1) - tanh H(t+1)) x(t)ᵀ,    x = (z, 1, u),  z = (s, σ)

The hidden spins of the last step of a segment act on nothing, and are left out.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from kising.estimators.chunks import cut
from kising.estimators.parallel import one_blas_thread
from kising.estimators.paths.network import Network
from kising.estimators.paths.timeline import Timeline
from kising.kernels.jit import kernel
from kising.kernels.vector_math import tanh
from kising.kernels.vectors import load, rows, store, width_of
from kising.model import Array, Spins


class Complete(NamedTuple):
    """Sums over steps t, for one state of all spins."""

    score: Array
    """Σ (z_k(t+1) - tanh H_k) x_j(t), (N, N+1+p)"""
    with_hidden: Array
    """Σ x_j(t) σ_b(t), (N+1+p, Nh)"""
    size: Array
    """Σ |tanh H_k|, (N,)"""
    square: Array
    """Σ tanh² H_k, (N,)"""


class Window(NamedTuple):
    """Some steps of a state."""

    x: Array
    """(z, 1, u) at step t, (B, N+1+p)"""
    expected: Array
    """tanh H(t+1), (B, N)"""
    counts: Array
    """1, and 0 for what crosses the border of a segment, (B, 2): for visible and for hidden spins"""


def window(network: Network, timeline: Timeline, states: Spins, part: slice) -> Window:
    """The steps t of a range that ends before the last one of the recording."""
    n, n_units, p = part.stop - part.start, len(network.bias), timeline.inputs.shape[1]
    x = np.empty((n, n_units + 1 + p))
    x[:, :n_units] = states[part]
    if timeline.memoryless:
        x[:, : network.visible] = 0.0
    x[:, n_units] = 1.0
    x[:, n_units + 1 :] = timeline.inputs[part]
    weights = np.hstack([network.weights, network.bias[:, None], network.sensitivity])
    room = rows(-(-n * n_units // width_of(np.float64)), np.float64)
    expected = room.reshape(-1)[: n * n_units].reshape(n, n_units)
    np.matmul(x, weights.T, out=expected)
    _tanh(room)
    counts = np.ones((n, 2))
    for back, columns in ((1, slice(0, 2)), (2, slice(1, 2))):
        places = timeline.bounds[1:] - back - part.start
        counts[places[(places >= 0) & (places < n)], columns] = 0.0
    return Window(x, expected, counts)


@kernel
def _tanh(numbers: Array) -> None:
    for k in range(numbers.shape[0]):
        store(numbers, k, tanh(load(numbers, k)))


def complete_sums(network: Network, timeline: Timeline, states: Spins, *, threads: int = 1) -> Complete:
    """All sums, in an order that does not depend on threads."""

    def work(part: slice) -> Complete:
        x, expected, counts = window(network, timeline, states, part)
        residual = np.empty(expected.shape)
        size, square = np.zeros(len(network.bias)), np.zeros(len(network.bias))
        _compare(
            states[part.start + 1 : part.stop + 1], expected, counts, network.visible, residual, size, square
        )
        hidden = x[:, network.visible : len(network.bias)]
        return Complete(residual.T @ x, x.T @ hidden, size, square)

    parts = cut(len(states) - 1)
    with one_blas_thread():
        if threads == 1 or len(parts) == 1:
            found = [work(part) for part in parts]
        else:
            with ThreadPoolExecutor(threads) as pool:
                found = list(pool.map(work, parts))
    total = found[0]
    for part in found[1:]:
        total = Complete(*(x + y for x, y in zip(total, part, strict=True)))
    return total


@kernel
def _compare(
    after: Spins, expected: Array, counts: Array, nv: int, residual: Array, size: Array, square: Array
) -> None:
    n, n_units = expected.shape
    for t in range(n):
        for k in range(n_units):
            weight = counts[t, 0] if k < nv else counts[t, 1]
            residual[t, k] = weight * (after[t, k] - expected[t, k])
            size[k] += weight * abs(expected[t, k])
            square[k] += weight * expected[t, k] * expected[t, k]
