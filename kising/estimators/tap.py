"""The TAP equations: an expansion to second order in the couplings (docs/maths.md, "TAP and naive mean field").

    m_i = tanh[ θ_i + Σ_b K_ib μ_b - m_i Σ_b K_ib² (1-μ_b²) ]
    μ_a = tanh[ g_a - Σ_i K_ia m_i + μ_a Σ_i K_ia² (1-m_i²) ]
    ⟨τ_i σ_b⟩ = m_i μ_b + K_ib (1-m_i²)(1-μ_b²)

They are the stationary points of the free energy of one σ and n → -1 replicas of τ, with S the entropy of a
±1 spin,

    log Z = Σ_a [g_a μ_a + S(μ_a)] - Σ_i [θ_i m_i + S(m_i)] - Σ_ib K_ib m_i μ_b - ½ Σ_ib K_ib²
    (1-m_i²)(1-μ_b²)

so that the gradient with this ⟨τσ⟩ is that of the TAP log-likelihood. Naive mean field is the same without
the K² terms and without the connected part: an expansion to first order. Slices that do not converge are counted, and
their last values are used, as in `bp`.

A tile holds as many slices as a vector has lanes. Slices settle after very different numbers of iterations, so there
are three tiles: a settled lane of `active` moves to `done`, the next slice of `staged` takes its place, and the moments
are computed whenever `done` is full.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.estimators.chunks import Chunk, Estimate
from kising.estimators.damping import damping_at
from kising.estimators.estep import EStep
from kising.estimators.lane_state import ITERATION, SETTLED, SLOT, empty_lanes
from kising.estimators.totals import sum_lanes
from kising.kernels.jit import inlined, kernel
from kising.kernels.vector_math import log, tanh
from kising.kernels.vectors import Vector, fma, fnma, largest, load, magnitude, sections, store, where_above
from kising.model import Array, Couplings

# In place of zero, whose logarithm times itself is zero.
TINY = 1e-300


class Tile(NamedTuple):
    """Slices side by side, one per lane. All numbers lie in one array; the fields below give the first row of each
    quantity in it.
    """

    rows: Array
    """(n, lanes)"""
    state: npt.NDArray[np.int64]
    """the slice in each lane, and its iterations (`lane_state`), (3, lanes)"""
    theta: int
    """θ_i, Nv rows"""
    g: int
    """g_a, Nh"""
    m: int
    """m_i, Nv"""
    mu: int
    """μ_a, Nh"""
    free: int
    """1 - m_i², later 1 - μ_a², Nv + Nh; the rows before it make up a slice"""
    change: int
    """the summed square change of m and μ, 1"""
    share: int
    """share of the new values in the next ones, 1 row"""
    log_z: int
    """1"""
    total: int
    """Σ_ib |⟨τ_i σ_b⟩| over tiles, 1"""
    pair_sum: int
    """pair averages summed over tiles, row i Nh + b, Nv Nh"""
    counts: int
    """1 where the lane holds a slice, 1"""


def new_tile(nv: int, nh: int) -> Tile:
    """A tile of empty lanes."""
    numbers, starts = sections((nv, nh, nv, nh, nv + nh, 1, 1, 1, 1, nv * nh, 1), np.float64)
    return Tile(numbers, empty_lanes(numbers.shape[1]), *starts)


def estimate(couplings: Couplings, chunk: Chunk, out: Estimate, *, estep: EStep, first: int) -> None:
    """Fill `out` with the TAP averages of the chunk's slices."""
    _estimate(couplings, couplings.K, chunk, out, estep)


def estimate_mean_field(
    couplings: Couplings, chunk: Chunk, out: Estimate, *, estep: EStep, first: int
) -> None:
    """Fill `out` with the averages of naive mean field."""
    _estimate(couplings, np.zeros_like(couplings.K), chunk, out, estep)


def _estimate(couplings: Couplings, second: Array, chunk: Chunk, out: Estimate, estep: EStep) -> None:
    staged, active, done = (new_tile(*couplings.K.shape) for _ in range(3))
    _iterate_slices(
        chunk.theta,
        chunk.g,
        couplings.K,
        second,
        estep.tolerance,
        estep.damping,
        estep.max_iterations,
        staged,
        active,
        done,
        out,
    )


