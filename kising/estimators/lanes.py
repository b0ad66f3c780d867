"""Belief propagation on many slices at once, a slice a lane (maths.md, "Belief propagation on the replicated
system").

tanh(Σ atanh x) = (P₊-P₋)/(P₊+P₋) with P± = Π(1±x): no tanh, atanh or log per bond. With x = t m (m = m_i^a,
t = tanh K_ia) and MU_a the full magnetisation of σ_a, the cavity value is μ_a^i = (MU_a - x)/(1 - MU_a x), and

    P±_i = e^{±θ_i} Π_a (d ± t u)      d = 1 - MU_a x      u = MU_a - x        M_i  = (P₊-P₋)/(P₊+P₋)
    m_i^a ← (M_i d - t u)/(d - M_i t u)                                          one division a bond
    H±_a = e^{±g_a} Π_i (1 ∓ t m)                                                MU_a = (H₊-H₋)/(H₊+H₋)

Arrays are [bond or spin, lane], the lane innermost: every loop over lanes is plain arithmetic on neighbours in
memory, which compilers turn into vector instructions without changing a bit. A lane's numbers depend on its
own slice alone. Slices settle after very different numbers of iterations, so there are three tiles: a settled
lane of `active` moves to `done`, the next slice of `staged` takes its place, and what follows the messages
(`response`) is computed whenever `done` is full.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.estimators.edges import Edges, Indices
from kising.estimators.numerics import damping_at
from kising.jit import kernel
from kising.model import Array

# The lanes of a tile; a multiple of what a vector register holds.
LANES = 64
# Lanes are laid off by so many when slices run out.
GROUP = 16
# Rows of Scratch.row.
UP, DOWN, CHANGE, NEW, OLD = 0, 1, 2, 3, 4


class Tile(NamedTuple):
    """Slices side by side, one a lane."""

    m: Array
    """m_i^a, (E, lanes)"""
    up: Array
    """e^{θ_i}, (Nv, lanes)"""
    down: Array
    """e^{-θ_i}, (Nv, lanes)"""
    hidden_up: Array
    """e^{g_a}, (Nh, lanes)"""
    hidden_down: Array
    """e^{-g_a}, (Nh, lanes)"""
    mu: Array
    """MU_a, (Nh, lanes)"""
    norm: Array
    """H₊ + H₋ of each σ_a, (Nh, lanes)"""
    slot: npt.NDArray[np.int64]
    """the slice in each lane, -1 where there is none, (lanes,)"""
    iteration: npt.NDArray[np.int64]
    """how many iterations it has had, (lanes,)"""
    settled: npt.NDArray[np.bool_]
    """whether they were enough, (lanes,)"""


class Scratch(NamedTuple):
    """Room for one sweep. What is used together lies in one array: compilers check before every loop over
    lanes that arrays do not overlap, and with too many of them they do not vectorise.
    """

    row: Array
    """UP, DOWN: P±_i, later M_i; CHANGE: that of the messages; NEW, OLD: their shares in the next, (5, lanes)"""
    bond: Array
    """t u and d of bond k of a visible spin, (Nh, 2, lanes)"""
    product: Array
    """Π_i (1 + t m) and Π_i (1 - t m) of σ_a, (Nh, 2, lanes)"""


def new_tile(n_edges: int, nv: int, nh: int, dtype: npt.DTypeLike) -> Tile:
    """A tile of empty lanes, which are finite: fields and messages vanish."""
    return Tile(
        m=np.zeros((n_edges, LANES), dtype),
        up=np.ones((nv, LANES), dtype),
        down=np.ones((nv, LANES), dtype),
        hidden_up=np.ones((nh, LANES), dtype),
        hidden_down=np.ones((nh, LANES), dtype),
        mu=np.zeros((nh, LANES), dtype),
        norm=np.ones((nh, LANES), dtype),
        slot=np.full(LANES, -1),
        iteration=np.zeros(LANES, np.int64),
        settled=np.zeros(LANES, np.bool_),
    )


def new_scratch(nh: int, dtype: npt.DTypeLike) -> Scratch:
    """Room for one sweep over a tile."""
    return Scratch(
        row=np.zeros((5, LANES), dtype),
        bond=np.zeros((nh, 2, LANES), dtype),
        product=np.zeros((nh, 2, LANES), dtype),
    )


@kernel
def stage(first: int, e_theta: Array, e_g: Array, edges: Edges, tile: Tile, scratch: Scratch) -> int:
    """Put the slices from `first` on into `tile`, messages at m_i^a = tanh θ_i; returns how many there were.

    `e_theta` and `e_g` are e^θ (B, Nv) and e^g (B, Nh). The messages are left to `refill`: of a visible spin
    all start alike, in tile.m[i].
    """
    m, up, down, hidden_up, hidden_down = tile.m, tile.up, tile.down, tile.hidden_up, tile.hidden_down
    slot, product = tile.slot, scratch.product
    start, hidden, weight = edges.start, edges.hidden, edges.t
    nv, lanes = up.shape
    nh = hidden_up.shape[0]
    one = up.dtype.type(1)
    count = min(lanes, e_theta.shape[0] - first)
    for lane in range(count):
        slot[lane] = first + lane
        for i in range(nv):
            up[i, lane] = e_theta[first + lane, i]
        for a in range(nh):
            hidden_up[a, lane] = e_g[first + lane, a]
    for a in range(nh):
        for lane in range(lanes):
            hidden_down[a, lane] = one / hidden_up[a, lane]
    product[:] = one
    for i in range(nv):
        for lane in range(lanes):
            down[i, lane] = one / up[i, lane]
            m[i, lane] = (up[i, lane] - down[i, lane]) / (up[i, lane] + down[i, lane])
        for e in range(start[i], start[i + 1]):
            a, t = hidden[e], weight[e]
            for lane in range(lanes):
                x = t * m[i, lane]
                product[a, 0, lane] *= one + x
                product[a, 1, lane] *= one - x
    magnetise(lanes, tile, scratch)
    return count


@kernel
def refill(count: int, edges: Edges, source: Tile, here: Indices, tile: Tile, there: Indices) -> None:
    """Let the staged slices of the first `count` lanes in `here` begin in the active tile's lanes `there`."""
    start, m, first = edges.start, tile.m, source.m
    _move_fields(count, source, here, tile, there)
    for i in range(start.shape[0] - 1):
        for e in range(start[i], start[i + 1]):
            for k in range(count):
                m[e, there[k]] = first[i, here[k]]
    for k in range(count):
        tile.iteration[there[k]] = 0


