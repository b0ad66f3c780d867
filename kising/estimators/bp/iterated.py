"""Susceptibility propagation, for a tile of slices: the rule `iterated` (docs/maths.md, "Pair correlations").

    v^i_ab = (1-(μ_a^i)²) { δ_ab - Σ_j α_ja g^a_jb - α_ia g^a_ib }        α = t/(1-(t m)²) = t (1+κ)²/(4 q₊ q₋)
    g^a_jb = (1-(m_j^a)²) Σ_{c≠a} β_jc v^j_cb                             β = t/(1-(t μ)²) = t (f₊+f₋)²/(4 f₊ f₋)
    χ_ib   = (1-M_i²) Σ_a β_ia v^i_ab

It costs O(E Nh) per iteration, and it can diverge. All lanes are iterated until the last has settled; one that has
settled, or diverged, keeps its values.
"""

from typing import NamedTuple

import numpy.typing as npt

from kising.estimators.bp.edges import Edges
from kising.estimators.bp.lanes import Tile
from kising.estimators.bp.response import Response, message_pairs
from kising.estimators.bp.rules import ITERATED
from kising.estimators.damping import damping_at
from kising.kernels.jit import kernel
from kising.kernels.vectors import fma, fnma, load, magnitude, sections, store, where_above
from kising.model import Array

# An iteration that has grown beyond this has diverged: its values are finite, and useless.
LARGEST_RESPONSE = 1e8


class Propagation(NamedTuple):
    """Room for the iteration of one tile, laid out like a tile."""

    rows: Array
    alpha: int
    """α, E rows"""
    beta: int
    """β, E"""
    free: int
    """1 - (m_i^a)², E"""
    hidden_free: int
    """1 - (μ_a^i)², E"""
    v: int
    """v^i_ab, row e Nh + b, E Nh"""
    g: int
    """g^a_ib, row e Nh + b, E Nh"""
    total: int
    """Σ_j α_ja g^a_jb, row a Nh + b, Nh²"""
    active: int
    """1 in lanes that are still iterated, 1"""
    fine: int
    """1 in lanes that have settled, 1"""
    change: int
    """the summed square change of v, 1"""


def new_propagation(n_edges: int, nh: int, dtype: npt.DTypeLike, rule: int) -> Propagation:
    """Room for one tile."""
    bonds, hidden = (n_edges, nh) if rule == ITERATED else (0, 0)
    sizes = (bonds, bonds, bonds, bonds, bonds * hidden, bonds * hidden, hidden * hidden, 1, 1, 1)
    numbers, starts = sections(sizes, dtype)
    return Propagation(numbers, *starts)


@kernel
def propagate_response(
    tolerance: float, damping: float, max_iterations: int, edges: Edges, tile: Tile, room: Propagation
) -> None:
    """v^i_ab of every lane, from g = 0."""
    rows, active, fine, change = room.rows, room.active, room.fine, room.change
    nh, n_edges = tile.level - tile.norm, edges.hidden.shape[0]
    for e in range(n_edges):
        kappa = edges.kappa[e]
        t = (1.0 - kappa) / (1.0 + kappa)
        up, down, q_up, q_down, MU_up, MU_down = message_pairs(e, edges, tile)
        c_up, c_down = MU_up * q_down, MU_down * q_up
        f_up, f_down = fma(c_down, kappa, c_up), fma(c_up, kappa, c_down)
        q, c, f = q_up + q_down, c_up + c_down, f_up + f_down
        store(rows, room.alpha + e, 0.25 * t * (q / q_up) * (q / q_down))
        store(rows, room.beta + e, 0.25 * t * (f / f_up) * (f / f_down))
        store(rows, room.free + e, 4.0 * up * down)
        store(rows, room.hidden_free + e, 4.0 * (c_up / c) * (c_down / c))
    for k in range(2 * n_edges * nh):
        store(rows, room.v + k, 0.0)
    store(rows, active, 1.0)
    store(rows, fine, 0.0)
    iteration, alive = 0, True
    while iteration < max_iterations and alive:
        keep = damping_at(iteration, damping, max_iterations) if iteration > 0 else 0.0
        _iterate(1.0 - keep, edges, tile, room)
        iteration += 1
        alive = False
        for lane in range(rows.shape[1]):
            if rows[active, lane] > 0.0 and rows[change, lane] < tolerance * n_edges * nh:
                rows[active, lane] = 0.0
                rows[fine, lane] = 1.0
            alive = alive or rows[active, lane] > 0.0


@kernel
def _iterate(share: float, edges: Edges, tile: Tile, room: Propagation) -> None:
    """One iteration of the active lanes, which takes this share of the new values."""
    rows, start, hidden = room.rows, edges.start, edges.hidden
    nh = tile.level - tile.norm
    for ab in range(nh * nh):
        store(rows, room.total + ab, 0.0)
    for e in range(hidden.shape[0]):
        alpha = load(rows, room.alpha + e)
        for b in range(nh):
            place = room.total + hidden[e] * nh + b
            store(rows, place, fma(alpha, load(rows, room.g + e * nh + b), load(rows, place)))
    active = load(rows, room.active)
    within, change = active, active - active
    for e in range(hidden.shape[0]):
        alpha, free = load(rows, room.alpha + e), load(rows, room.hidden_free + e)
        for b in range(nh):
            source = 1.0 if hidden[e] == b else 0.0
            drive = fma(alpha, load(rows, room.g + e * nh + b), load(rows, room.total + hidden[e] * nh + b))
            old = load(rows, room.v + e * nh + b)
            difference = free * (source - drive) - old
            change = fma(difference, difference, change)
            new = fma(difference, share, old)
            within = where_above(LARGEST_RESPONSE, magnitude(new), within, 0.0)
            store(rows, room.v + e * nh + b, where_above(active, 0.0, new, old))
    store(rows, room.active, within)
    store(rows, room.change, change)
    for i in range(start.shape[0] - 1):
        for b in range(nh):
            drive = active - active
            for e in range(start[i], start[i + 1]):
                drive = fma(load(rows, room.beta + e), load(rows, room.v + e * nh + b), drive)
            for e in range(start[i], start[i + 1]):
                others = fnma(load(rows, room.beta + e), load(rows, room.v + e * nh + b), drive)
                store(rows, room.g + e * nh + b, load(rows, room.free + e) * others)


@kernel
def iterated_row(i: int, edges: Edges, tile: Tile, room: Propagation, space: Response) -> None:
    """⟨τ_i σ_b⟩ = χ_ib + M_i MU_b of every b, into space.pair."""
    rows, nh = room.rows, tile.level - tile.norm
    free, M = load(space.rows, space.free + i), load(space.rows, space.M + i)
    for b in range(nh):
        chi = free - free
        for e in range(edges.start[i], edges.start[i + 1]):
            chi = fma(load(rows, room.beta + e), load(rows, room.v + e * nh + b), chi)
        value = fma(free, chi, M * load(space.rows, space.MU + b))
        bound = where_above(value, 0.0, LARGEST_RESPONSE, -LARGEST_RESPONSE)
        store(space.rows, space.pair + b, where_above(LARGEST_RESPONSE, magnitude(value), value, bound))
