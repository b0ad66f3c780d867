"""Exact averages of many slices at once, one slice per lane: the enumeration of `exact` in vectors.

With x_i = e^{2 f_i}, 2cosh f = e^{-f} (1 + x) and tanh f = 1 - 2/(1+x). Against the weight at σ = 0, where x has
the value y_i = e^{2θ_i}, a state of the hidden spins weighs

    w(σ) = exp[ Σ_b σ_b (g_b + Σ_i K_ib) ] Π_i ρ_i        ρ_i = (1 + y_i)/(1 + y_i e^{2 Σ_b K_ib σ_b})

so that log Z = log Σ_σ w - Σ_i log 2cosh θ_i, and every average follows from the sums of w, w σ_b, w ρ_i and
w ρ_i σ_b. States come in fours, which differ in σ_0 and σ_1 alone: they share a division, and are in every sum
before it is stored. From one four to the next the higher hidden spins follow a Gray code; sums with σ_b are
settled at the flips of σ_b, as in `exact`.

Where couplings are so strong that weights could overflow (`wide`), a weight is carried as a number and a power of two,
and rescaled before the visible spins that `rest` marks. Sums are then relative to 2^reference of their lane.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.estimators.chunks import Chunk, Estimate
from kising.estimators.totals import sum_lanes
from kising.kernels.jit import inlined, kernel
from kising.kernels.vector_math import exp, exp_parts, scaled
from kising.kernels.vectors import (
    Vector,
    exponent,
    fma,
    largest,
    load,
    magnitude,
    mantissa,
    sections,
    smallest,
    store,
    where_above,
)
from kising.model import Array

# Hidden spins whose states are taken together: a network needs at least this many.
TOGETHER = 2
# Flips of this hidden spin and higher ones recompute products before rounding errors add up.
FRESH = 6
# The logarithm up to which a product is safe from overflow.
LARGEST_EXPONENT = 600.0
# Within this logarithm of 1, weights need no power of two: their sums stay far from the ends of floating point.
LARGEST_WEIGHT = 440.0
# The largest field for which four states can share a division, and the largest that is safe at all.
LARGEST_SHARED_FIELD = 80.0
LARGEST_FIELD = 160.0
# A weight may pass 2^reference by this power of two before the reference follows.
MARGIN = 200.0
LOG_2 = np.log(2.0)
# Below any power of two that occurs.
LOWEST = -1e9
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
    """the hidden factor of w at σ_0 = σ_1 = -1, its logarithm where wide, 1"""
    reference: int
    """the power of two that sums are relative to, 1"""
    excess: int
    """how far a weight passes it, 1"""
    total: int
    """Σ w, 1"""
    with_sigma: int
    """Σ w σ_b, Nh"""
    with_rho: int
    """Σ w ρ_i, Nv"""
    with_both: int
    """Σ w ρ_i σ_b, row b Nv + i, Nh Nv"""
    counts: int
    """1 where the lane holds a slice, 1"""
    pair_sum: int
    """pair averages summed over tiles, row i Nh + b, Nv Nh"""
    pair_abs: int
    """their magnitudes, summed over pairs too, 1"""


def new_sums(nv: int, nh: int) -> Sums:
    """Room for one tile."""
    sizes = (nv, 4 * nv, nh, nh, nh, 1, 1, 1, 1, nh, nv, nh * nv, 1, nv * nh, 1)
    numbers, starts = sections(sizes, np.float64)
    return Sums(numbers, *starts)


class Range(NamedTuple):
    """How products are kept within floating point."""

    wide: bool
    """whether weights carry a power of two"""
    shared: bool
    """whether four states share a division"""
    rest: npt.NDArray[np.bool_]
    """whether weights are rescaled before this visible spin, (Nv,)"""
    factors: int
    """how many terms 1 + y_i can be multiplied"""


def range_of(K: Array, theta: Array, b: Array) -> Range | None:
    """What slices with fields up to `theta` and `b` need; None where they are too strong for lanes."""
    reach = np.sum(np.abs(K), axis=1)
    field = float(np.max(theta + reach))
    if field > LARGEST_FIELD:
        return None
    # |d log P(s_i|f_i)/df_i| ≤ 2: no weight, nor a part of its product, is farther from 1 than this.
    wide = np.sum(b) + 2.0 * np.sum(reach) > LARGEST_WEIGHT
    rest = np.zeros(len(K), np.bool_)
    total = 0.0
    for i in range(len(K) if wide else 0):
        # ρ_i lies between e^{-2 reach} and e^{2 reach}.
        rest[i] = total + 2.0 * reach[i] > LARGEST_EXPONENT
        total = 2.0 * reach[i] if rest[i] else total + 2.0 * reach[i]
    factors = max(1, int(LARGEST_EXPONENT / (1.0 + 2.0 * np.max(theta))))
    return Range(bool(wide), field < LARGEST_SHARED_FIELD, rest, factors)


def enumerate_lanes(K: Array, chunk: Chunk, within: Range, out: Estimate) -> None:
    """Fill `out`."""
    nv, nh = K.shape
    # How y_i changes with the first two hidden spins, from where both are -1; BASE is written for each four.
    drive = np.ones((4, nv))
    drive[FIRST], drive[SECOND] = np.exp(4.0 * K[:, 0]), np.exp(4.0 * K[:, 1])
    drive[BOTH] = drive[FIRST] * drive[SECOND]
    _enumerate(
        chunk.theta, chunk.g, K, np.exp(4.0 * K), np.sum(K, axis=0), within, drive, new_sums(nv, nh), out
    )


@kernel
def _enumerate(
    theta: Array,
    g: Array,
    K: Array,
    flip: Array,
    reach: Array,
    within: Range,
    drive: Array,
    sums: Sums,
    out: Estimate,
) -> None:
    rows, factors = sums.rows, within.factors
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
        _walk(K, flip, within, drive, sums)
        _conclude(first, count, within.wide, sums, out)
    sum_lanes(rows, sums.pair_abs, sums.pair_sum, out)


@kernel
def _walk(K: Array, flip: Array, within: Range, drive: Array, sums: Sums) -> None:
    """Visit all states, four by four; afterwards the sums with σ_b of the higher hidden spins lack the stretch
    since the last flip of σ_b. In the last four they are +1 for the highest and -1 for all others.
    """
    rows = sums.rows
    nv, nh = K.shape
    sigma = np.full(nh, -1.0)
    for k in range(sums.total, sums.counts):
        store(rows, k, 0.0)
    store(rows, sums.reference, LOWEST)
    for four in range(2 ** (nh - TOGETHER)):
        b = nh
        if four > 0:
            b = TOGETHER
            while (four >> (b - TOGETHER)) & 1 == 0:
                b += 1
            _settle(b, 2.0 * sigma[b], nv, sums)
            sigma[b] = -sigma[b]
        fresh = b >= FRESH or b == nh
        if fresh:
            for i in range(nv):
                reach = 0.0
                for c in range(nh):
                    reach += K[i, c] * sigma[c]
                drive[BASE, i] = np.exp(2.0 * reach)
        elif sigma[b] > 0:
            for i in range(nv):
                drive[BASE, i] *= flip[i, b]
        else:
            for i in range(nv):
                drive[BASE, i] /= flip[i, b]
        if fresh or within.wide:
            field = sigma[0] * load(rows, sums.field)
            for c in range(1, nh):
                field = fma(load(rows, sums.field + c), sigma[c], field)
            store(rows, sums.hidden, field if within.wide else exp(field))
        else:
            turn = sums.turn if sigma[b] > 0 else sums.back
            store(rows, sums.hidden, load(rows, sums.hidden) * load(rows, turn + b))
        _weigh(within, drive, nv, sums)


@kernel
def _weigh(within: Range, drive: Array, nv: int, sums: Sums) -> None:
    """Add the four states (-,-), (+,-), (-,+), (+,+) of (σ_0, σ_1)."""
    rows, rho = sums.rows, sums.rho
    w0 = load(rows, sums.hidden)
    w1 = w0 * load(rows, sums.turn)
    w2 = w0 * load(rows, sums.turn + 1)
    w3 = w1 * load(rows, sums.turn + 1)
    k0 = w0 - w0
    k1, k2, k3 = k0, k0, k0
    if within.wide:
        field, first, second = w0, 2.0 * load(rows, sums.field), 2.0 * load(rows, sums.field + 1)
        w0, k0 = exp_parts(field)
        w1, k1 = exp_parts(field + first)
        w2, k2 = exp_parts(field + second)
        w3, k3 = exp_parts(field + first + second)
    for i in range(nv):
        if within.rest[i]:
            w0, k0 = _rescaled(w0, k0)
            w1, k1 = _rescaled(w1, k1)
            w2, k2 = _rescaled(w2, k2)
            w3, k3 = _rescaled(w3, k3)
        y = load(rows, sums.y + i)
        x = y * drive[BASE, i]
        q0, q1 = 1.0 + x, fma(x, drive[FIRST, i], 1.0)
        q2, q3 = fma(x, drive[SECOND, i], 1.0), fma(x, drive[BOTH, i], 1.0)
        if within.shared:
            front, rear = q0 * q1, q2 * q3
            share = (1.0 + y) / (front * rear)
            front *= share
            rear *= share
            r0, r1, r2, r3 = q1 * rear, q0 * rear, q3 * front, q2 * front
        else:
            r0, r1, r2, r3 = (1.0 + y) / q0, (1.0 + y) / q1, (1.0 + y) / q2, (1.0 + y) / q3
        store(rows, rho + 4 * i, r0)
        store(rows, rho + 4 * i + 1, r1)
        store(rows, rho + 4 * i + 2, r2)
        store(rows, rho + 4 * i + 3, r3)
        w0 *= r0
        w1 *= r1
        w2 *= r2
        w3 *= r3
    if within.wide:
        w0, k0 = _rescaled(w0, k0)
        w1, k1 = _rescaled(w1, k1)
        w2, k2 = _rescaled(w2, k2)
        w3, k3 = _rescaled(w3, k3)
        _follow(largest(largest(k0, k1), largest(k2, k3)), sums)
        reference = load(rows, sums.reference)
        w0, w1 = scaled(w0, k0 - reference), scaled(w1, k1 - reference)
        w2, w3 = scaled(w2, k2 - reference), scaled(w3, k3 - reference)
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
def _rescaled(w: Vector, k: Vector) -> tuple[Vector, Vector]:
    """w 2^k with its power of two moved into k."""
    return mantissa(w), k + exponent(w)


@inlined
def _follow(top: Vector, sums: Sums) -> None:
    """Raise the reference of lanes where a weight near 2^top is too large beside it, and lower their sums."""
    rows = sums.rows
    store(rows, sums.excess, top - load(rows, sums.reference))
    over = False
    for lane in range(rows.shape[1]):
        over = over or rows[sums.excess, lane] > MARGIN
    if over:
        shift = where_above(load(rows, sums.excess), MARGIN, load(rows, sums.excess), 0.0)
        store(rows, sums.reference, load(rows, sums.reference) + shift)
        for k in range(sums.total, sums.counts):
            store(rows, k, scaled(load(rows, k), 0.0 - shift))


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
def _conclude(first: int, count: int, wide: bool, sums: Sums, out: Estimate) -> None:
    """The moments of the first `count` lanes."""
    rows = sums.rows
    nv, nh = out.pair_sum.shape
    for b in range(TOGETHER, nh):
        _settle(b, 1.0 if b == nh - 1 else -1.0, nv, sums)
    store(rows, sums.counts, 0.0)
    for lane in range(count):
        total = rows[sums.total, lane]
        rows[sums.counts, lane] = 1.0
        out.log_z[first + lane] += np.log(total)
        if wide:
            out.log_z[first + lane] += rows[sums.reference, lane] * LOG_2
    norm = 1.0 / load(rows, sums.total)
    for b in range(nh):
        mu = norm * load(rows, sums.with_sigma + b)
        store(rows, sums.with_sigma + b, largest(smallest(mu, 1.0), -1.0))
    counts, magnitudes = load(rows, sums.counts), load(rows, sums.pair_abs)
    keep = out.pair.shape[0] == out.m.shape[0]
    for i in range(nv):
        share = 2.0 * norm / (1.0 + load(rows, sums.y + i))
        # Rounding may pass -1.
        store(rows, sums.with_rho + i, largest(1.0 - share * load(rows, sums.with_rho + i), -1.0))
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