@kernel
def _iterate_slices(
    theta: Array,
    g: Array,
    K: Array,
    second: Array,
    tolerance: float,
    damping: float,
    max_iterations: int,
    staged: Tile,
    active: Tile,
    done: Tile,
    out: Estimate,
) -> None:
    """`second` is K where second-order terms are kept and zero where they are not."""
    n_slices, lanes = theta.shape[0], active.rows.shape[1]
    slot, iteration, settled = active.state[SLOT], active.state[ITERATION], active.state[SETTLED]
    enough = tolerance * (K.shape[0] + K.shape[1])
    reacts = bool(np.any(second != 0.0))
    # A zero of the type of n_slices: a literal 0 would make numba compile the loop twice.
    none = n_slices - n_slices
    alive, n_staged, next_staged, n_done, next_slice = none, none, none, none, none
    while True:
        for lane in range(lanes):
            if slot[lane] >= 0:
                if not (settled[lane] or iteration[lane] >= max_iterations):
                    continue
                _move(active, lane, done, n_done)
                alive -= 1
                n_done += 1
                if n_done == lanes:
                    _conclude(n_done, K, second, done, out)
                    n_done = none
            if next_staged == n_staged and next_slice < n_slices:
                n_staged = _stage(next_slice, theta, g, staged)
                next_slice += n_staged
                next_staged = none
            if next_staged < n_staged:
                _move(staged, next_staged, active, lane)
                next_staged += 1
                alive += 1
        if alive == 0:
            break
        for lane in range(lanes):
            share = 1.0 - damping_at(iteration[lane], damping, max_iterations)
            active.rows[active.share, lane] = share
        _sweep(K, second, reacts, active)
        for lane in range(lanes):
            iteration[lane] += 1
            settled[lane] = active.rows[active.change, lane] < enough
    # The last tile may be partly filled.
    if n_done > 0:
        _conclude(n_done, K, second, done, out)
    sum_lanes(done.rows, done.total, done.pair_sum, out)


@kernel
def _stage(first: int, theta: Array, g: Array, tile: Tile) -> int:
    """Put the slices from `first` on into `tile`, at m = tanh θ and μ = 0; returns how many there were."""
    rows = tile.rows
    count: int = min(rows.shape[1], theta.shape[0] - first)
    for lane in range(count):
        tile.state[SLOT, lane] = first + lane
        for i in range(theta.shape[1]):
            rows[tile.theta + i, lane] = theta[first + lane, i]
        for a in range(g.shape[1]):
            rows[tile.g + a, lane] = g[first + lane, a]
    for i in range(theta.shape[1]):
        store(rows, tile.m + i, tanh(load(rows, tile.theta + i)))
    return count


@kernel
def _move(tile: Tile, lane: int, other: Tile, there: int) -> None:
    """Take the slice in a lane of a tile to another tile; the lane is empty then."""
    for row in range(tile.free):
        other.rows[row, there] = tile.rows[row, lane]
    for row in range(tile.state.shape[0]):
        other.state[row, there] = tile.state[row, lane]
    tile.state[SLOT, lane] = -1


@inlined
def _update(place: int, field: Vector, tile: Tile) -> Vector:
    """Move one magnetisation towards tanh of its field; returns the undamped step."""
    rows = tile.rows
    old = load(rows, place)
    step = tanh(field) - old
    store(rows, place, fma(load(rows, tile.share), step, old))
    return step


