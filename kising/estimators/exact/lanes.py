"""Exact averages of many slices at once, one slice per lane: the enumeration of `exact` in vectors.

With x_i = e^{2 f_i}, 2cosh f = e^{-f} (1 + x) and tanh f = 1 - 2/(1+x). Against the weight at σ = 0, where x has
the value y_i = e^{2θ_i}, a state of the hidden spins weighs

    w(σ) = exp[ Σ_b σ_b (g_b + Σ_i K_ib) ] Π_i ρ_i        ρ_i = (1 + y_i)/(1 + y_i e^{2 Σ_b K_ib σ_b})

so that log Z = log Σ_σ w - Σ_i log 2cosh θ_i, and every average follows from the sums of w, w σ_b, w ρ_i and
w ρ_i σ_b. States come in fours, which differ in σ_0 and σ_1 alone: they share a division, and are in every sum
before it is stored. From one four to the next the higher hidden spins follow a Gray code; sums with σ_b are
settled at the flips of σ_b, as in `exact`.
"""

from typing import NamedTuple

import numpy as np

from kising.estimators.chunks import Chunk, Estimate
from kising.estimators.totals import sum_lanes
from kising.kernels.jit import inlined, kernel
from kising.kernels.vector_math import exp
from kising.kernels.vectors import Vector, fma, load, magnitude, sections, store, where_above
from kising.model import Array

# Hidden spins whose states are taken together: a network needs at least this many.
TOGETHER = 2
# Flips of this hidden spin and higher ones recompute products before rounding errors add up.
FRESH = 6
# The logarithm up to which a product is safe from overflow.
LARGEST_EXPONENT = 600.0
# Rows of `drive`.
BASE, FIRST, SECOND, BOTH = 0, 1, 2, 3


class Sums(NamedTuple):
    """Sums over the states so far, and what they are made of. All numbers lie in one array; the fields
    below give the first row of each quantity in it.
    """

    rows: Array
    """(n, lanes)"""
    y: int
    """e^{2θ_i}, Nv rows"""
    rho: int
    """ρ_i of the four states at hand, row 4 i + state, 4 Nv"""
    field: int
    """g_b + Σ_i K_ib, Nh"""
    turn: int
    """e^{2 field} of the hidden spins, Nh"""
    back: int
    """e^{-2 field}, Nh"""
    hidden: int
    """the hidden factor of w at σ_0 = σ_1 = -1, 1"""
    total: int
    """Σ w, 1"""
    with_sigma: int
    """Σ w σ_b, Nh"""
    with_rho: int
    """Σ w ρ_i, Nv"""
    with_both: int
    """Σ w ρ_i σ_b, row b Nv + i, Nh Nv"""
    counts: int
    """1 where the lane holds a slice, and one whose sums are safe, 1"""
    pair_sum: int
    """pair averages summed over tiles, row i Nh + b, Nv Nh"""
    pair_abs: int
    """their magnitudes, summed over pairs too, 1"""


def new_sums(nv: int, nh: int) -> Sums:
    """Room for one tile."""
    sizes = (nv, 4 * nv, nh, nh, nh, 1, 1, nh, nv, nh * nv, 1, nv * nh, 1)
    numbers, starts = sections(sizes, np.float64)
    return Sums(numbers, *starts)


def enumerate_lanes(K: Array, chunk: Chunk, out: Estimate) -> None:
    """Fill `out`; log_z is not finite where sums overflowed; such slices enter no sum."""
    nv, nh = K.shape
    # How y_i changes with the first two hidden spins, from where both are -1; BASE is written for each four.
    drive = np.ones((4, nv))
    drive[FIRST], drive[SECOND] = np.exp(4.0 * K[:, 0]), np.exp(4.0 * K[:, 1])
    drive[BOTH] = drive[FIRST] * drive[SECOND]
    factors = max(1, int(LARGEST_EXPONENT / (1.0 + 2.0 * np.abs(chunk.theta).max(initial=0.0))))
    _enumerate(
        chunk.theta, chunk.g, K, np.exp(4.0 * K), np.sum(K, axis=0), factors, drive, new_sums(nv, nh), out
    )


