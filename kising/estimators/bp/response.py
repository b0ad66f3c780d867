"""What follows from settled messages, for a tile of slices: moments, Bethe log Z, and pair averages (docs/maths.md,
"Pair correlations" and "Bethe log-likelihood").

With the pairs of `lanes`, cancellation is taken out of `closed` before it is computed:

    w    = 1/(MU₊ q₋² + MU₋ q₊²)      1-MU² = 4 MU₊ MU₋      1-M² = 4 M₊ M₋
    B_ia = ½ sinh(2K) q₊ q₋ w         C_ia = sinh²K (1+κ)² m₊ m₋ (1-MU²) w         R_i = Σ_a C_ia
    r_i  = √((1-M_i²)/(1+R_i))        B̃_ia = r_i B_ia √(1-MU_a²)
    S    = diag(1 - Σ_i C_ia (R_i - C_ia)/(1+R_i)) + off-diagonal of B̃ᵀB̃       χ_ib = r_i (B̃ S⁻¹)_ib √(1-MU_b²)
    p_ia = (m₊c₊ + m₋c₋ - κ(m₋c₊ + m₊c₋)) / (m₊c₊ + m₋c₋ + κ(m₋c₊ + m₊c₋))          the Bethe pair belief, `pair`

In the Bethe log Z the factors of single bonds cancel between its three sums, and there remains

    log Z = Σ_a log(H₊+H₋)_a - Σ_i log(P₊+P₋)_i - Σ_ia K_ia
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.estimators.bp.edges import Edges, Indices
from kising.estimators.bp.lanes import Scratch, Tile, visible_products
from kising.estimators.bp.rules import CLOSED
from kising.kernels.jit import inlined, kernel
from kising.kernels.vectors import (
    Vector,
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

# Below this share of the largest pivot, the matrix of the closed form counts as singular.
SMALLEST_PIVOT = 1e-13
LOG_2 = np.log(2.0)


class Response(NamedTuple):
    """Room for the pair averages of one tile, and for their sums over tiles, laid out like a tile."""

    rows: Array
    log_z: npt.NDArray[np.float64]
    """(lanes,)"""
    M: int
    """M_i, Nv rows"""
    MU: int
    """MU_a, Nh"""
    free: int
    """1 - M_i², Nv"""
    r: int
    """r_i, Nv"""
    B: int
    """B̃_ia, E"""
    C: int
    """C_ia of a visible spin, and their sum over those before, 2 Nh"""
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
    """1 in the lanes where linear response gave a result, 1"""
    size: int
    """the largest |⟨τ_i σ_b⟩| of a visible spin, 1"""
    counts: int
    """1 in the lanes that hold a slice, 1"""
    total: int
    """Σ_ib |⟨τ_i σ_b⟩| over tiles, 1"""
    replaced: int
    """how many pair averages of a slice were replaced, 1"""


def new_response(n_edges: int, nv: int, nh: int, dtype: npt.DTypeLike, rule: int) -> Response:
    """Room for one tile."""
    bonds, square = (n_edges, nh * nh) if rule == CLOSED else (0, 0)
    sizes = (
        *(nv, nh, nv, nv, bonds, 2 * nh, nh, square, square, square),
        *(nh, nh, nv * nh, 1, 1, 1, 1, 1, 1),
    )
    numbers, starts = sections(sizes, dtype)
    return Response(numbers, np.empty(width_of(dtype)), *starts)


@kernel
def magnetisations(
    factors: int, wide: bool, edges: Edges, tile: Tile, scratch: Scratch, space: Response
) -> None:
    """M_i and MU_a, and log Z without its constant; products of up to `factors` norms cannot overflow."""
    nv, nh = edges.start.shape[0] - 1, tile.level - tile.norm
    rows, log_z = space.rows, space.log_z
    log_z[:] = 0.0
    for k in range(nh + nv):
        if k < nh:
            norm, level = load(tile.rows, tile.norm + k), load(tile.rows, tile.level + k)
            up, down = load(tile.rows, tile.mu + 2 * k), load(tile.rows, tile.mu + 2 * k + 1)
            store(rows, space.MU + k, up - down)
        else:
            up, down, level = visible_products(k - nh, wide, edges, tile, scratch)
            norm = up + down
            share = 1.0 / norm
            store(rows, space.M + k - nh, (up - down) * share)
            store(rows, space.free + k - nh, 4.0 * (up * share) * (down * share))
        sign, place, last = (1.0, k, nh - 1) if k < nh else (-1.0, k - nh, nv - 1)
        if wide:
            store(rows, space.size, level)
            for lane in range(log_z.shape[0]):
                log_z[lane] += sign * LOG_2 * rows[space.size, lane]
        if place % factors > 0:
            norm *= load(rows, space.norm)
        store(rows, space.norm, norm)
        if (place + 1) % factors == 0 or place == last:
            for lane in range(log_z.shape[0]):
                log_z[lane] += sign * np.log(rows[space.norm, lane])


@inlined
def message_pairs(e: int, edges: Edges, tile: Tile) -> tuple[Vector, Vector, Vector, Vector, Vector, Vector]:
    """m±, q± and MU± of a bond."""
    rows, a, kappa = tile.rows, edges.hidden[e], edges.kappa[e]
    up, down = load(rows, tile.m + 2 * e), load(rows, tile.m + 2 * e + 1)
    MU_up, MU_down = load(rows, tile.mu + 2 * a), load(rows, tile.mu + 2 * a + 1)
    return up, down, fma(down, kappa, up), fma(up, kappa, down), MU_up, MU_down


@kernel
def susceptibility(edges: Edges, tile: Tile, space: Response) -> None:
    """B̃, r and S⁻¹ of every lane."""
    start, hidden = edges.start, edges.hidden
    rows, B, C, root, S = space.rows, space.B, space.C, space.root, space.S
    nv, nh = start.shape[0] - 1, tile.level - tile.norm
    for ab in range(nh * nh):
        store(rows, S + ab, 0.0)
    for a in range(nh):
        up, down = load(tile.rows, tile.mu + 2 * a), load(tile.rows, tile.mu + 2 * a + 1)
        store(rows, root + a, 2.0 * sqrt(up * down))
        store(rows, S + a * nh + a, 1.0)
    for i in range(nv):
        first, last = start[i], start[i + 1]
        free = load(rows, space.free + i)
        R = free - free
        for e in range(first, last):
            up, down, q_up, q_down, MU_up, MU_down = message_pairs(e, edges, tile)
            width = load(rows, root + hidden[e])
            w = 1.0 / fma(MU_up * q_down, q_down, MU_down * q_up * q_up)
            c = edges.square[e] * (up * down) * (width * width) * w
            store(rows, B + e, edges.slope[e] * (q_up * q_down) * w * width)
            place = C + 2 * (e - first)
            store(rows, place, c)
            store(rows, place + 1, R)
            R += c
        share = 1.0 / (1.0 + R)
        r = sqrt(free * share)
        store(rows, space.r + i, r)
        after = R - R
        for e in range(last - 1, first - 1, -1):
            # R - c as the sum of the others: next to a strong bond the difference would lose their digits.
            place, diagonal = C + 2 * (e - first), S + hidden[e] * (nh + 1)
            c, others = load(rows, place), load(rows, place + 1) + after
            store(rows, diagonal, fnma(c * share, others, load(rows, diagonal)))
            after += c
        for e in range(first, last):
            row = S + hidden[e] * nh
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
    nh = tile.level - tile.norm
    r = load(rows, space.r + i)
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
        store(rows, pair + b, chi + load(rows, space.M + i) * load(rows, space.MU + b))


@kernel
def bethe_row(i: int, edges: Edges, tile: Tile, space: Response) -> None:
    """The pair belief of every bond of visible spin i, M_i MU_b where there is none, into space.belief."""
    rows, belief = space.rows, space.belief
    M = load(rows, space.M + i)
    for b in range(tile.level - tile.norm):
        store(rows, belief + b, M * load(rows, space.MU + b))
    for e in range(edges.start[i], edges.start[i + 1]):
        up, down, q_up, q_down, MU_up, MU_down = message_pairs(e, edges, tile)
        c_up, c_down = MU_up * q_down, MU_down * q_up
        equal = fma(up, c_up, down * c_down)
        opposite = edges.kappa[e] * fma(down, c_up, up * c_down)
        store(rows, belief + edges.hidden[e], (equal - opposite) / (equal + opposite))
