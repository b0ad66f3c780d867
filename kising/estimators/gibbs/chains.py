"""Averages by sampling: one Gibbs chain per slice (docs/maths.md, "Exact averages", gives the distribution).

A slice keeps one state σ of its hidden spins. A sweep visits a = 1..Nh in turn and draws σ_a from its distribution
given the others. With x_i = e^{2 f_i}, flipping σ_a turns it into y_i = x_i e^{-4 K_ia σ_a}, and the odds of flipping
are

    R = e^{-2 σ_a (g_a + Σ_i K_ia)} Π_i (1 + x_i)/(1 + y_i)          p = R/(1+R)

without an exponential or logarithm per bond. A sweep does not average the drawn state but both states with their
probabilities (Rao-Blackwell): with tanh f = 1 - 2/(1+x),

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
from kising.estimators.totals import sum_lanes
from kising.kernels.counter import key_of, philox, uniform
from kising.kernels.jit import kernel
from kising.kernels.vector_math import exp
from kising.kernels.vectors import fnma, load, magnitude, sections, store, where_above
from kising.model import Array, Couplings

Chains = npt.NDArray[np.int8]

# e^{2f} and its neighbours stay within floating point up to here; beyond, tanh f is 1 to the last bit.
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
    x: int
    """e^{2 f_i}, Nv rows"""
    down: int
    """1/(1 + x_i), Nv"""
    y: int
    """e^{2 f_i} with one hidden spin flipped, then ⟨τ_i σ_a⟩, Nv"""
    turned_down: int
    """1/(1 + y_i), Nv"""
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
    """⟨τ_i σ_a⟩ summed over tiles, row i Nh + a, Nv Nh"""


def new_tile(nv: int, nh: int) -> Tile:
    """A tile of empty lanes."""
    numbers, starts = sections((nv, nv, nv, nv, nh, nh, nh, nh, nv, 1, 1, nv * nh), np.float64)
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
    turn = np.ascontiguousarray(np.exp(4.0 * K).T)
    _sweep(
        chunk.theta + chains @ K.T,
        chunk.g + np.sum(K, axis=0),
        turn,
        1.0 / turn,
        chains,
        first,
        key,
        iteration,
        new_tile(*K.shape),
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
    tile: Tile,
    out: Estimate,
) -> None:
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
                rows[tile.x + i, lane] = min(max(f[start + lane, i], -LARGEST_FIELD), LARGEST_FIELD)
            for a in range(nh):
                rows[tile.field + a, lane] = field[start + lane, a]
                rows[tile.sigma + a, lane] = chains[start + lane, a]
            _draw(key, iteration, first + start + lane, lane, nh, tile)
        for i in range(nv):
            x = exp(2.0 * load(rows, tile.x + i))
            store(rows, tile.x + i, x)
            store(rows, tile.down + i, 1.0 / (1.0 + x))
            store(rows, tile.m + i, 0.0)
        for a in range(nh):
            _visit(a, turn, back, tile)
            if keep:
                for lane in range(count):
                    for i in range(nv):
                        out.pair[start + lane, i, a] = rows[tile.y + i, lane]
        for lane in range(count):
            t = start + lane
            for i in range(nv):
                out.m[t, i] = 1.0 - 2.0 * rows[tile.m + i, lane] / nh
            for a in range(nh):
                out.mu[t, a] = rows[tile.mu + a, lane]
                chains[t, a] = 1 if rows[tile.sigma + a, lane] > 0.0 else -1
    sum_lanes(rows, tile.total, tile.pair_sum, out)


@kernel
def _draw(key: np.uint64, iteration: int, t: int, lane: int, nh: int, tile: Tile) -> None:
    """The random numbers of a slice: one counter gives four hidden spins."""
    draw = tile.draw
    for quarter in range((nh + 3) // 4):
        words = philox(key, np.uint64(t), np.uint64(quarter), np.uint64(iteration), np.uint64(SWEEP))
        for k in range(min(4, nh - 4 * quarter)):
            tile.rows[draw + 4 * quarter + k, lane] = uniform(words[k])


@kernel
def _visit(a: int, turn: Array, back: Array, tile: Tile) -> None:
    """Draw σ_a of every lane again, and add both of its states to the averages."""
    rows = tile.rows
    nh, nv = turn.shape
    sigma = load(rows, tile.sigma + a)
    odds = exp(-2.0 * sigma * load(rows, tile.field + a))
    for i in range(nv):
        x = load(rows, tile.x + i)
        y = x * where_above(sigma, 0.0, back[a, i], turn[a, i])
        down = 1.0 / (1.0 + y)
        odds *= (1.0 + x) * down
        store(rows, tile.y + i, y)
        store(rows, tile.turned_down + i, down)
    # Infinite odds mean certainty.
    stay = 1.0 / (1.0 + odds)
    go = 1.0 - stay
    draw = load(rows, tile.draw + a)
    mu = sigma * (stay - go)
    store(rows, tile.mu + a, mu)
    store(rows, tile.sigma + a, where_above(go, draw, 0.0 - sigma, sigma))
    counts, total = load(rows, tile.counts), load(rows, tile.total)
    for i in range(nv):
        x, y = load(rows, tile.x + i), load(rows, tile.y + i)
        down, turned = load(rows, tile.down + i), load(rows, tile.turned_down + i)
        kept, moved = stay * down, go * turned
        store(rows, tile.m + i, load(rows, tile.m + i) + (kept + moved))
        value = where_above(counts, 0.0, fnma(2.0 * sigma, kept - moved, mu), 0.0)
        total += magnitude(value)
        place = tile.pair_sum + i * nh + a
        store(rows, place, load(rows, place) + value)
        store(rows, tile.x + i, where_above(go, draw, y, x))
        store(rows, tile.down + i, where_above(go, draw, turned, down))
        store(rows, tile.y + i, value)
    store(rows, tile.total, total)
