"""Susceptibility propagation, slices side by side: the rule `iterated` (docs/maths.md, "Pair correlations").

    v^i_ab = (1-(μ_a^i)²) { δ_ab - Σ_j α_ja g^a_jb - α_ia g^a_ib }        α = t/(1-(t m)²) = t (1+κ)²/(4 q₊ q₋)
    g^a_jb = (1-(m_j^a)²) Σ_{c≠a} β_jc v^j_cb                             β = t/(1-(t μ)²) = t (f₊+f₋)²/(4 f₊ f₋)
    χ_ib   = (1-M_i²) Σ_a β_ia v^i_ab

It costs O(E Nh) per iteration, and it can diverge. Only y = β v is stored, so that one pass over the bonds makes an
iteration, and a bond has the coefficients w = α (1-m²) and z = β (1-μ²), both within ±1:

    y^i_ab ← z_ia { U_ab - w_ia (Y_ib - y^i_ab) }        Y_ib = Σ_a y^i_ab        U_ab = δ_ab - Σ_j w_ja (Y_jb - y^j_ab)

Slices need very different numbers of iterations, as they do for their messages: a lane whose slice has settled, or
diverged, takes the next one. A lane's numbers depend on its own slice alone.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.estimators.bp.edges import Edges
from kising.estimators.bp.lanes import Tile
from kising.estimators.bp.response import Response, message_pairs
from kising.estimators.bp.rules import ITERATED
from kising.estimators.damping import damping_at
from kising.estimators.lane_state import ITERATION, SETTLED, SLOT, empty_lanes
from kising.kernels.jit import inlined, kernel
from kising.kernels.vectors import (
    Vector,
    fma,
    fnma,
    load,
    magnitude,
    sections,
    store,
    where_above,
    width_of,
)
from kising.model import Array

# An iteration that has grown beyond this has diverged: its values are finite, and useless.
LARGEST_RESPONSE = 1e8


class Propagation(NamedTuple):
    """Room for the iteration, laid out like a tile. Slices wait in `staged`, and their results in `chi`."""

    rows: Array
    state: npt.NDArray[np.int64]
    """of the lanes that are iterated, as in a tile, (3, lanes)"""
    done: npt.NDArray[np.int64]
    """the slices of the results in `chi`, (lanes,)"""
    weakest: float
    """stands for a t that has underflowed: y must tell how v changes"""
    staged: int
    """w, z and 1/β² of a bond, 3 E rows"""
    bond: int
    """the same of the slices that are iterated, 3 E"""
    free: int
    """1 - M_i² of the slices that are iterated, Nv"""
    y: int
    """y^i_ab, row e Nh + b, E Nh"""
    Y: int
    """Y_ib, row i Nh + b, Nv Nh"""
    U: int
    """U_ab, row a Nh + b, and that of the next iteration, 2 Nh²"""
    chi: int
    """χ_ib, row i Nh + b, Nv Nh"""
    begun: int
    """1 in lanes that have had an iteration, 1"""
    share: int
    """share of the new v in the next one, 1"""
    change: int
    """the summed square change of v, 1"""
    size: int
    """the largest v², 1"""


def new_propagation(n_edges: int, nv: int, nh: int, dtype: npt.DTypeLike, rule: int) -> Propagation:
    """Room for one tile, all lanes empty."""
    bonds, visible, hidden = (n_edges, nv, nh) if rule == ITERATED else (0, 0, 0)
    sizes = (
        *(3 * bonds, 3 * bonds, visible, bonds * hidden, visible * hidden, 2 * hidden * hidden),
        *(visible * hidden, 1, 1, 1, 1),
    )
    numbers, starts = sections(sizes, dtype)
    lanes = width_of(dtype)
    # Its inverse square, and the square of what it multiplies, must not leave the range of the format.
    weakest = float(np.finfo(dtype).tiny) ** 0.25
    return Propagation(numbers, empty_lanes(lanes), np.zeros(lanes, np.int64), weakest, *starts)


@kernel
def stage_response(edges: Edges, tile: Tile, room: Propagation) -> None:
    """The coefficients of all bonds, from the messages of a tile."""
    rows = room.rows
    for e in range(edges.hidden.shape[0]):
        kappa = edges.kappa[e]
        t = (1.0 - kappa) / (1.0 + kappa)
        if t == 0.0:
            t = room.weakest
        up, down, q_up, q_down, MU_up, MU_down = message_pairs(e, edges, tile)
        c_up, c_down = MU_up * q_down, MU_down * q_up
        f_up, f_down = fma(c_down, kappa, c_up), fma(c_up, kappa, c_down)
        q, c, f = q_up + q_down, c_up + c_down, f_up + f_down
        beta = 0.25 * t * (f / f_up) * (f / f_down)
        share = 1.0 / beta
        place = room.staged + 3 * e
        store(rows, place, t * (q / q_up) * (q / q_down) * (up * down))
        store(rows, place + 1, beta * (4.0 * (c_up / c) * (c_down / c)))
        store(rows, place + 2, share * share)


@kernel
def begin_response(here: int, tile: Tile, space: Response, there: int, room: Propagation) -> None:
    """Let the staged slice in lane `here` begin in lane `there`."""
    rows, nh = room.rows, tile.level - tile.norm
    for k in range(room.free - room.bond):
        rows[room.bond + k, there] = rows[room.staged + k, here]
    for i in range(room.y - room.free):
        rows[room.free + i, there] = space.rows[space.free + i, here]
    for ab in range(nh * nh):
        rows[room.U + ab, there] = 1.0 if ab % (nh + 1) == 0 else 0.0
    # y and Y are not cleared: where `begun` is 0 they are read as 0.
    rows[room.begun, there] = 0.0
    room.state[SLOT, there] = tile.state[SLOT, here]
    room.state[ITERATION, there] = 0
    room.state[SETTLED, there] = 0


@kernel
def finish_response(here: int, there: int, nh: int, room: Propagation) -> None:
    """Take χ of the slice in lane `here` to lane `there` of the results, and empty its lane."""
    rows = room.rows
    for i in range(room.y - room.free):
        free = rows[room.free + i, here]
        for b in range(nh):
            rows[room.chi + i * nh + b, there] = free * rows[room.Y + i * nh + b, here]
    room.done[there] = room.state[SLOT, here]
    room.state[SLOT, here] = -1


@kernel
def iterate_response(
    tolerance: float, damping: float, max_iterations: int, edges: Edges, nh: int, room: Propagation
) -> bool:
    """One iteration of all lanes; returns whether any slice has ended."""
    rows, slot, iteration, settled = room.rows, room.state[SLOT], room.state[ITERATION], room.state[SETTLED]
    lanes, damped = rows.shape[1], False
    for lane in range(lanes):
        keep = damping_at(iteration[lane], damping, max_iterations) if iteration[lane] > 0 else 0.0
        rows[room.share, lane] = 1.0 - keep
        damped = damped or keep > 0.0
    _sweep(damped, edges, nh, room)
    store(rows, room.begun, 1.0)
    ended = False
    enough = tolerance * edges.hidden.shape[0] * nh
    for lane in range(lanes):
        change, size = rows[room.change, lane], rows[room.size, lane]
        iteration[lane] += 1
        # The change is NaN where any value is.
        if change != change or size >= LARGEST_RESPONSE * LARGEST_RESPONSE:
            iteration[lane] = max_iterations
        else:
            settled[lane] = change < enough
        ended = ended or (slot[lane] >= 0 and has_ended(lane, max_iterations, room))
    return ended


@inlined
def has_ended(lane: int, max_iterations: int, room: Propagation) -> bool:
    """Whether the slice in a lane has settled, diverged, or had all its iterations."""
    ended: bool = room.state[SETTLED, lane] > 0 or room.state[ITERATION, lane] >= max_iterations
    return ended


@kernel
def _sweep(damped: bool, edges: Edges, nh: int, room: Propagation) -> None:
    """y, Y and the next U of all lanes; where `damped`, room.share says how much of the new y is taken."""
    rows, start, hidden = room.rows, edges.start, edges.hidden
    now, later = room.U, room.U + nh * nh
    for ab in range(nh * nh):
        store(rows, later + ab, 1.0 if ab % (nh + 1) == 0 else 0.0)
    begun, share = load(rows, room.begun), load(rows, room.share)
    kept, nothing = 1.0 - share, share - share
    change, size = nothing, nothing
    # Four hidden spins at a time: each bond is fetched once for all of them.
    whole = nh - nh % 4
    for i in range(start.shape[0] - 1):
        first, last = start[i], start[i + 1]
        for b in range(0, whole, 4):
            place = room.Y + i * nh + b
            Y0, Y1 = _held(place, begun, rows), _held(place + 1, begun, rows)
            Y2, Y3 = _held(place + 2, begun, rows), _held(place + 3, begun, rows)
            N0, N1, N2, N3 = nothing, nothing, nothing, nothing
            for e in range(first, last):
                bond, y, U = room.bond + 3 * e, room.y + e * nh + b, now + hidden[e] * nh + b
                w, z, weight = load(rows, bond), load(rows, bond + 1), load(rows, bond + 2)
                new0, d0 = _update(damped, y, U, w, z, Y0, begun, share, kept, rows)
                new1, d1 = _update(damped, y + 1, U + 1, w, z, Y1, begun, share, kept, rows)
                new2, d2 = _update(damped, y + 2, U + 2, w, z, Y2, begun, share, kept, rows)
                new3, d3 = _update(damped, y + 3, U + 3, w, z, Y3, begun, share, kept, rows)
                N0 += new0
                N1 += new1
                N2 += new2
                N3 += new3
                change = fma(weight, fma(d0, d0, d1 * d1) + fma(d2, d2, d3 * d3), change)
                top = _larger(
                    _larger(magnitude(new0), magnitude(new1)), _larger(magnitude(new2), magnitude(new3))
                )
                size = _larger(weight * (top * top), size)
            for e in range(first, last):
                w, y, U = load(rows, room.bond + 3 * e), room.y + e * nh + b, later + hidden[e] * nh + b
                store(rows, U, fnma(w, N0 - load(rows, y), load(rows, U)))
                store(rows, U + 1, fnma(w, N1 - load(rows, y + 1), load(rows, U + 1)))
                store(rows, U + 2, fnma(w, N2 - load(rows, y + 2), load(rows, U + 2)))
                store(rows, U + 3, fnma(w, N3 - load(rows, y + 3), load(rows, U + 3)))
            store(rows, place, N0)
            store(rows, place + 1, N1)
            store(rows, place + 2, N2)
            store(rows, place + 3, N3)
        for b in range(whole, nh):
            place = room.Y + i * nh + b
            Y0, N0 = _held(place, begun, rows), nothing
            for e in range(first, last):
                bond, y, U = room.bond + 3 * e, room.y + e * nh + b, now + hidden[e] * nh + b
                weight = load(rows, bond + 2)
                new0, d0 = _update(
                    damped, y, U, load(rows, bond), load(rows, bond + 1), Y0, begun, share, kept, rows
                )
                N0 += new0
                change = fma(weight, d0 * d0, change)
                size = _larger(weight * (new0 * new0), size)
            for e in range(first, last):
                w, y, U = load(rows, room.bond + 3 * e), room.y + e * nh + b, later + hidden[e] * nh + b
                store(rows, U, fnma(w, N0 - load(rows, y), load(rows, U)))
            store(rows, place, N0)
    for ab in range(nh * nh):
        store(rows, now + ab, load(rows, later + ab))
    store(rows, room.change, change)
    store(rows, room.size, size)


@inlined
def _update(
    damped: bool, y: int, U: int, w: Vector, z: Vector, Y: Vector, begun: Vector, share: Vector, kept: Vector,
    rows: Array,
) -> tuple[Vector, Vector]:  # fmt: skip
    """The new y of a bond and a hidden spin, which replaces the old one, and its change as if undamped."""
    old = _held(y, begun, rows)
    new = z * fnma(w, Y - old, load(rows, U))
    step = new - old
    if damped:
        # For a share of one this is the new value to the last bit, whatever the other lanes do.
        new = fma(share, new, kept * old)
    store(rows, y, new)
    return new, step


@inlined
def _held(place: int, begun: Vector, rows: Array) -> Vector:
    """A row, 0 in lanes whose slice has had no iteration."""
    return where_above(begun, 0.0, load(rows, place), 0.0)


@inlined
def _larger(a: Vector, b: Vector) -> Vector:
    """One instruction, where `largest` takes several for NaN: here the change of v tells of those."""
    return where_above(a, b, a, b)


@kernel
def iterated_row(i: int, nh: int, room: Propagation, space: Response) -> None:
    """⟨τ_i σ_b⟩ = χ_ib + M_i MU_b of every b, into space.pair."""
    M = load(space.rows, space.M + i)
    for b in range(nh):
        value = fma(M, load(space.rows, space.MU + b), load(room.rows, room.chi + i * nh + b))
        bound = where_above(value, 0.0, LARGEST_RESPONSE, -LARGEST_RESPONSE)
        store(space.rows, space.pair + b, where_above(LARGEST_RESPONSE, magnitude(value), value, bound))
