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
"""

from typing import NamedTuple

import numpy as np

from kising.estimators.chunks import Chunk, Estimate
from kising.estimators.damping import damping_at
from kising.estimators.estep import EStep
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
    theta: int
    """θ_i, Nv rows"""
    g: int
    """g_a, Nh"""
    m: int
    """m_i, Nv"""
    mu: int
    """μ_a, Nh"""
    free: int
    """1 - m_i², later 1 - μ_a², Nv + Nh"""
    change: int
    """the summed square change of m and μ, 1"""
    share: int
    """share of the new values in the next ones: 0 in lanes that have settled, 1 row"""
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
    return Tile(numbers, *starts)


def estimate(couplings: Couplings, chunk: Chunk, out: Estimate, *, estep: EStep, first: int) -> None:
    """Fill `out` with the TAP averages of the chunk's slices."""
    _estimate(couplings, couplings.K, chunk, out, estep)


def estimate_mean_field(
    couplings: Couplings, chunk: Chunk, out: Estimate, *, estep: EStep, first: int
) -> None:
    """Fill `out` with the averages of naive mean field."""
    _estimate(couplings, np.zeros_like(couplings.K), chunk, out, estep)


def _estimate(couplings: Couplings, second: Array, chunk: Chunk, out: Estimate, estep: EStep) -> None:
    _iterate_slices(
        chunk.theta,
        chunk.g,
        couplings.K,
        second,
        estep.tolerance,
        estep.damping,
        estep.max_iterations,
        new_tile(*couplings.K.shape),
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
    tile: Tile,
    out: Estimate,
) -> None:
    """`second` is K where second-order terms are kept and zero where they are not."""
    rows = tile.rows
    lanes = rows.shape[1]
    nv, nh = K.shape
    enough = tolerance * (nv + nh)
    for first in range(0, theta.shape[0], lanes):
        count = min(lanes, theta.shape[0] - first)
        _begin(first, count, theta, g, tile)
        alive, iteration = count, 0
        while alive > 0:
            keep = damping_at(iteration, damping, max_iterations)
            for lane in range(count):
                if not out.converged[first + lane]:
                    rows[tile.share, lane] = 1.0 - keep
            _sweep(K, second, tile)
            iteration += 1
            for lane in range(count):
                t = first + lane
                if rows[tile.share, lane] == 0.0:
                    continue
                out.iterations[t] = iteration
                out.converged[t] = rows[tile.change, lane] < enough
                if out.converged[t] or iteration >= max_iterations:
                    # From here on the lane keeps its values, whatever its neighbours still need.
                    rows[tile.share, lane] = 0.0
                    alive -= 1
        _conclude(first, count, K, second, tile, out)
    sum_lanes(rows, tile.total, tile.pair_sum, out)


@kernel
def _begin(first: int, count: int, theta: Array, g: Array, tile: Tile) -> None:
    """The slices from `first` on, at m = tanh θ and μ = 0."""
    rows = tile.rows
    store(rows, tile.share, 0.0)
    store(rows, tile.counts, 0.0)
    for lane in range(count):
        rows[tile.counts, lane] = 1.0
        for i in range(theta.shape[1]):
            rows[tile.theta + i, lane] = theta[first + lane, i]
        for a in range(g.shape[1]):
            rows[tile.g + a, lane] = g[first + lane, a]
    for i in range(theta.shape[1]):
        store(rows, tile.m + i, tanh(load(rows, tile.theta + i)))
    for a in range(g.shape[1]):
        store(rows, tile.mu + a, 0.0)


@inlined
def _update(place: int, field: Vector, tile: Tile) -> Vector:
    """Move one magnetisation towards tanh of its field; returns the undamped step."""
    rows = tile.rows
    old, share = load(rows, place), load(rows, tile.share)
    step = tanh(field) - old
    # A settled lane may hold values that are not finite: it must not be touched, not even by adding zero.
    new = where_above(share, 0.0, fma(share, step, old), old)
    store(rows, place, new)
    return step


@kernel
def _sweep(K: Array, second: Array, tile: Tile) -> None:
    """One iteration: all μ_a from m, then all m_i from μ."""
    rows, m, mu, free = tile.rows, tile.m, tile.mu, tile.free
    nv, nh = K.shape
    store(rows, tile.change, 0.0)
    change = load(rows, tile.change)
    for i in range(nv):
        store(rows, free + i, fnma(load(rows, m + i), load(rows, m + i), 1.0))
    for a in range(nh):
        field = load(rows, tile.g + a)
        reaction = field - field
        for i in range(nv):
            field = fnma(load(rows, m + i), K[i, a], field)
            reaction = fma(load(rows, free + i), second[i, a] * second[i, a], reaction)
        step = _update(mu + a, fma(load(rows, mu + a), reaction, field), tile)
        change = fma(step, step, change)
    for a in range(nh):
        store(rows, free + a, fnma(load(rows, mu + a), load(rows, mu + a), 1.0))
    for i in range(nv):
        field = load(rows, tile.theta + i)
        reaction = field - field
        for a in range(nh):
            field = fma(load(rows, mu + a), K[i, a], field)
            reaction = fma(load(rows, free + a), second[i, a] * second[i, a], reaction)
        step = _update(m + i, fnma(load(rows, m + i), reaction, field), tile)
        change = fma(step, step, change)
    store(rows, tile.change, change)


@kernel
def _conclude(first: int, count: int, K: Array, second: Array, tile: Tile, out: Estimate) -> None:
    """The moments of the first `count` lanes."""
    rows = tile.rows
    nv, nh = K.shape
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
                    out.pair[first + lane, i, b] = rows[tile.free + b, lane]
    store(rows, tile.log_z, log_z)
    store(rows, tile.total, total)
    for lane in range(count):
        t = first + lane
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
