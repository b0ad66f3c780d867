"""Belief propagation on many slices at once, one slice per lane (docs/maths.md, "Belief propagation on the replicated
system").

tanh(Σ atanh x) = (P₊-P₋)/(P₊+P₋) with P± = Π(1±x): no tanh, atanh or log per bond. With x = t m (m = m_i^a,
t = tanh K_ia) and MU_a the full magnetisation of σ_a, the cavity value is μ_a^i = (MU_a - x)/(1 - MU_a x), and

    P±_i = e^{±θ_i} Π_a (d ± t u)      d = 1 - MU_a x      u = MU_a - x        M_i  = (P₊-P₋)/(P₊+P₋)
    m_i^a ← (M_i d - t u)/(d - M_i t u)                                          one division per bond
    H±_a = e^{±g_a} Π_i (1 ∓ t m)                                                MU_a = (H₊-H₋)/(H₊+H₋)

A tile holds as many slices as a vector has lanes; its arrays are [bond or spin, lane]. A lane's numbers depend
on its own slice alone. Slices settle after very different numbers of iterations, so there are three tiles: a
settled lane of `active` moves to `done`, the next slice of `staged` takes its place, and what follows the
messages (`response`) is computed whenever `done` is full.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.estimators.bp.edges import Indices
from kising.estimators.damping import damping_at
from kising.kernels.jit import inlined, kernel
from kising.kernels.vector_math import exp
from kising.kernels.vectors import Vector, fma, fms, fnma, load, sections, store, width_of
from kising.model import Array

# Rows of Tile.state.
SLOT, ITERATION, SETTLED = 0, 1, 2


class Tile(NamedTuple):
    """Slices side by side, one per lane. All numbers lie in one array; the fields below give the first row of each
    quantity in it.
    """

    rows: Array
    """(n, lanes)"""
    state: npt.NDArray[np.int64]
    """SLOT: the slice in each lane, -1 where there is none; ITERATION: how many it has had; SETTLED: 1 if they were
    enough, (3, lanes)
    """
    m: int
    """m_i^a, E rows; in `staged` tanh θ_i, with which all messages of a visible spin begin, Nv rows"""
    up: int
    """e^{θ_i}, Nv"""
    down: int
    """e^{-θ_i}, Nv"""
    hidden_up: int
    """e^{g_a}, Nh"""
    hidden_down: int
    """e^{-g_a}, Nh"""
    mu: int
    """MU_a, Nh"""
    norm: int
    """H₊ + H₋ of each σ_a, Nh"""


class Scratch(NamedTuple):
    """Room for one sweep, laid out like a tile."""

    rows: Array
    change: int
    """the summed square change of the messages, 1 row"""
    share: int
    """share of the new message in the next one, 1 row"""
    bond: int
    """t u and d of bond k of a visible spin, 2 Nh"""
    product: int
    """Π_i (1 + t m) and Π_i (1 - t m) of σ_a, 2 Nh"""


def new_tile(n_messages: int, nv: int, nh: int, dtype: npt.DTypeLike) -> Tile:
    """A tile of empty lanes."""
    numbers, starts = sections((n_messages, nv, nv, nh, nh, nh, nh), dtype)
    state = np.zeros((3, width_of(dtype)), np.int64)
    state[SLOT] = -1
    # A field of zero keeps an empty lane finite.
    numbers[starts[1] :] = 1
    return Tile(numbers, state, *starts)


def new_scratch(nh: int, dtype: npt.DTypeLike) -> Scratch:
    """Room for one sweep over a tile."""
    numbers, starts = sections((1, 1, 2 * nh, 2 * nh), dtype)
    return Scratch(numbers, *starts)


@kernel
def stage(
    first: int,
    theta: Array,
    g: Array,
    start: Indices,
    hidden: Indices,
    weight: Array,
    tile: Tile,
    scratch: Scratch,
) -> int:
    """Put the slices from `first` on into `tile`; returns how many there were. θ is (B, Nv) and g (B, Nh)."""
    rows, product = tile.rows, scratch.product
    nv, nh = theta.shape[1], g.shape[1]
    lanes = rows.shape[1]
    count = min(lanes, theta.shape[0] - first)
    for lane in range(lanes):
        here = lane < count
        tile.state[SLOT, lane] = first + lane if here else -1
        for i in range(nv):
            rows[tile.up + i, lane] = theta[first + lane, i] if here else 0.0
        for a in range(nh):
            rows[tile.hidden_up + a, lane] = g[first + lane, a] if here else 0.0
    for a in range(nh):
        e_g = exp(load(rows, tile.hidden_up + a))
        store(rows, tile.hidden_up + a, e_g)
        store(rows, tile.hidden_down + a, 1.0 / e_g)
        store(scratch.rows, product + 2 * a, 1.0)
        store(scratch.rows, product + 2 * a + 1, 1.0)
    for i in range(nv):
        plus = exp(load(rows, tile.up + i))
        minus = 1.0 / plus
        m = (plus - minus) / (plus + minus)
        store(rows, tile.up + i, plus)
        store(rows, tile.down + i, minus)
        store(rows, tile.m + i, m)
        for e in range(start[i], start[i + 1]):
            multiply(product + 2 * hidden[e], weight[e], m, scratch.rows)
    magnetise(nh, tile, scratch)
    return count


@inlined
def multiply(place: int, t: float, m: Vector, rows: Array) -> None:
    """Multiply a bond into the products of its hidden spin."""
    store(rows, place, load(rows, place) * fma(m, t, 1.0))
    store(rows, place + 1, load(rows, place + 1) * fnma(m, t, 1.0))


@kernel
def retire(here: int, tile: Tile, there: int, done: Tile) -> None:
    """Take the slice in lane `here` of the active tile to lane `there` of `done`, except its messages."""
    for k in range(tile.hidden_up - tile.up):
        done.rows[done.up + k, there] = tile.rows[tile.up + k, here]
    for k in range(tile.rows.shape[0] - tile.mu):
        done.rows[done.mu + k, there] = tile.rows[tile.mu + k, here]
    for k in range(3):
        done.state[k, there] = tile.state[k, here]
    tile.state[SLOT, here] = -1


@kernel
def begin(here: int, staged: Tile, there: int, tile: Tile) -> None:
    """Let the staged slice in lane `here` begin in lane `there` of the active tile, except its messages."""
    # All but the norm, which every sweep writes before it is read.
    for k in range(tile.norm - tile.up):
        tile.rows[tile.up + k, there] = staged.rows[staged.up + k, here]
    tile.state[SLOT, there] = staged.state[SLOT, here]
    tile.state[ITERATION, there] = 0


@kernel
def exchange(lane: int, tile: Tile, there: int, done: Tile, here: int, staged: Tile, start: Indices) -> None:
    """Take the messages in a lane of the active tile to lane `there` of `done`, and put those of the staged slice
    in lane `here` in their place. Both in one pass: reaching a lane takes as long as using it.
    """
    for i in range(start.shape[0] - 1):
        m = staged.rows[staged.m + i, here]
        for e in range(start[i], start[i + 1]):
            done.rows[done.m + e, there] = tile.rows[tile.m + e, lane]
            tile.rows[tile.m + e, lane] = m


@inlined
def magnetise(nh: int, tile: Tile, scratch: Scratch) -> None:
    """MU_a from the products of 1 ± t m."""
    rows, product = tile.rows, scratch.product
    for a in range(nh):
        up = load(rows, tile.hidden_up + a) * load(scratch.rows, product + 2 * a + 1)
        down = load(rows, tile.hidden_down + a) * load(scratch.rows, product + 2 * a)
        store(rows, tile.mu + a, (up - down) / (up + down))
        store(rows, tile.norm + a, up + down)


@inlined
def visible_products(
    i: int, start: Indices, hidden: Indices, weight: Array, tile: Tile, scratch: Scratch
) -> tuple[Vector, Vector]:
    """P₊ and P₋ of visible spin i; t u and d of its bonds go into scratch.bond."""
    rows = tile.rows
    up, down = load(rows, tile.up + i), load(rows, tile.down + i)
    place = scratch.bond
    for e in range(start[i], start[i + 1]):
        t, mu = weight[e], load(rows, tile.mu + hidden[e])
        x = t * load(rows, tile.m + e)
        tu = t * (mu - x)
        d = fnma(mu, x, 1.0)
        up *= d + tu
        down *= d - tu
        store(scratch.rows, place, tu)
        store(scratch.rows, place + 1, d)
        place += 2
    return up, down


@kernel
def sweep(damped: bool, start: Indices, hidden: Indices, weight: Array, tile: Tile, scratch: Scratch) -> None:
    """One iteration of all lanes; where `damped`, scratch.share says how much of the new messages is taken.

    The summed square change of m_i^a, as if undamped, goes to scratch.change.
    """
    rows, room = tile.rows, scratch.rows
    nh = tile.norm - tile.mu
    share = load(room, scratch.share)
    kept = 1.0 - share
    store(room, scratch.change, 0.0)
    change = load(room, scratch.change)
    for k in range(2 * nh):
        store(room, scratch.product + k, 1.0)
    for i in range(start.shape[0] - 1):
        up, down = visible_products(i, start, hidden, weight, tile, scratch)
        M = (up - down) / (up + down)
        place = scratch.bond
        for e in range(start[i], start[i + 1]):
            tu, d, old = load(room, place), load(room, place + 1), load(rows, tile.m + e)
            new = fms(M, d, tu) / fnma(M, tu, d)
            step = new - old
            change = fma(step, step, change)
            if damped:
                # For a share of one this is the new message to the last bit, whatever the other lanes do.
                new = fma(share, new, kept * old)
            store(rows, tile.m + e, new)
            multiply(scratch.product + 2 * hidden[e], weight[e], new, room)
            place += 2
    store(room, scratch.change, change)
    magnetise(nh, tile, scratch)


@kernel
def set_damping(damping: float, max_iterations: int, tile: Tile, scratch: Scratch) -> bool:
    """The share of the new message in the next iteration of each lane; whether any is below one."""
    damped = False
    for lane in range(tile.state.shape[1]):
        keep = damping_at(tile.state[ITERATION, lane], damping, max_iterations)
        scratch.rows[scratch.share, lane] = 1.0 - keep
        damped = damped or keep > 0.0
    return damped
