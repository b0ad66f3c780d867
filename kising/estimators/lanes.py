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

from kising.estimators.edges import Edges
from kising.estimators.numerics import damping_at
from kising.jit import kernel
from kising.model import Array

# Lanes that are computed together: a multiple of what a vector register holds.
GROUP = 16


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
    """Room for one sweep."""

    tu: Array
    """t u of the bonds of a row, (Nh, lanes)"""
    d: Array
    """d of the bonds of a row, (Nh, lanes)"""
    plus: Array
    """Π_i (1 + t m), (Nh, lanes)"""
    minus: Array
    """Π_i (1 - t m), (Nh, lanes)"""
    row: Array
    """P₊, P₋, the change of the messages, and the shares of the new and the old message, (5, lanes)"""


def new_tile(n_edges: int, nv: int, nh: int, lanes: int, dtype: npt.DTypeLike) -> Tile:
    """A tile of empty lanes, which are finite: fields and messages vanish."""
    return Tile(
        m=np.zeros((n_edges, lanes), dtype),
        up=np.ones((nv, lanes), dtype),
        down=np.ones((nv, lanes), dtype),
        hidden_up=np.ones((nh, lanes), dtype),
        hidden_down=np.ones((nh, lanes), dtype),
        mu=np.zeros((nh, lanes), dtype),
        norm=np.ones((nh, lanes), dtype),
        slot=np.full(lanes, -1),
        iteration=np.zeros(lanes, np.int64),
        settled=np.zeros(lanes, np.bool_),
    )


def new_scratch(nh: int, lanes: int, dtype: npt.DTypeLike) -> Scratch:
    """Room for one sweep over a tile."""
    hidden = (nh, lanes)
    return Scratch(
        np.empty(hidden, dtype), np.empty(hidden, dtype), np.empty(hidden, dtype), np.empty(hidden, dtype),
        np.empty((5, lanes), dtype),
    )  # fmt: skip


@kernel
def stage(first: int, e_theta: Array, e_g: Array, edges: Edges, tile: Tile, scratch: Scratch) -> int:
    """Put the slices from `first` on into `tile`, messages at m_i^a = tanh θ_i; returns how many there were.

    `e_theta` and `e_g` are e^θ (B, Nv) and e^g (B, Nh). The messages are left to `refill`: of a visible spin
    all start alike, in tile.m[i].
    """
    m, up, down, hidden_up, hidden_down = tile.m, tile.up, tile.down, tile.hidden_up, tile.hidden_down
    slot, plus, minus = tile.slot, scratch.plus, scratch.minus
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
            plus[a, lane] = one
            minus[a, lane] = one
    for i in range(nv):
        for lane in range(lanes):
            down[i, lane] = one / up[i, lane]
            m[i, lane] = (up[i, lane] - down[i, lane]) / (up[i, lane] + down[i, lane])
        for e in range(start[i], start[i + 1]):
            a, t = hidden[e], weight[e]
            for lane in range(lanes):
                x = t * m[i, lane]
                plus[a, lane] *= one + x
                minus[a, lane] *= one - x
    magnetise(lanes, tile, scratch)
    return count


@kernel
def refill(edges: Edges, source: Tile, here: int, tile: Tile, lane: int) -> None:
    """Let the staged slice of lane `here` begin in `lane` of the active tile."""
    start, m, first = edges.start, tile.m, source.m
    _move_fields(source, here, tile, lane)
    for i in range(start.shape[0] - 1):
        for e in range(start[i], start[i + 1]):
            m[e, lane] = first[i, here]
    tile.iteration[lane] = 0
    tile.settled[lane] = False


@kernel
def move(source: Tile, here: int, tile: Tile, lane: int) -> None:
    """Copy a slice with its messages from one tile to another, or to another lane of the same."""
    old, new = source.m, tile.m
    _move_fields(source, here, tile, lane)
    for e in range(new.shape[0]):
        new[e, lane] = old[e, here]
    tile.iteration[lane] = source.iteration[here]
    tile.settled[lane] = source.settled[here]


@kernel
def _move_fields(source: Tile, here: int, tile: Tile, lane: int) -> None:
    _, from_up, from_down, from_hidden_up, from_hidden_down, from_mu, from_norm, from_slot, _, _ = source
    _, up, down, hidden_up, hidden_down, mu, norm, slot, _, _ = tile
    for a in range(mu.shape[0]):
        hidden_up[a, lane] = from_hidden_up[a, here]
        hidden_down[a, lane] = from_hidden_down[a, here]
        mu[a, lane] = from_mu[a, here]
        norm[a, lane] = from_norm[a, here]
    for i in range(up.shape[0]):
        up[i, lane] = from_up[i, here]
        down[i, lane] = from_down[i, here]
    slot[lane] = from_slot[here]