@kernel
def _sweep(K: Array, second: Array, reacts: bool, tile: Tile) -> None:
    """One iteration: all μ_a from m, then all m_i from μ. Two at a time: sums of products wait for one another."""
    rows, m, mu, free = tile.rows, tile.m, tile.mu, tile.free
    nv, nh = K.shape
    store(rows, tile.change, 0.0)
    change = load(rows, tile.change)
    for i in range(nv):
        store(rows, free + i, fnma(load(rows, m + i), load(rows, m + i), 1.0))
    for a in range(0, nh, 2):
        b = min(a + 1, nh - 1)
        field, other = load(rows, tile.g + a), load(rows, tile.g + b)
        reaction, other_reaction = field - field, other - other
        for i in range(nv):
            m_i, free_i = load(rows, m + i), load(rows, free + i)
            field, other = fnma(m_i, K[i, a], field), fnma(m_i, K[i, b], other)
            if reacts:
                reaction = fma(free_i, second[i, a] * second[i, a], reaction)
                other_reaction = fma(free_i, second[i, b] * second[i, b], other_reaction)
        step = _update(mu + a, fma(load(rows, mu + a), reaction, field), tile)
        change = fma(step, step, change)
        if b > a:
            step = _update(mu + b, fma(load(rows, mu + b), other_reaction, other), tile)
            change = fma(step, step, change)
    for a in range(nh):
        store(rows, free + a, fnma(load(rows, mu + a), load(rows, mu + a), 1.0))
    for i in range(0, nv, 2):
        j = min(i + 1, nv - 1)
        field, other = load(rows, tile.theta + i), load(rows, tile.theta + j)
        reaction, other_reaction = field - field, other - other
        for a in range(nh):
            mu_a, free_a = load(rows, mu + a), load(rows, free + a)
            field, other = fma(mu_a, K[i, a], field), fma(mu_a, K[j, a], other)
            if reacts:
                reaction = fma(free_a, second[i, a] * second[i, a], reaction)
                other_reaction = fma(free_a, second[j, a] * second[j, a], other_reaction)
        step = _update(m + i, fnma(load(rows, m + i), reaction, field), tile)
        change = fma(step, step, change)
        if j > i:
            step = _update(m + j, fnma(load(rows, m + j), other_reaction, other), tile)
            change = fma(step, step, change)
    store(rows, tile.change, change)


@kernel
def _conclude(count: int, K: Array, second: Array, tile: Tile, out: Estimate) -> None:
    """The moments of the first `count` lanes, into the sums and the places of their slices."""
    rows, slot = tile.rows, tile.state[SLOT]
    nv, nh = K.shape
    store(rows, tile.counts, 0.0)
    for lane in range(count):
        rows[tile.counts, lane] = 1.0
    counts, total = load(rows, tile.counts), load(rows, tile.total)
    store(rows, tile.log_z, 0.0)
    log_z = load(rows, tile.log_z)
    for a in range(nh):
        mu = load(rows, tile.mu + a)
        log_z = fma(load(rows, tile.g + a), mu, log_z) + _entropy(mu)
    keep = out.pair.shape[0] == out.m.shape[0]
    for i in range(nv):
        m = load(rows, tile.m + i)
        log_z = fnma(load(rows, tile.theta + i), m, log_z) - _entropy(m)
        free_m = fnma(m, m, 1.0)
        for b in range(nh):
            mu = load(rows, tile.mu + b)
            free, both, strength = free_m * fnma(mu, mu, 1.0), m * mu, second[i, b]
            log_z = fnma(both, K[i, b], log_z)
            log_z = fnma(free, 0.5 * strength * strength, log_z)
            value = where_above(counts, 0.0, fma(free, strength, both), 0.0)
            place = tile.pair_sum + i * nh + b
            store(rows, place, load(rows, place) + value)
            total += magnitude(value)
            if keep:
                store(rows, tile.free + b, value)
        if keep:
            for lane in range(count):
                for b in range(nh):
                    out.pair[slot[lane], i, b] = rows[tile.free + b, lane]
    store(rows, tile.log_z, log_z)
    store(rows, tile.total, total)
    for lane in range(count):
        t = slot[lane]
        out.converged[t] = tile.state[SETTLED, lane] == 1
        out.iterations[t] = tile.state[ITERATION, lane]
        out.log_z[t] = rows[tile.log_z, lane]
        for i in range(nv):
            out.m[t, i] = rows[tile.m + i, lane]
        for a in range(nh):
            out.mu[t, a] = rows[tile.mu + a, lane]


@inlined
def _entropy(m: Vector) -> Vector:
    """The entropy of a ±1 spin of mean m, in nats."""
    up = largest(fma(m, 0.5, 0.5), TINY)
    down = largest(fnma(m, 0.5, 0.5), TINY)
    return 0.0 - fma(up, log(up), down * log(down))