@kernel
def _enumerate(
    theta: Array,
    g: Array,
    K: Array,
    flip: Array,
    reach: Array,
    factors: int,
    drive: Array,
    sums: Sums,
    out: Estimate,
) -> None:
    """Products of up to `factors` terms 1 + y_i cannot overflow."""
    rows = sums.rows
    lanes = rows.shape[1]
    nv, nh = K.shape
    for first in range(0, theta.shape[0], lanes):
        count = min(lanes, theta.shape[0] - first)
        for lane in range(count):
            total = 0.0
            for i in range(nv):
                rows[sums.y + i, lane] = theta[first + lane, i]
                total += theta[first + lane, i]
            out.log_z[first + lane] = total
            for b in range(nh):
                rows[sums.field + b, lane] = g[first + lane, b] + reach[b]
        for i in range(nv):
            y = exp(2.0 * load(rows, sums.y + i))
            store(rows, sums.y + i, y)
            norm = 1.0 + y
            # log 2cosh θ = log(1 + y) - θ.
            if i % factors > 0:
                norm *= load(rows, sums.hidden)
            store(rows, sums.hidden, norm)
            if (i + 1) % factors == 0 or i + 1 == nv:
                for lane in range(count):
                    out.log_z[first + lane] -= np.log(rows[sums.hidden, lane])
        for b in range(nh):
            turn = exp(2.0 * load(rows, sums.field + b))
            store(rows, sums.turn + b, turn)
            store(rows, sums.back + b, 1.0 / turn)
        _walk(K, flip, drive, sums)
        _conclude(first, count, sums, out)
    sum_lanes(rows, sums.pair_abs, sums.pair_sum, out)


@kernel
def _walk(K: Array, flip: Array, drive: Array, sums: Sums) -> None:
    """Visit all states, four by four; afterwards the sums with σ_b of the higher hidden spins lack the stretch
    since the last flip of σ_b. In the last four they are +1 for the highest and -1 for all others.
    """
    rows = sums.rows
    nv, nh = K.shape
    sigma = np.full(nh, -1.0)
    for k in range(sums.total, sums.counts):
        store(rows, k, 0.0)
    for four in range(2 ** (nh - TOGETHER)):
        b = nh
        if four > 0:
            b = TOGETHER
            while (four >> (b - TOGETHER)) & 1 == 0:
                b += 1
            _settle(b, 2.0 * sigma[b], nv, sums)
            sigma[b] = -sigma[b]
        if b >= FRESH or b == nh:
            for i in range(nv):
                reach = 0.0
                for c in range(nh):
                    reach += K[i, c] * sigma[c]
                drive[BASE, i] = np.exp(2.0 * reach)
            field = sigma[0] * load(rows, sums.field)
            for c in range(1, nh):
                field = fma(load(rows, sums.field + c), sigma[c], field)
            store(rows, sums.hidden, exp(field))
        elif sigma[b] > 0:
            for i in range(nv):
                drive[BASE, i] *= flip[i, b]
            store(rows, sums.hidden, load(rows, sums.hidden) * load(rows, sums.turn + b))
        else:
            for i in range(nv):
                drive[BASE, i] /= flip[i, b]
            store(rows, sums.hidden, load(rows, sums.hidden) * load(rows, sums.back + b))
        _weigh(drive, nv, sums)