@kernel
def move(count: int, source: Tile, here: Indices, tile: Tile, there: Indices) -> None:
    """Take slices with their messages from the first `count` lanes in `here` to those in `there`.

    All at once, row by row: a row of lanes is a few lines of cache, of which each slice alone would use a word.
    """
    _move_fields(count, source, here, tile, there)
    _move_rows(count, source.m, here, tile.m, there)
    for k in range(count):
        tile.iteration[there[k]] = source.iteration[here[k]]
        tile.settled[there[k]] = source.settled[here[k]]
        source.slot[here[k]] = -1


@kernel
def _move_fields(count: int, source: Tile, here: Indices, tile: Tile, there: Indices) -> None:
    _move_rows(count, source.up, here, tile.up, there)
    _move_rows(count, source.down, here, tile.down, there)
    _move_rows(count, source.hidden_up, here, tile.hidden_up, there)
    _move_rows(count, source.hidden_down, here, tile.hidden_down, there)
    _move_rows(count, source.mu, here, tile.mu, there)
    _move_rows(count, source.norm, here, tile.norm, there)
    for k in range(count):
        tile.slot[there[k]] = source.slot[here[k]]


@kernel
def _move_rows(count: int, source: Array, here: Indices, tile: Array, there: Indices) -> None:
    for row in range(tile.shape[0]):
        for k in range(count):
            tile[row, there[k]] = source[row, here[k]]


@kernel
def magnetise(lanes: int, tile: Tile, scratch: Scratch) -> None:
    """MU_a from the products of 1 ± t m."""
    hidden_up, hidden_down, mu, norm = tile.hidden_up, tile.hidden_down, tile.mu, tile.norm
    product = scratch.product
    for a in range(mu.shape[0]):
        for lane in range(lanes):
            up = hidden_up[a, lane] * product[a, 1, lane]
            down = hidden_down[a, lane] * product[a, 0, lane]
            mu[a, lane] = (up - down) / (up + down)
            norm[a, lane] = up + down


