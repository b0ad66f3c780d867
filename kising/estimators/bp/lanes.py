"""Belief propagation on many slices at once, one slice per lane (docs/maths.md, "Belief propagation on the replicated
system").

A magnetisation is carried as the pair of its probabilities, (1 ± m)/2. Both are products and sums of positive numbers,
so neither loses digits, however strong the couplings are; and there is no tanh, atanh or log per bond. With
κ = e^{-2 K_ia}, m± of m_i^a, MU± of the full magnetisation of σ_a and M± of that of τ_i, all but for factors that both
signs share:

    q± = m± + κ m∓             1 ± t m                          H±_a = e^{±g_a} Π_i q∓        MU± = H±/(H₊+H₋)
    c± = MU± q∓                the cavity value μ_a^i
    f± = c± + κ c∓             1 ± t μ_a^i                      P±_i = e^{±θ_i} Π_a f±        M± = P±/(P₊+P₋)
    m± ← M± f∓/(M₊ f₋ + M₋ f₊)                                  one division per bond

A tile holds as many slices as a vector has lanes; its arrays are [bond or spin, lane]. A lane's numbers depend
on its own slice alone. Slices settle after very different numbers of iterations, so there are three tiles: a
settled lane of `active` moves to `done`, the next slice of `staged` takes its place, and what follows the
messages (`response`) is computed whenever `done` is full.

Where couplings or fields are so strong that products could overflow (`wide`), a product is carried as a number and a
power of two, and rescaled at the bonds that `edges` marks.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.estimators.bp.edges import Edges, Indices
from kising.estimators.damping import damping_at
from kising.estimators.lane_state import ITERATION, SLOT, empty_lanes
from kising.kernels.jit import inlined, kernel
from kising.kernels.vector_math import exp, exp_parts, scaled
from kising.kernels.vectors import (
    Vector,
    exponent,
    fma,
    largest,
    load,
    mantissa,
    sections,
    store,
    width_of,
)
from kising.model import Array


class Tile(NamedTuple):
    """Slices side by side, one per lane. All numbers lie in one array; the fields below give the first row of each
    quantity in it. Of a pair, the row of + comes first.
    """

    rows: Array
    """(n, lanes)"""
    state: npt.NDArray[np.int64]
    """the slice in each lane, and its iterations (`lane_state`), (3, lanes)"""
    m: int
    """(1 ± m_i^a)/2, 2 E rows; in `staged` (1 ± tanh θ_i)/2, with which all messages of a visible spin begin, 2 Nv"""
    field: int
    """e^{±θ_i}, divided by 2^{±power}, 2 Nv"""
    power: int
    """whole numbers, 0 where nothing can overflow, Nv"""
    hidden_field: int
    """e^{±g_a}, divided by 2^{±hidden_power}, 2 Nh"""
    hidden_power: int
    """Nh"""
    mu: int
    """(1 ± MU_a)/2, 2 Nh"""
    norm: int
    """H₊ + H₋ of each σ_a, divided by 2^level, Nh"""
    level: int
    """Nh"""


class Scratch(NamedTuple):
    """Room for one sweep, laid out like a tile."""

    rows: Array
    change: int
    """the summed square change of the messages, 1 row"""
    share: int
    """share of the new message in the next one, 1 row"""
    bond: int
    """f± of bond k of a visible spin, 2 Nh"""
    product: int
    """Π_i q± of σ_a, divided by 2^power, 2 Nh"""
    power: int
    """2 Nh"""


def new_tile(n_messages: int, nv: int, nh: int, dtype: npt.DTypeLike) -> Tile:
    """A tile of empty lanes."""
    numbers, starts = sections((2 * n_messages, 2 * nv, nv, 2 * nh, nh, 2 * nh, nh, nh), dtype)
    # Even odds everywhere keep an empty lane finite.
    numbers[:] = 1
    return Tile(numbers, empty_lanes(width_of(dtype)), *starts)


def new_scratch(nh: int, dtype: npt.DTypeLike) -> Scratch:
    """Room for one sweep over a tile."""
    numbers, starts = sections((1, 1, 2 * nh, 2 * nh, 2 * nh), dtype)
    return Scratch(numbers, *starts)


@kernel
def stage(first: int, theta: Array, g: Array, wide: bool, edges: Edges, tile: Tile, scratch: Scratch) -> int:
    """Put the slices from `first` on into `tile`; returns how many there were. θ is (B, Nv) and g (B, Nh)."""
    rows = tile.rows
    nv, nh = theta.shape[1], g.shape[1]
    lanes = rows.shape[1]
    count = min(lanes, theta.shape[0] - first)
    for lane in range(lanes):
        here = lane < count
        tile.state[SLOT, lane] = first + lane if here else -1
        for i in range(nv):
            rows[tile.power + i, lane] = theta[first + lane, i] if here else 0.0
        for a in range(nh):
            rows[tile.hidden_power + a, lane] = g[first + lane, a] if here else 0.0
    clear(nh, wide, scratch)
    for a in range(nh):
        split_field(tile.hidden_power + a, tile.hidden_field + 2 * a, wide, rows)
    for i in range(nv):
        split_field(tile.power + i, tile.field + 2 * i, wide, rows)
        up, down = load(rows, tile.field + 2 * i), load(rows, tile.field + 2 * i + 1)
        if wide:
            power = load(rows, tile.power + i)
            up, down, _ = fold(up, down, power, 0.0 - power)
            if edges.rest_hidden[i]:
                rescale_hidden(nh, scratch)
        share = 1.0 / (up + down)
        up *= share
        down *= share
        store(rows, tile.m + 2 * i, up)
        store(rows, tile.m + 2 * i + 1, down)
        for e in range(edges.start[i], edges.start[i + 1]):
            multiply(scratch.product + 2 * edges.hidden[e], edges.kappa[e], up, down, scratch.rows)
    magnetise(nh, wide, tile, scratch)
    return count


@inlined
def split_field(place: int, pair: int, wide: bool, rows: Array) -> None:
    """The field in row `place` becomes e^{± field} in the rows from `pair` on, and its power of two, if any."""
    field = load(rows, place)
    up, power = exp(field), field - field
    if wide:
        up, power = exp_parts(field)
    store(rows, pair, up)
    store(rows, pair + 1, 1.0 / up)
    store(rows, place, power)


@inlined
def fold(up: Vector, down: Vector, power: Vector, other: Vector) -> tuple[Vector, Vector, Vector]:
    """up 2^power and down 2^other, both divided by 2^level, with the level that keeps the larger in range."""
    level = largest(power, other)
    return scaled(up, power - level), scaled(down, other - level), level


@inlined
def clear(nh: int, wide: bool, scratch: Scratch) -> None:
    """Begin the products of the hidden spins."""
    for k in range(2 * nh):
        store(scratch.rows, scratch.product + k, 1.0)
        if wide:
            store(scratch.rows, scratch.power + k, 0.0)


@kernel
def rescale_hidden(nh: int, scratch: Scratch) -> None:
    """Move the powers of two out of the products of the hidden spins."""
    rows = scratch.rows
    for k in range(2 * nh):
        product = load(rows, scratch.product + k)
        store(rows, scratch.power + k, load(rows, scratch.power + k) + exponent(product))
        store(rows, scratch.product + k, mantissa(product))


@inlined
def multiply(place: int, kappa: float, up: Vector, down: Vector, rows: Array) -> None:
    """Multiply a bond into the products of its hidden spin."""
    store(rows, place, load(rows, place) * fma(down, kappa, up))
    store(rows, place + 1, load(rows, place + 1) * fma(up, kappa, down))


@kernel
def retire(here: int, tile: Tile, there: int, done: Tile) -> None:
    """Take the slice in lane `here` of the active tile to lane `there` of `done`, except its messages."""
    for k in range(tile.hidden_field - tile.field):
        done.rows[done.field + k, there] = tile.rows[tile.field + k, here]
    for k in range(tile.rows.shape[0] - tile.mu):
        done.rows[done.mu + k, there] = tile.rows[tile.mu + k, here]
    for k in range(3):
        done.state[k, there] = tile.state[k, here]
    tile.state[SLOT, here] = -1


@kernel
def begin(here: int, staged: Tile, there: int, tile: Tile) -> None:
    """Let the staged slice in lane `here` begin in lane `there` of the active tile, except its messages."""
    # All but the norm and its level, which every sweep writes before they are read.
    for k in range(tile.norm - tile.field):
        tile.rows[tile.field + k, there] = staged.rows[staged.field + k, here]
    tile.state[SLOT, there] = staged.state[SLOT, here]
    tile.state[ITERATION, there] = 0


@kernel
def exchange(lane: int, tile: Tile, there: int, done: Tile, here: int, staged: Tile, start: Indices) -> None:
    """Take the messages in a lane of the active tile to lane `there` of `done`, and put those of the staged slice
    in lane `here` in their place. Both in one pass: reaching a lane takes as long as using it.
    """
    for i in range(start.shape[0] - 1):
        up, down = staged.rows[staged.m + 2 * i, here], staged.rows[staged.m + 2 * i + 1, here]
        for e in range(start[i], start[i + 1]):
            place = 2 * e
            done.rows[done.m + place, there] = tile.rows[tile.m + place, lane]
            done.rows[done.m + place + 1, there] = tile.rows[tile.m + place + 1, lane]
            tile.rows[tile.m + place, lane] = up
            tile.rows[tile.m + place + 1, lane] = down


@inlined
def magnetise(nh: int, wide: bool, tile: Tile, scratch: Scratch) -> None:
    """MU± from the products of q±."""
    rows, room = tile.rows, scratch.rows
    for a in range(nh):
        pair, product = tile.hidden_field + 2 * a, scratch.product + 2 * a
        up, down = load(rows, pair) * load(room, product + 1), load(rows, pair + 1) * load(room, product)
        if wide:
            power, own = scratch.power + 2 * a, load(rows, tile.hidden_power + a)
            up, down, level = fold(up, down, load(room, power + 1) + own, load(room, power) - own)
            store(rows, tile.level + a, level)
        norm = up + down
        share = 1.0 / norm
        store(rows, tile.mu + 2 * a, up * share)
        store(rows, tile.mu + 2 * a + 1, down * share)
        store(rows, tile.norm + a, norm)


@inlined
def visible_products(
    i: int, wide: bool, edges: Edges, tile: Tile, scratch: Scratch
) -> tuple[Vector, Vector, Vector]:
    """P₊ and P₋ of visible spin i, divided by 2^level, and the level; f± of its bonds go into scratch.bond."""
    rows, room = tile.rows, scratch.rows
    up, down = load(rows, tile.field + 2 * i), load(rows, tile.field + 2 * i + 1)
    level = up - up
    if wide:
        level = load(rows, tile.power + i)
    power, other = level, 0.0 - level
    place = scratch.bond
    for e in range(edges.start[i], edges.start[i + 1]):
        if edges.rest[e]:
            power, other = power + exponent(up), other + exponent(down)
            up, down = mantissa(up), mantissa(down)
        kappa, a = edges.kappa[e], edges.hidden[e]
        m_up, m_down = load(rows, tile.m + 2 * e), load(rows, tile.m + 2 * e + 1)
        c_up = load(rows, tile.mu + 2 * a) * fma(m_up, kappa, m_down)
        c_down = load(rows, tile.mu + 2 * a + 1) * fma(m_down, kappa, m_up)
        f_up, f_down = fma(c_down, kappa, c_up), fma(c_up, kappa, c_down)
        up *= f_up
        down *= f_down
        store(room, place, f_up)
        store(room, place + 1, f_down)
        place += 2
    if wide:
        up, down, level = fold(up, down, power, other)
    return up, down, level


@kernel
def sweep(damped: bool, wide: bool, edges: Edges, tile: Tile, scratch: Scratch) -> None:
    """One iteration of all lanes; where `damped`, scratch.share says how much of the new messages is taken.

    The summed square change of m_i^a, as if undamped, goes to scratch.change.
    """
    rows, room = tile.rows, scratch.rows
    nh = tile.level - tile.norm
    share = load(room, scratch.share)
    kept = 1.0 - share
    change = share - share
    clear(nh, wide, scratch)
    for i in range(edges.start.shape[0] - 1):
        if edges.rest_hidden[i]:
            rescale_hidden(nh, scratch)
        M_up, M_down, _ = visible_products(i, wide, edges, tile, scratch)
        norm = 1.0 / (M_up + M_down)
        M_up *= norm
        M_down *= norm
        place = scratch.bond
        for e in range(edges.start[i], edges.start[i + 1]):
            up, down = M_up * load(room, place + 1), M_down * load(room, place)
            norm = 1.0 / (up + down)
            up *= norm
            down *= norm
            old = load(rows, tile.m + 2 * e)
            step = up - old
            change = fma(step, step, change)
            if damped:
                # For a share of one these are the new messages to the last bit, whatever the other lanes do.
                up = fma(share, up, kept * old)
                down = fma(share, down, kept * load(rows, tile.m + 2 * e + 1))
            store(rows, tile.m + 2 * e, up)
            store(rows, tile.m + 2 * e + 1, down)
            multiply(scratch.product + 2 * edges.hidden[e], edges.kappa[e], up, down, room)
            place += 2
    # A magnetisation changes twice as much as its probabilities.
    store(room, scratch.change, 4.0 * change)
    magnetise(nh, wide, tile, scratch)


@kernel
def set_damping(damping: float, max_iterations: int, tile: Tile, scratch: Scratch) -> bool:
    """The share of the new message in the next iteration of each lane; whether any is below one."""
    damped = False
    for lane in range(tile.state.shape[1]):
        keep = damping_at(tile.state[ITERATION, lane], damping, max_iterations)
        scratch.rows[scratch.share, lane] = 1.0 - keep
        damped = damped or keep > 0.0
    return damped
