"""What follows from settled messages, for a tile of slices: moments, Bethe log Z, and pair averages (maths.md,
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

from kising.estimators.correlations import CLOSED, SMALLEST_PIVOT
from kising.estimators.edges import Edges, Indices
from kising.estimators.lanes import DOWN, LANES, UP, Scratch, Tile, visible_products
from kising.jit import kernel
from kising.model import Array


class Response(NamedTuple):
    """Room for the pair averages of one tile."""

    M: Array
    """M_i, (Nv, lanes)"""
    r: Array
    """r_i, (Nv, lanes)"""
    B: Array
    """B̃_ia, (E, lanes)"""
    C: Array
    """C_ia of a row, (Nh, lanes)"""
    root: Array
    """√(1-MU_a²), (Nh, lanes)"""
    S: Array
    """S, then its factors L and D, (Nh, Nh, lanes)"""
    inverse: Array
    """S⁻¹, (Nh, Nh, lanes)"""
    lower: Array
    """L⁻¹, (Nh, Nh, lanes)"""
    pair: Array
    """a row of pair averages, (Nh, lanes)"""
    line: Array
    """numbers on the way, (3, lanes)"""
    log_z: npt.NDArray[np.float64]
    """(lanes,)"""
    sound: npt.NDArray[np.bool_]
    """whether S could be inverted, (lanes,)"""
    counts: npt.NDArray[np.bool_]
    """whether the lane holds a slice, and a finite one, (lanes,)"""


def new_response(n_edges: int, nv: int, nh: int, dtype: npt.DTypeLike, way: int) -> Response:
    """Room for one tile."""
    square = (nh, nh, LANES) if way == CLOSED else (1, 1, LANES)
    return Response(
        M=np.empty((nv, LANES), dtype),
        r=np.empty((nv, LANES), dtype),
        B=np.empty((n_edges if way == CLOSED else 1, LANES), dtype),
        C=np.empty((nh, LANES), dtype),
        root=np.empty((nh, LANES), dtype),
        S=np.empty(square, dtype),
        inverse=np.empty(square, dtype),
        lower=np.empty(square, dtype),
        pair=np.empty((nh, LANES), dtype),
        line=np.empty((3, LANES), dtype),
        log_z=np.empty(LANES),
        sound=np.empty(LANES, np.bool_),
        counts=np.empty(LANES, np.bool_),
    )


@kernel
def magnetisations(factors: int, edges: Edges, tile: Tile, scratch: Scratch, space: Response) -> None:
    """M_i, and log Z but for its constant; so many `factors` of a product of norms stay within floating point."""
    m, up, down, mu, norm = tile.m, tile.up, tile.down, tile.mu, tile.norm
    row, bond = scratch.row, scratch.bond
    start, hidden, weight = edges.start, edges.hidden, edges.t
    M, log_z, product = space.M, space.log_z, space.line[0]
    nv, lanes = up.shape
    nh = mu.shape[0]
    one = mu.dtype.type(1)
    log_z[:] = 0.0
    product[:] = one
    for a in range(nh):
        for lane in range(lanes):
            product[lane] *= norm[a, lane]
        if (a + 1) % factors == 0 or a + 1 == nh:
            for lane in range(lanes):
                log_z[lane] += np.log(product[lane])
            product[:] = one
    for i in range(nv):
        visible_products(i, lanes, start, hidden, weight, m, mu, up, down, row, bond)
        for lane in range(lanes):
            total = row[UP, lane] + row[DOWN, lane]
            M[i, lane] = (row[UP, lane] - row[DOWN, lane]) / total
            product[lane] *= total
        if (i + 1) % factors == 0 or i + 1 == nv:
            for lane in range(lanes):
                log_z[lane] -= np.log(product[lane])
            product[:] = one


@kernel
def susceptibility(edges: Edges, tile: Tile, space: Response) -> None:
    """B̃, r and S⁻¹ of every lane."""
    m, mu = tile.m, tile.mu
    M, r, B, C, root, S = space.M, space.r, space.B, space.C, space.root, space.S
    start, hidden, weight, slope, square = edges
    nv, lanes = M.shape
    nh = mu.shape[0]
    one, nothing = mu.dtype.type(1), mu.dtype.type(0)
    R = space.line[0]
    S[:] = nothing
    for a in range(nh):
        for lane in range(lanes):
            S[a, a, lane] = one
            root[a, lane] = np.sqrt(max(one - mu[a, lane] * mu[a, lane], nothing))
    for i in range(nv):
        first, last = start[i], start[i + 1]
        R[:] = nothing
        for e in range(first, last):
            k, a, t, along, across = e - first, hidden[e], weight[e], slope[e], square[e]
            for lane in range(lanes):
                x = t * m[e, lane]
                w = one / (one - (mu[a, lane] + mu[a, lane] - x) * x)
                free = root[a, lane] * root[a, lane] * (one - m[e, lane] * m[e, lane])
                B[e, lane] = along * (one - x * x) * w
                C[k, lane] = across * free * w
            for lane in range(lanes):
                R[lane] += C[k, lane]
        for lane in range(lanes):
            free = max(one - M[i, lane] * M[i, lane], nothing)
            r[i, lane] = np.sqrt(free / (one + R[lane]))
        for e in range(first, last):
            k, a = e - first, hidden[e]
            for lane in range(lanes):
                S[a, a, lane] -= C[k, lane] * (R[lane] - C[k, lane]) / (one + R[lane])
            for lane in range(lanes):
                B[e, lane] *= r[i, lane] * root[a, lane]
            for f in range(first, e):
                b = hidden[f]
                for lane in range(lanes):
                    S[a, b, lane] += B[e, lane] * B[f, lane]
    _invert(S, space.lower, space.inverse, space.line, space.sound)


@kernel
def _invert(S: Array, lower: Array, inverse: Array, line: Array, sound: npt.NDArray[np.bool_]) -> None:
    """S⁻¹ by S = L D Lᵀ; S is symmetric, but past BP's instability not positive. Only its lower triangle is
    read. Lanes where a pivot vanishes are marked as not sound.
    """
    nh, _, lanes = S.shape
    one, nothing = S.dtype.type(1), S.dtype.type(0)
    sound[:] = True
    largest = line[1]
    largest[:] = nothing
    for a in range(nh):
        # Row a holds L D until it is divided by D.
        for b in range(a):
            for c in range(b):
                for lane in range(lanes):
                    S[a, b, lane] -= S[a, c, lane] * S[b, c, lane]
        for b in range(a):
            for lane in range(lanes):
                ratio = S[a, b, lane] / S[b, b, lane]
                S[a, a, lane] -= S[a, b, lane] * ratio
                S[a, b, lane] = ratio
        for lane in range(lanes):
            size = abs(S[a, a, lane])
            largest[lane] = max(largest[lane], size)
            if not size > SMALLEST_PIVOT * largest[lane]:
                sound[lane] = False
                S[a, a, lane] = one
    for a in range(nh):
        for b in range(a):
            for lane in range(lanes):
                lower[a, b, lane] = -S[a, b, lane]
            for c in range(b + 1, a):
                for lane in range(lanes):
                    lower[a, b, lane] -= S[a, c, lane] * lower[c, b, lane]
    for a in range(nh):
        for b in range(a + 1):
            for lane in range(lanes):
                inverse[a, b, lane] = one / S[a, a, lane]
                if b < a:
                    inverse[a, b, lane] *= lower[a, b, lane]
            for c in range(a + 1, nh):
                for lane in range(lanes):
                    inverse[a, b, lane] += lower[c, a, lane] * lower[c, b, lane] / S[c, c, lane]
            if b < a:
                for lane in range(lanes):
                    inverse[b, a, lane] = inverse[a, b, lane]


@kernel
def closed_row(
    i: int,
    start: Indices,
    hidden: Indices,
    mu: Array,
    M: Array,
    r: Array,
    B: Array,
    root: Array,
    inverse: Array,
    pair: Array,
) -> None:
    """⟨τ_i σ_b⟩ = χ_ib + M_i MU_b of every b, into `pair`."""
    first, last = start[i], start[i + 1]
    nh, lanes = mu.shape
    nothing = mu.dtype.type(0)
    for b in range(nh):
        for lane in range(lanes):
            pair[b, lane] = nothing
        # Four bonds at a time: the sum is fetched and stored once for all of them.
        for e in range(first, last - 3, 4):
            a0, a1, a2, a3 = hidden[e], hidden[e + 1], hidden[e + 2], hidden[e + 3]
            for lane in range(lanes):
                value = pair[b, lane] + B[e, lane] * inverse[a0, b, lane]
                value += B[e + 1, lane] * inverse[a1, b, lane]
                value += B[e + 2, lane] * inverse[a2, b, lane]
                pair[b, lane] = value + B[e + 3, lane] * inverse[a3, b, lane]
        for e in range(last - (last - first) % 4, last):
            a0 = hidden[e]
            for lane in range(lanes):
                pair[b, lane] += B[e, lane] * inverse[a0, b, lane]
        for lane in range(lanes):
            pair[b, lane] = r[i, lane] * pair[b, lane] * root[b, lane] + M[i, lane] * mu[b, lane]


@kernel
def bethe_row(i: int, edges: Edges, tile: Tile, space: Response, chosen: npt.NDArray[np.bool_]) -> None:
    """The pair belief of every bond of visible spin i, M_i MU_b where there is none, in the `chosen` lanes of
    space.pair.
    """
    m, mu, M, pair = tile.m, tile.mu, space.M, space.pair
    hidden, weight = edges.hidden, edges.t
    nh, lanes = mu.shape
    one = mu.dtype.type(1)
    for b in range(nh):
        for lane in range(lanes):
            pair[b, lane] = M[i, lane] * mu[b, lane] if chosen[lane] else pair[b, lane]
    for e in range(edges.start[i], edges.start[i + 1]):
        a, t = hidden[e], weight[e]
        for lane in range(lanes):
            x = t * m[e, lane]
            joint = t * (one - mu[a, lane] * x) + m[e, lane] * (mu[a, lane] - x)
            pair[a, lane] = joint / (one - x * x) if chosen[lane] else pair[a, lane]


@kernel
def lane_sum(x: Array) -> float:
    """The sum of a row of lanes, by halves: an order that is written down and quick. Destroys x."""
    width = LANES
    while width > 1:
        half = (width + 1) // 2
        for lane in range(width - half):
            x[lane] += x[lane + half]
        width = half
    return x[0]