@kernel
def visible_products(
    i: int,
    lanes: int,
    start: Indices,
    hidden: Indices,
    weight: Array,
    m: Array,
    mu: Array,
    up: Array,
    down: Array,
    row: Array,
    bond: Array,
) -> None:
    """P±_i into the rows UP and DOWN; t u and d of the bonds of visible spin i into `bond`."""
    one = mu.dtype.type(1)
    first = start[i]
    # Never so; but thus the compiler knows how far apart rows are, and that they do not overlap.
    if row.shape[1] != LANES or bond.shape[2] != LANES:
        return
    for lane in range(lanes):
        row[UP, lane] = up[i, lane]
        row[DOWN, lane] = down[i, lane]
    for k in range(start[i + 1] - first):
        e = first + k
        a, t = hidden[e], weight[e]
        for lane in range(lanes):
            x = t * m[e, lane]
            tu = t * (mu[a, lane] - x)
            d = one - mu[a, lane] * x
            row[UP, lane] *= d + tu
            row[DOWN, lane] *= d - tu
            bond[k, 0, lane] = tu
            bond[k, 1, lane] = d


@kernel
def sweep(lanes: int, edges: Edges, tile: Tile, scratch: Scratch) -> None:
    """One iteration of the first `lanes` lanes, with their damping in the rows NEW and OLD.

    The summed square change of m_i^a, as if undamped, goes to the row CHANGE.
    """
    m, up, down, mu = tile.m, tile.up, tile.down, tile.mu
    row, bond, product = scratch
    start, hidden, weight = edges.start, edges.hidden, edges.t
    one, nothing = mu.dtype.type(1), mu.dtype.type(0)
    # As in `visible_products`.
    if row.shape[1] != LANES or bond.shape[2] != LANES or product.shape[2] != LANES:
        return
    damped = False
    for lane in range(lanes):
        row[CHANGE, lane] = nothing
        damped = damped or row[OLD, lane] > nothing
    product[:] = one
    for i in range(up.shape[0]):
        visible_products(i, lanes, start, hidden, weight, m, mu, up, down, row, bond)
        for lane in range(lanes):
            row[UP, lane] = (row[UP, lane] - row[DOWN, lane]) / (row[UP, lane] + row[DOWN, lane])
        for k in range(start[i + 1] - start[i]):
            e = start[i] + k
            a, t = hidden[e], weight[e]
            for lane in range(lanes):
                M, tu, d, old = row[UP, lane], bond[k, 0, lane], bond[k, 1, lane], m[e, lane]
                new = (M * d - tu) / (d - M * tu)
                row[CHANGE, lane] += (new - old) * (new - old)
                if damped:
                    new = row[NEW, lane] * new + row[OLD, lane] * old
                m[e, lane] = new
                product[a, 0, lane] *= one + t * new
                product[a, 1, lane] *= one - t * new
    magnetise(lanes, tile, scratch)


@kernel
def set_damping(lanes: int, damping: float, max_iterations: int, tile: Tile, scratch: Scratch) -> None:
    """The shares of the new and the old message in the next iteration of each lane."""
    iteration, row = tile.iteration, scratch.row
    for lane in range(lanes):
        keep = damping_at(iteration[lane], damping, max_iterations)
        row[NEW, lane] = 1.0 - keep
        row[OLD, lane] = keep


@kernel
def close_ranks(lanes: int, alive: int, tile: Tile, here: Indices, there: Indices) -> int:
    """When there is nothing left to refill with: move the slices into as few groups of lanes as hold them.

    Returns how many lanes these are. `here` and `there` are room for lists of lanes.
    """
    wanted = GROUP * ((alive + GROUP - 1) // GROUP)
    if wanted >= lanes:
        return lanes
    slot, count, free = tile.slot, 0, 0
    for lane in range(wanted, lanes):
        if slot[lane] >= 0:
            while slot[free] >= 0:
                free += 1
            here[count] = lane
            there[count] = free
            count += 1
            free += 1
    move(count, tile, here, tile, there)
    return wanted
