"""Averages by sampling: one Gibbs chain per slice (docs/maths.md, "Exact averages", gives the distribution).

A slice keeps one state σ of its hidden spins. A sweep visits a = 1..Nh in turn and draws σ_a from its distribution
given the others. With u_i and d_i = (1 ± tanh f_i)/2, flipping σ_a turns them into u_i w_i r_i and d_i r_i, where
w_i = e^{-4 K_ia σ_a}, and the odds of flipping are

    r_i = 1/(d_i + u_i w_i)          R = e^{-2 σ_a (g_a + Σ_i K_ia)} Π_i r_i          p = R/(1+R)

without an exponential or logarithm per bond. Both u and d are products and sums of positive numbers, so single
precision is enough for learning, unless couplings or fields are very strong. A sweep does not average the drawn state
but both states with their probabilities (Rao-Blackwell):

    μ_a       σ_a (1 - 2p)
    ⟨τ_i σ_a⟩  σ_a [ (1-p) tanh f_i - p tanh f_i' ]            f' with σ_a flipped
    m_i       (1-p) tanh f_i + p tanh f_i',  averaged over the Nh visits of the sweep

Draws come from a counter (`kernels.counter`), by iteration, slice and hidden spin: chains depend neither on threads
nor on chunks, and continue after an interruption as if there had been none.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.estimators.chunks import Chunk, Estimate
from kising.estimators.estep import EStep
from kising.estimators.gibbs.importance import log_z
from kising.estimators.sampling import BATCHES
from kising.kernels.counter import key_of, philox, uniform
from kising.kernels.jit import kernel
from kising.kernels.vector_math import exp, log
from kising.kernels.vectors import (
    LARGEST_EXPONENT,
    fnma,
    largest,
    load,
    magnitude,
    sections,
    smallest,
    store,
    where_above,
)
from kising.model import Array, Couplings

Chains = npt.NDArray[np.int8]

# e^{2f} stays within double precision up to here; beyond, tanh f is 1 to the last bit.
LARGEST_FIELD = 150.0
LARGEST_COUPLING = 40.0
# Words of the counter's last place: what a number is for.
START, SWEEP = 0, 1


class Errors(NamedTuple):
    """Standard errors of what was sampled; of averages, from the scatter of batches of sweeps."""

    m: Array
    """of ⟨tanh f_i⟩, (B, Nv)"""
    mu: Array
    """of ⟨σ_b⟩, (B, Nh)"""
    pair: Array
    """of ⟨tanh(f_i) σ_b⟩, (B, Nv, Nh); (1, Nv, Nh) where they were not kept"""
    log_likelihood: Array
    """of log P_t, nats, (B,): from the scatter of the weights of importance sampling"""


class Tile(NamedTuple):
    """Slices side by side, one per lane. All numbers lie in one array; the fields below give the first row of each
    quantity in it.
    """

    rows: Array
    """(n, lanes)"""
    up: int
    """(1 + tanh f_i)/2, Nv rows"""
    down: int
    """(1 - tanh f_i)/2, Nv"""
    ratio: int
    """r_i of the hidden spin that is visited, then ⟨τ_i σ_a⟩ where they are kept, Nv"""
    field: int
    """g_a + Σ_i K_ia, Nh"""
    sigma: int
    """σ_a, Nh"""
    mu: int
    """E σ_a given the others, Nh"""
    draw: int
    """a number between 0 and 1 for every hidden spin, Nh"""
    m: int
    """Σ_a of (1 - E tanh f_i)/2 given all but σ_a, Nv"""
    total: int
    """Σ |⟨τ_i σ_a⟩| over tiles, 1"""
    counts: int
    """1 where the lane holds a slice, 1"""
    pair_sum: int
    """⟨τ_i σ_a⟩ summed over tiles, row a Nv + i, Nh Nv"""


def new_tile(nv: int, nh: int, dtype: npt.DTypeLike) -> Tile:
    """A tile of empty lanes."""
    numbers, starts = sections((nv, nv, nv, nh, nh, nh, nh, nv, 1, 1, nv * nh), dtype)
    return Tile(numbers, *starts)


def first_chains(n_slices: int, nh: int, key: np.uint64, *, first: int = 0) -> Chains:
    """The states that chains begin with, of the slices from `first` on: every hidden spin ±1 with equal chances."""
    chains = np.empty((n_slices, nh), np.int8)
    _toss(key, first, chains)
    return chains


@kernel
def _toss(key: np.uint64, first: int, chains: Chains) -> None:
    for t in range(chains.shape[0]):
        for a in range(chains.shape[1]):
            word = philox(key, np.uint64(first + t), np.uint64(a), np.uint64(0), np.uint64(START))[0]
            chains[t, a] = 1 if uniform(word) < 0.5 else -1


def sweep(
    couplings: Couplings,
    chunk: Chunk,
    chains: Chains,
    out: Estimate,
    *,
    first: int,
    key: np.uint64,
    iteration: int,
) -> None:
    """One sweep over the chunk's slices, whose first is number `first` of the recording; `chains` is changed in
    place, and `out` gets the averages of this sweep.
    """
    K = np.clip(couplings.K, -LARGEST_COUPLING, LARGEST_COUPLING)
    exponent, kind = _largest_exponent(K, chunk), chunk.theta.dtype
    # Fields in single precision are swept in it unless products could leave its range.
    dtype = kind if exponent < LARGEST_EXPONENT["float32"] else np.float64
    turn = np.ascontiguousarray(np.exp(4.0 * K).T)
    _sweep(
        chunk.theta + chains.astype(kind) @ K.T.astype(kind),
        chunk.g + np.sum(K, axis=0),
        turn.astype(dtype),
        (1.0 / turn).astype(dtype),
        chains,
        first,
        key,
        iteration,
        exponent > LARGEST_EXPONENT["float64"],
        new_tile(K.shape[0], K.shape[1], dtype),
        out,
    )
    out.converged[:] = True
    out.iterations[:] = 1
    out.log_z[:] = np.nan


def estimate(couplings: Couplings, chunk: Chunk, out: Estimate, *, estep: EStep, first: int) -> Errors:
    """Fill `out` with averages at given couplings, log Z included; returns their standard errors."""
    sampling = estep.sampling
    key = key_of(sampling.checked_seed())
    n, nh = chunk.g.shape
    chains = first_chains(n, nh, key, first=first)
    for k in range(sampling.settling):
        sweep(couplings, chunk, chains, out, first=first, key=key, iteration=k)
    keep = len(out.pair) == n
    if not keep:
        # Scratch space: its contents are not averages.
        out.pair[:] = 0.0
    shapes = (out.m.shape, out.mu.shape, out.pair.shape)
    total, square = ([np.zeros(shape) for shape in shapes] for _ in range(2))
    pair_sum, pair_abs = np.zeros_like(out.pair_sum), 0.0
    for part in np.array_split(np.arange(sampling.sweeps), BATCHES):
        batch = [np.zeros(shape) for shape in shapes]
        for k in part:
            out.pair_sum[:] = 0.0
            out.pair_abs[:] = 0.0
            sweep(couplings, chunk, chains, out, first=first, key=key, iteration=sampling.settling + int(k))
            for mine, new in zip(batch, (out.m, out.mu, out.pair), strict=True):
                mine += new
            pair_sum += out.pair_sum
            pair_abs += out.pair_abs[0]
        for sums, squares, mine in zip(total, square, batch, strict=True):
            sums += mine
            squares += (mine / len(part)) ** 2
    means = [x / sampling.sweeps for x in total]
    for place, value in zip((out.m, out.mu, out.pair), means, strict=True):
        place[:] = value
    out.pair_sum[:] = pair_sum / sampling.sweeps
    out.pair_abs[:] = np.sum(np.abs(means[2])) if keep else pair_abs / sampling.sweeps
    variances = [
        np.maximum(s / BATCHES - x * x, 0.0) / (BATCHES - 1) for s, x in zip(square, means, strict=True)
    ]
    out.log_z[:], error = log_z(couplings, chunk, out.mu, first=first, key=key, draws=sampling.draws)
    m, mu, pair = (np.sqrt(x) for x in variances)
    return Errors(m, mu, pair, error)


def _largest_exponent(K: Array, chunk: Chunk) -> float:
    """A bound on the logarithm of every product of a sweep, whatever the spins are."""
    theta, b = chunk.bounds
    size = np.abs(K)
    exponents = 2.0 * (theta + size.sum(axis=1)), 2.0 * b + 4.0 * size.sum(axis=0)
    return float(max(x.max(initial=0.0) for x in exponents))


@kernel
def _sweep(
    f: Array,
    field: Array,
    turn: Array,
    back: Array,
    chains: Chains,
    first: int,
    key: np.uint64,
    iteration: int,
    wide: bool,
    tile: Tile,
    out: Estimate,
) -> None:
    """Where `wide`, products could leave the range of numbers."""
    rows = tile.rows
    lanes = rows.shape[1]
    nh, nv = turn.shape
    keep = out.pair.shape[0] == out.m.shape[0]
    for start in range(0, f.shape[0], lanes):
        count = min(lanes, f.shape[0] - start)
        store(rows, tile.counts, 0.0)
        for lane in range(count):
            rows[tile.counts, lane] = 1.0
            for i in range(nv):
                rows[tile.up + i, lane] = f[start + lane, i]
            for a in range(nh):
                rows[tile.field + a, lane] = field[start + lane, a]
                rows[tile.sigma + a, lane] = chains[start + lane, a]
            _draw(key, iteration, first + start + lane, lane, nh, tile)
        for i in range(nv):
            x = exp(2.0 * smallest(largest(load(rows, tile.up + i), -LARGEST_FIELD), LARGEST_FIELD))
            down = 1.0 / (1.0 + x)
            store(rows, tile.up + i, x * down)
            store(rows, tile.down + i, down)
            store(rows, tile.m + i, 0.0)
        for a in range(nh):
            _visit(a, keep, wide, turn, back, tile)
            if keep:
                for lane in range(count):
                    for i in range(nv):
                        out.pair[start + lane, i, a] = rows[tile.ratio + i, lane]
        for i in range(nv):
            store(rows, tile.m + i, fnma(2.0 / nh, load(rows, tile.m + i), 1.0))
        for lane in range(count):
            t = start + lane
            for i in range(nv):
                out.m[t, i] = rows[tile.m + i, lane]
            for a in range(nh):
                out.mu[t, a] = rows[tile.mu + a, lane]
                chains[t, a] = 1 if rows[tile.sigma + a, lane] > 0.0 else -1
    for lane in range(lanes):
        out.pair_abs[0] += rows[tile.total, lane]
        for a in range(nh):
            for i in range(nv):
                out.pair_sum[i, a] += rows[tile.pair_sum + a * nv + i, lane]


@kernel
def _draw(key: np.uint64, iteration: int, t: int, lane: int, nh: int, tile: Tile) -> None:
    """The random numbers of a slice: one counter gives four hidden spins."""
    draw = tile.draw
    for quarter in range((nh + 3) // 4):
        words = philox(key, np.uint64(t), np.uint64(quarter), np.uint64(iteration), np.uint64(SWEEP))
        for k in range(min(4, nh - 4 * quarter)):
            tile.rows[draw + 4 * quarter + k, lane] = uniform(words[k])


@kernel
def _visit(a: int, keep: bool, wide: bool, turn: Array, back: Array, tile: Tile) -> None:
    """Draw σ_a of every lane again, and add both of its states to the averages."""
    rows, nv = tile.rows, turn.shape[1]
    sigma = load(rows, tile.sigma + a)
    odds = sigma * sigma  # one in every lane
    for i in range(nv):
        other = load(rows, tile.up + i) * where_above(sigma, 0.0, back[a, i], turn[a, i])
        ratio = 1.0 / (load(rows, tile.down + i) + other)
        odds *= ratio
        store(rows, tile.ratio + i, ratio)
    bias = -2.0 * sigma * load(rows, tile.field + a)
    if wide:
        for i in range(nv):
            bias += log(load(rows, tile.ratio + i))
        odds = exp(bias)
    else:
        odds *= exp(bias)
    # Infinite odds mean certainty.
    stay = 1.0 / (1.0 + odds)
    go = 1.0 - stay
    draw = load(rows, tile.draw + a)
    mu = sigma * (stay - go)
    store(rows, tile.mu + a, mu)
    store(rows, tile.sigma + a, where_above(go, draw, 0.0 - sigma, sigma))
    counts, total = load(rows, tile.counts), load(rows, tile.total)
    twice = (sigma + sigma) * counts
    mean = mu * counts
    for i in range(nv):
        up, down, ratio = load(rows, tile.up + i), load(rows, tile.down + i), load(rows, tile.ratio + i)
        other = up * where_above(sigma, 0.0, back[a, i], turn[a, i]) * ratio
        turned = down * ratio
        kept, moved = stay * down, go * turned
        store(rows, tile.m + i, load(rows, tile.m + i) + (kept + moved))
        value = fnma(twice, kept - moved, mean)
        total += magnitude(value)
        place = tile.pair_sum + a * nv + i
        store(rows, place, load(rows, place) + value)
        store(rows, tile.up + i, where_above(go, draw, other, up))
        store(rows, tile.down + i, where_above(go, draw, turned, down))
        if keep:
            store(rows, tile.ratio + i, value)
    store(rows, tile.total, total)