@kernel
def magnetise(lanes: int, tile: Tile, scratch: Scratch) -> None:
    """MU_a from the products of 1 ± t m."""
    hidden_up, hidden_down, mu, norm = tile.hidden_up, tile.hidden_down, tile.mu, tile.norm
    plus, minus = scratch.plus, scratch.minus
    for a in range(mu.shape[0]):
        for lane in range(lanes):
            up = hidden_up[a, lane] * minus[a, lane]
            down = hidden_down[a, lane] * plus[a, lane]
            mu[a, lane] = (up - down) / (up + down)
            norm[a, lane] = up + down


@kernel
def visible_products(
    i: int, lanes: int, edges: Edges, m: Array, mu: Array, up: Array, down: Array, tu: Array, d: Array, row: Array
) -> None:
    """P±_i into row[0] and row[1]; t u and d of the bonds of visible spin i into theirs."""
    one = mu.dtype.type(1)
    hidden, weight, first = edges.hidden, edges.t, edges.start[i]
    for lane in range(lanes):
        row[0, lane] = up[i, lane]
        row[1, lane] = down[i, lane]
    for e in range(first, edges.start[i + 1]):
        k, a, t = e - first, hidden[e], weight[e]
        for lane in range(lanes):
            x = t * m[e, lane]
            field = t * (mu[a, lane] - x)
            norm = one - mu[a, lane] * x
            row[0, lane] *= norm + field
            row[1, lane] *= norm - field
            tu[k, lane] = field
            d[k, lane] = norm


@kernel
def sweep(lanes: int, edges: Edges, tile: Tile, scratch: Scratch) -> None:
    """One iteration of the first `lanes` lanes; the summed square change of m_i^a goes to scratch.row[2].

    The change is that of the undamped message. Rows 3 and 4 of scratch.row hold the shares of the new and the
    old message in the next one.
    """
    m, up, down, mu = tile.m, tile.up, tile.down, tile.mu
    tu, d, plus, minus, row = scratch
    start, hidden, weight = edges.start, edges.hidden, edges.t
    one, nothing = mu.dtype.type(1), mu.dtype.type(0)
    for lane in range(lanes):
        row[2, lane] = nothing
    for a in range(mu.shape[0]):
        for lane in range(lanes):
            plus[a, lane] = one
            minus[a, lane] = one
    for i in range(up.shape[0]):
        visible_products(i, lanes, edges, m, mu, up, down, tu, d, row)
        for lane in range(lanes):
            row[0, lane] = (row[0, lane] - row[1, lane]) / (row[0, lane] + row[1, lane])
        for e in range(start[i], start[i + 1]):
            k, a, t = e - start[i], hidden[e], weight[e]
            for lane in range(lanes):
                M, field, norm, old = row[0, lane], tu[k, lane], d[k, lane], m[e, lane]
                new = (M * norm - field) / (norm - M * field)
                row[2, lane] += (new - old) * (new - old)
                new = row[3, lane] * new + row[4, lane] * old
                m[e, lane] = new
                plus[a, lane] *= one + t * new
                minus[a, lane] *= one - t * new
    magnetise(lanes, tile, scratch)


@kernel
def set_damping(lanes: int, damping: float, max_iterations: int, tile: Tile, scratch: Scratch) -> None:
    """The shares of the new and the old message in the next iteration of each lane."""
    iteration, row = tile.iteration, scratch.row
    for lane in range(lanes):
        keep = damping_at(iteration[lane], damping, max_iterations)
        row[3, lane] = 1.0 - keep
        row[4, lane] = keep


@kernel
def close_ranks(lanes: int, alive: int, tile: Tile) -> int:
    """When there is nothing left to refill with: move the slices into as few groups of lanes as hold them.

    Returns how many lanes these are.
    """
    wanted = GROUP * ((alive + GROUP - 1) // GROUP)
    if wanted >= lanes:
        return lanes
    slot = tile.slot
    free = 0
    for lane in range(wanted, lanes):
        if slot[lane] >= 0:
            while slot[free] >= 0:
                free += 1
            move(tile, lane, tile, free)
            slot[lane] = -1
    return wanted
