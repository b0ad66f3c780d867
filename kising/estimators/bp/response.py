"""What follows from settled messages, for a tile of slices: moments, Bethe log Z, and pair averages (docs/maths.md,
"Pair correlations" and "Bethe log-likelihood").

With x = t m and w = 1/(1 - 2 MU x + x²), cancellation is taken out of `closed` before it is computed:

    B_ia = ½ sinh(2K) (1-x²) w        C_ia = sinh²K (1-m²)(1-MU²) w        R_i = Σ_a C_ia
    r_i  = √((1-M_i²)/(1+R_i))        B̃_ia = r_i B_ia √(1-MU_a²)
    S    = diag(1 - Σ_i C_ia (R_i - C_ia)/(1+R_i)) + off-diagonal of B̃ᵀB̃       χ_ib = r_i (B̃ S⁻¹)_ib √(1-MU_b²)
    p_ia = (t d + m u)/(1-x²)          the Bethe pair belief, `pair`; d and u as in `lanes`

In the Bethe log Z the factors of single bonds cancel between its three sums, and there remains

    log Z = Σ_a log(H₊+H₋)_a - Σ_i log(P₊+P₋)_i - Σ_ia log cosh K_ia
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.estimators.bp.correlations import CLOSED, SMALLEST_PIVOT
from kising.estimators.bp.edges import Edges, Indices
from kising.estimators.bp.lanes import Scratch, Tile, visible_products
from kising.kernels.jit import kernel
from kising.kernels.vectors import (
    fma,
    fnma,
    largest,
    load,
    magnitude,
    sections,
    sqrt,
    store,
    where_above,
    width_of,
)
from kising.model import Array


class Response(NamedTuple):
    """Room for the pair averages of one tile, and for their sums over tiles, laid out like a tile."""

    rows: Array
    log_z: npt.NDArray[np.float64]
    """(lanes,)"""
    M: int
    """M_i, Nv rows"""
    r: int
    """r_i, Nv"""
    B: int
    """B̃_ia, E"""
    C: int
    """C_ia of a visible spin, Nh"""
    root: int
    """√(1-MU_a²), Nh"""
    S: int
    """S, then its factors L and D, row a Nh + b, Nh²"""
    lower: int
    """L⁻¹, Nh²"""
    inverse: int
    """S⁻¹, Nh²"""
    pair: int
    """pair averages of a visible spin by linear response, Nh"""
    belief: int
    """pair beliefs of a visible spin, Nh"""
    pair_sum: int
    """pair averages summed over tiles, row i Nh + b, Nv Nh"""
    norm: int
    """a product of norms, 1"""
    sound: int
    """1 in the lanes where S could be inverted, 1"""
    counts: int
    """1 in the lanes that hold a slice with finite sums, 1"""
    total: int
    """Σ_ib |⟨τ_i σ_b⟩| over tiles, 1"""
    replaced: int
    """how many pair averages of a slice were replaced, 1"""


def new_response(n_edges: int, nv: int, nh: int, dtype: npt.DTypeLike, rule: int) -> Response:
    """Room for one tile."""
    bonds, square = (n_edges, nh * nh) if rule == CLOSED else (0, 0)
    sizes = (nv, nv, bonds, nh, nh, square, square, square, nh, nh, nv * nh, 1, 1, 1, 1, 1)
    numbers, starts = sections(sizes, dtype)
    return Response(numbers, np.empty(width_of(dtype)), *starts)


@kernel
def magnetisations(
    factors: int,
    start: Indices,
    hidden: Indices,
    weight: Array,
    tile: Tile,
    scratch: Scratch,
    space: Response,
) -> None:
    """M_i, and log Z without its constant; products of up to `factors` norms cannot overflow."""
    nv, nh = start.shape[0] - 1, tile.norm - tile.mu
    rows, log_z = space.rows, space.log_z
    log_z[:] = 0.0
    for k in range(nh + nv):
        if k < nh:
            norm = load(tile.rows, tile.norm + k)
        else:
            up, down = visible_products(k - nh, start, hidden, weight, tile, scratch)
            store(rows, space.M + k - nh, (up - down) / (up + down))
            norm = up + down
        sign, place, last = (1.0, k, nh - 1) if k < nh else (-1.0, k - nh, nv - 1)
        if place % factors > 0:
            norm *= load(rows, space.norm)
        store(rows, space.norm, norm)
        if (place + 1) % factors == 0 or place == last:
            for lane in range(log_z.shape[0]):
                log_z[lane] += sign * np.log(rows[space.norm, lane])


@kernel
def susceptibility(edges: Edges, tile: Tile, space: Response) -> None:
    """B̃, r and S⁻¹ of every lane."""
    start, hidden, weight, slope, square = edges
    rows, B, C, root, S = space.rows, space.B, space.C, space.root, space.S
    nv, nh = start.shape[0] - 1, tile.norm - tile.mu
    for ab in range(nh * nh):
        store(rows, S + ab, 0.0)
    for a in range(nh):
        mu = load(tile.rows, tile.mu + a)
        store(rows, root + a, sqrt(largest(1.0 - mu * mu, 0.0)))
        store(rows, S + a * nh + a, 1.0)
    for i in range(nv):
        first, last = start[i], start[i + 1]
        M = load(rows, space.M + i)
        R = M - M
        for e in range(first, last):
            a = hidden[e]
            m, mu, free = load(tile.rows, tile.m + e), load(tile.rows, tile.mu + a), load(rows, root + a)
            x = weight[e] * m
            w = 1.0 / fnma(mu + mu - x, x, 1.0)
            c = square[e] * (free * free) * fnma(m, m, 1.0) * w
            store(rows, B + e, slope[e] * fnma(x, x, 1.0) * w * free)
            store(rows, C + e - first, c)
            R += c
        share = 1.0 / (1.0 + R)
        r = sqrt(largest(fnma(M, M, 1.0), 0.0) * share)
        store(rows, space.r + i, r)
        for e in range(first, last):
            row = S + hidden[e] * nh
            c = load(rows, C + e - first)
            diagonal = row + hidden[e]
            store(rows, diagonal, fnma(c * (R - c), share, load(rows, diagonal)))
            B_e = r * load(rows, B + e)
            store(rows, B + e, B_e)
            for f in range(first, e):
                ab = row + hidden[f]
                store(rows, ab, fma(B_e, load(rows, B + f), load(rows, ab)))
    _invert(nh, space)


@kernel
def _invert(nh: int, space: Response) -> None:
    """S⁻¹ by S = L D Lᵀ; S is symmetric, but past BP's instability not positive. Only its lower triangle is
    read. Lanes where a pivot vanishes are marked as not sound.
    """
    rows, S, lower, inverse = space.rows, space.S, space.lower, space.inverse
    store(rows, space.sound, 1.0)
    sound = load(rows, space.sound)
    top = sound - sound
    for a in range(nh):
        # Row a holds L D until it is divided by D.
        row = S + a * nh
        for b in range(a):
            value, other = load(rows, row + b), S + b * nh
            for c in range(b):
                value = fnma(load(rows, row + c), load(rows, other + c), value)
            store(rows, row + b, value)
        pivot = load(rows, row + a)
        for b in range(a):
            value = load(rows, row + b)
            ratio = value * load(rows, lower + b * nh + b)
            pivot = fnma(value, ratio, pivot)
            store(rows, row + b, ratio)
        size = magnitude(pivot)
        top = largest(top, size)
        sound = where_above(size, SMALLEST_PIVOT * top, sound, 0.0)
        # The diagonal of `lower` holds 1/D.
        store(rows, lower + a * nh + a, 1.0 / where_above(size, SMALLEST_PIVOT * top, pivot, 1.0))
    store(rows, space.sound, sound)
    for a in range(nh):
        for b in range(a):
            value = 0.0 - load(rows, S + a * nh + b)
            for c in range(b + 1, a):
                value = fnma(load(rows, S + a * nh + c), load(rows, lower + c * nh + b), value)
            store(rows, lower + a * nh + b, value)
    for a in range(nh):
        # D⁻¹ L⁻¹ in the place of L, which is no longer needed.
        share = load(rows, lower + a * nh + a)
        for b in range(a):
            store(rows, S + a * nh + b, load(rows, lower + a * nh + b) * share)
        store(rows, S + a * nh + a, share)
    for a in range(nh):
        for b in range(a + 1):
            value = load(rows, S + a * nh + b)
            for c in range(a + 1, nh):
                value = fma(load(rows, S + c * nh + a), load(rows, lower + c * nh + b), value)
            store(rows, inverse + a * nh + b, value)
            store(rows, inverse + b * nh + a, value)


@kernel
def closed_row(i: int, start: Indices, hidden: Indices, tile: Tile, space: Response) -> None:
    """⟨τ_i σ_b⟩ = χ_ib + M_i MU_b of every b, into space.pair."""
    rows, B, inverse, pair = space.rows, space.B, space.inverse, space.pair
    first, last = start[i], start[i + 1]
    nh = tile.norm - tile.mu
    r, M = load(rows, space.r + i), load(rows, space.M + i)
    nothing = r - r
    # Four hidden spins at a time: each bond is fetched once for all of them.
    whole = nh - nh % 4
    for b in range(0, whole, 4):
        c0, c1, c2, c3 = nothing, nothing, nothing, nothing
        for e in range(first, last):
            B_e, place = load(rows, B + e), inverse + hidden[e] * nh + b
            c0 = fma(B_e, load(rows, place), c0)
            c1 = fma(B_e, load(rows, place + 1), c1)
            c2 = fma(B_e, load(rows, place + 2), c2)
            c3 = fma(B_e, load(rows, place + 3), c3)
        store(rows, pair + b, c0)
        store(rows, pair + b + 1, c1)
        store(rows, pair + b + 2, c2)
        store(rows, pair + b + 3, c3)
    for b in range(whole, nh):
        c0 = nothing
        for e in range(first, last):
            c0 = fma(load(rows, B + e), load(rows, inverse + hidden[e] * nh + b), c0)
        store(rows, pair + b, c0)
    for b in range(nh):
        chi = r * load(rows, pair + b) * load(rows, space.root + b)
        store(rows, pair + b, chi + M * load(tile.rows, tile.mu + b))


@kernel
def bethe_row(i: int, start: Indices, hidden: Indices, weight: Array, tile: Tile, space: Response) -> None:
    """The pair belief of every bond of visible spin i, M_i MU_b where there is none, into space.belief."""
    rows, belief = space.rows, space.belief
    M = load(rows, space.M + i)
    for b in range(tile.norm - tile.mu):
        store(rows, belief + b, M * load(tile.rows, tile.mu + b))
    for e in range(start[i], start[i + 1]):
        a, t = hidden[e], weight[e]
        m, mu = load(tile.rows, tile.m + e), load(tile.rows, tile.mu + a)
        x = t * m
        joint = t * (1.0 - mu * x) + m * (mu - x)
        store(rows, belief + a, joint / (1.0 - x * x))