@kernel
def _weigh(drive: Array, nv: int, sums: Sums) -> None:
    """Add the four states (-,-), (+,-), (-,+), (+,+) of (σ_0, σ_1)."""
    rows, rho = sums.rows, sums.rho
    w0 = load(rows, sums.hidden)
    w1 = w0 * load(rows, sums.turn)
    w2 = w0 * load(rows, sums.turn + 1)
    w3 = w1 * load(rows, sums.turn + 1)
    for i in range(nv):
        y = load(rows, sums.y + i)
        x = y * drive[BASE, i]
        q0, q1 = 1.0 + x, fma(x, drive[FIRST, i], 1.0)
        q2, q3 = fma(x, drive[SECOND, i], 1.0), fma(x, drive[BOTH, i], 1.0)
        front, rear = q0 * q1, q2 * q3
        share = (1.0 + y) / (front * rear)
        front *= share
        rear *= share
        r0, r1, r2, r3 = q1 * rear, q0 * rear, q3 * front, q2 * front
        store(rows, rho + 4 * i, r0)
        store(rows, rho + 4 * i + 1, r1)
        store(rows, rho + 4 * i + 2, r2)
        store(rows, rho + 4 * i + 3, r3)
        w0 *= r0
        w1 *= r1
        w2 *= r2
        w3 *= r3
    _add(sums.total, sums.with_sigma, sums.with_sigma + 1, w0, w1, w2, w3, rows)
    for i in range(nv):
        place = rho + 4 * i
        _add(
            sums.with_rho + i,
            sums.with_both + i,
            sums.with_both + nv + i,
            w0 * load(rows, place),
            w1 * load(rows, place + 1),
            w2 * load(rows, place + 2),
            w3 * load(rows, place + 3),
            rows,
        )


@inlined
def _add(
    plain: int, first: int, second: int, v0: Vector, v1: Vector, v2: Vector, v3: Vector, rows: Array
) -> None:
    """Add four states to a sum, to its product with σ_0 and to that with σ_1."""
    low, high = v0 + v1, v2 + v3
    store(rows, plain, load(rows, plain) + (low + high))
    store(rows, first, load(rows, first) + ((v1 - v0) + (v3 - v2)))
    store(rows, second, load(rows, second) + (high - low))


@kernel
def _settle(b: int, sign: float, nv: int, sums: Sums) -> None:
    """σ_b was constant since its last flip: add what the sums have become since, as Abel summation does."""
    rows, both = sums.rows, sums.with_both + b * nv
    store(rows, sums.with_sigma + b, fma(load(rows, sums.total), sign, load(rows, sums.with_sigma + b)))
    for i in range(nv):
        store(rows, both + i, fma(load(rows, sums.with_rho + i), sign, load(rows, both + i)))


@kernel
def _conclude(first: int, count: int, sums: Sums, out: Estimate) -> None:
    """The moments of the first `count` lanes."""
    rows = sums.rows
    nv, nh = out.pair_sum.shape
    for b in range(TOGETHER, nh):
        _settle(b, 1.0 if b == nh - 1 else -1.0, nv, sums)
    store(rows, sums.counts, 0.0)
    for lane in range(count):
        total = rows[sums.total, lane]
        # A sum near the ends of floating point may lack states that were lost there.
        safe = 1e-200 < total < 1e200
        rows[sums.counts, lane] = 1.0 if safe else 0.0
        out.log_z[first + lane] += np.log(total) if safe else np.nan
    norm = 1.0 / load(rows, sums.total)
    for b in range(nh):
        store(rows, sums.with_sigma + b, norm * load(rows, sums.with_sigma + b))
    counts, magnitudes = load(rows, sums.counts), load(rows, sums.pair_abs)
    keep = out.pair.shape[0] == out.m.shape[0]
    for i in range(nv):
        share = 2.0 * norm / (1.0 + load(rows, sums.y + i))
        store(rows, sums.with_rho + i, 1.0 - share * load(rows, sums.with_rho + i))
        for b in range(nh):
            place, place_of_sum = sums.with_both + b * nv + i, sums.pair_sum + i * nh + b
            value = load(rows, sums.with_sigma + b) - share * load(rows, place)
            store(rows, place, value)
            value = where_above(counts, 0.0, value, 0.0)
            magnitudes += magnitude(value)
            store(rows, place_of_sum, load(rows, place_of_sum) + value)
    store(rows, sums.pair_abs, magnitudes)
    for lane in range(count):
        for i in range(nv):
            out.m[first + lane, i] = rows[sums.with_rho + i, lane]
        for b in range(nh):
            out.mu[first + lane, b] = rows[sums.with_sigma + b, lane]
        if keep:
            for i in range(nv):
                for b in range(nh):
                    out.pair[first + lane, i, b] = rows[sums.with_both + b * nv + i, lane]
