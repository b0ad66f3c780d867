"""One sweep of Gibbs sampling, one path through time after the other (docs/maths.md, "The larger model").

A *path* is one unknown spin per step: a hidden spin a at all steps, or, tilted, a at one step, π(a) at the next and so
on, for any permutation π of the hidden spins. Given all other spins it is a chain of two states per step, which is
drawn as a whole: probabilities are carried forwards, and states drawn backwards. Missing entries of a visible spin
are paths with holes.

Of every spin k at every step a block keeps

    S_k = z_k V_k,   V_k = e^{-2 z_k H_k}                 P(z_k) = 1/(1 + V_k)

A spin x at the step before, turned over, multiplies V_k by e^{4 z_k x W_kx}: no exponential is taken while paths are
drawn. What a spin does to others makes it more or less likely turned over than as it is by

    o = Π_k (1 + V_k)/(1 + V_k')

For two steps of a path, with Y = e^{-2H} of the later one without the earlier, w the coupling between them,
c = e^{-2w}, a = 1 + Y/c, b = 1 + Y c and r = P(others | +)/P(others | -), the odds ρ of + against - given all before
are

    ρ' = (r'/Y) (ρ a + b)/(ρ a c + b/c)

and the earlier spin is + with odds ρ a/b if the later one is +, ρ a c²/b if it is -.

Random numbers come from a counter (`kernels.counter`) by iteration, path and step: neither threads nor interruptions
change them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.estimators.paths.blocks import Bounds
from kising.estimators.paths.network import LARGEST_FIELD
from kising.kernels.counter import philox, uniform
from kising.kernels.jit import kernel
from kising.kernels.vector_math import exp
from kising.kernels.vectors import (
    fma,
    largest,
    load,
    magnitude,
    sections,
    smallest,
    store,
    where_above,
    width_of,
)
from kising.model import Array, Spins

LANES = width_of(np.float64)
# Odds beyond these are certainties.
LARGEST_ODDS = 1e100
# Word of the counter's last place: what a number is for. Those of other estimators are 0 to 3.
PATH = 4

Mask = npt.NDArray[np.bool_]
Order = npt.NDArray[np.int64]


class Tile(NamedTuple):
    """Scratch space of a block. Steps are lanes: lane e of a row is step t0 + e of a block that begins at t0. All
    numbers lie in one array; the fields give the first row of each quantity in it.
    """

    rows: Array
    """(n, lanes)"""
    stride: int
    """rows per spin"""
    state: int
    """S_k at step t0 + e, N times `stride` rows"""
    columns: int
    """what drives it, z_j at step t0 + e - 1, and later S_k of some steps, N times"""
    inputs: int
    """u_j at step t0 + e - 1, p times"""
    spin: int
    """the spin of a path at step t0 + e - 1, as the four below"""
    odds: int
    """o"""
    draw: int
    """a number between 0 and 1"""
    ahead: int
    """ρ a"""
    against: int
    """b"""
    turn: int
    """e^{4W} and e^{-4W} for two spins, 4 times"""


def new_tile(units: int, inputs: int, steps: int) -> Tile:
    """Room for blocks of at most `steps` steps."""
    # An odd number of rows per spin spreads the spins of one step over the cache.
    stride = (steps + 1 + LANES - 1) // LANES | 1
    sizes = (units, units, inputs, 1, 1, 1, 1, 1, 4)
    numbers, starts = sections([stride * n for n in sizes], np.float64)
    return Tile(numbers, stride, *starts)


class Tables(NamedTuple):
    """Of a network, for a sweep."""

    weights: Array
    """W, (N, N)"""
    bias: Array
    sensitivity: Array
    turn: Array
    """e^{4 W}, (N, N)"""
    back: Array
    """e^{-4 W}"""
    link: Array
    """e^{-2 W}"""
    order: Order
    """π, (Nh,)"""


@kernel
def sweep_blocks(
    tables: Tables,
    states: Spins,
    missing: Mask,
    inputs: Array,
    blocks: Bounds,
    key: np.uint64,
    iteration: int,
    tile: Tile,
) -> None:
    """Draw all unknown spins of some blocks afresh; `states` (T, N) is changed in place. `missing` (T, Nv) marks the
    unknown visible spins; it has no rows where there are none.
    """
    n_units, nh = tables.weights.shape[0], tables.order.shape[0]
    nv = n_units - nh
    longest = tile.stride * LANES
    unit, place = np.empty(longest, np.int64), np.empty(longest, np.int64)
    linked = np.empty(longest, np.bool_)
    flat = tile.rows.reshape(-1)
    for k in range(blocks.shape[0]):
        first, stop, start, end = blocks[k, 0], blocks[k, 1], blocks[k, 2], blocks[k, 3]
        _load_block(tables, states, inputs, first, stop, start, end, nv, tile)
        n = min(stop, end - 1) - first
        if n > 0:
            for a in range(nh):
                c = a
                for j in range(n):
                    unit[j] = nv + c
                    place[j] = j
                    linked[j] = j + 1 < n
                    c = tables.order[c]
                period = 1
                c = tables.order[a]
                while c != a:
                    c = tables.order[c]
                    period += 1
                _draws(key, iteration, first, nv + a, n, tile)
                _visit(tables, tile.state, n, unit, place, linked, period, tile)
                _turn_over(tables, n, unit, period, tile)
                _flip_own(n, unit, place, tile)
        if missing.shape[0] > 0:
            for i in range(nv):
                n = 0
                for t in range(first, stop):
                    if missing[t, i]:
                        unit[n], place[n] = i, t - first
                        linked[n] = t + 1 < stop and missing[t + 1, i]
                        n += 1
                if n > 0:
                    _draw_some(key, iteration, first, i, n, place, tile)
                    _gather(n, place, n_units, tile)
                    _visit(tables, tile.columns, n, unit, place, linked, 1, tile)
                    _turn_some_over(tables, n, i, place, tile)
                    _flip_own(n, unit, place, tile)
        for t in range(first, stop):
            for u in range(n_units):
                if u >= nv or (missing.shape[0] > 0 and missing[t, u]):
                    value = flat[(tile.state + u * tile.stride) * LANES + t - first]
                    if value != 0.0:
                        states[t, u] = 1 if value > 0.0 else -1


@kernel
def _load_block(
    tables: Tables,
    states: Spins,
    inputs: Array,
    first: int,
    stop: int,
    start: int,
    end: int,
    nv: int,
    tile: Tile,
) -> None:
    """S of all spins at the steps of a block and the one after it; zero where there is no such step, and of the hidden
    spins of the last step, which act on nothing.
    """
    rows, stride = tile.rows, tile.stride
    flat = rows.reshape(-1)
    n_units, p = tables.weights.shape[0], tables.sensitivity.shape[1]
    wide = stride * LANES
    n = stop - first
    for u in range(n_units):
        here, there = (tile.state + u * stride) * LANES, (tile.columns + u * stride) * LANES
        for e in range(n, wide):
            flat[here + e] = 0.0
            flat[there + e] = 0.0
        flat[there] = 0.0
    for e in range(n + 1):
        t = first + e
        if t < end:
            for u in range(n_units):
                flat[(tile.state + u * stride) * LANES + e] = states[t, u]
        if t > start:
            for u in range(n_units):
                flat[(tile.columns + u * stride) * LANES + e] = states[t - 1, u]
            for j in range(p):
                flat[(tile.inputs + j * stride) * LANES + e] = inputs[t - 1, j]
        if t == end - 1:
            for u in range(nv, n_units):
                flat[(tile.state + u * stride) * LANES + e] = 0.0
    used = n // LANES + 1
    for u in range(n_units):
        for v in range(used):
            z = load(rows, tile.state + u * stride + v)
            field = z * 0.0 + tables.bias[u]
            for j in range(n_units):
                field = fma(load(rows, tile.columns + j * stride + v), tables.weights[u, j], field)
            for j in range(p):
                field = fma(load(rows, tile.inputs + j * stride + v), tables.sensitivity[u, j], field)
            field = smallest(largest(field, -LARGEST_FIELD), LARGEST_FIELD)
            store(rows, tile.state + u * stride + v, z * exp(-2.0 * z * field))
        if first == start:
            # Nothing is known of what came before a segment: both states are equally likely.
            flat[(tile.state + u * stride) * LANES] = states[first, u]
    if first == start and first == end - 1:
        for u in range(nv, n_units):
            flat[(tile.state + u * stride) * LANES] = 0.0


@kernel
def _draws(key: np.uint64, iteration: int, first: int, path: int, n: int, tile: Tile) -> None:
    """The random numbers of a path from step `first` on: one counter gives four steps."""
    flat = tile.rows.reshape(-1)
    place = tile.draw * LANES + 1 - first
    for quarter in range(first // 4, (first + n + 3) // 4):
        words = philox(key, np.uint64(quarter), np.uint64(path), np.uint64(iteration), np.uint64(PATH))
        for k in range(max(0, first - 4 * quarter), min(4, first + n - 4 * quarter)):
            flat[place + 4 * quarter + k] = uniform(words[k])


@kernel
def _draw_some(
    key: np.uint64, iteration: int, first: int, path: int, n: int, place: Order, tile: Tile
) -> None:
    """The same numbers, of some steps only."""
    flat = tile.rows.reshape(-1)
    for j in range(n):
        t = first + place[j]
        words = philox(key, np.uint64(t // 4), np.uint64(path), np.uint64(iteration), np.uint64(PATH))
        flat[tile.draw * LANES + 1 + j] = uniform(words[t % 4])


@kernel
def _gather(n: int, place: Order, n_units: int, tile: Tile) -> None:
    """S of the steps that follow some steps, side by side."""
    flat = tile.rows.reshape(-1)
    for u in range(n_units):
        here, there = (tile.state + u * tile.stride) * LANES, (tile.columns + u * tile.stride) * LANES
        for j in range(n):
            flat[there + 1 + j] = flat[here + 1 + place[j]]


@kernel
def _visit(
    tables: Tables,
    base: int,
    n: int,
    unit: Order,
    place: Order,
    linked: Mask,
    period: int,
    tile: Tile,
) -> None:
    """Draw a path of n spins; row `spin` then has what each was where it turned over, and 0 where it did not. The
    spins it acts on at the next steps begin at row `base`, lane 1.
    """
    rows, stride = tile.rows, tile.stride
    flat = rows.reshape(-1)
    n_units = tables.weights.shape[0]
    used = n // LANES + 1
    spin, odds, draw = tile.spin * LANES + 1, tile.odds * LANES + 1, tile.draw * LANES + 1
    ahead, against = tile.ahead * LANES + 1, tile.against * LANES + 1
    for v in range(used):
        store(rows, tile.spin + v, 0.0)
        store(rows, tile.odds + v, 1.0)
    for j in range(n):
        own = flat[(tile.state + unit[j] * stride) * LANES + place[j]]
        flat[spin + j] = 1.0 if own > 0.0 else -1.0
    for u in range(0, n_units, 2):
        pair = min(u + 1, n_units - 1)
        # The last of an odd number of spins goes alone: its twin is left as it is.
        alone = pair == u
        _set_turn(tables, u, pair, n, unit, period, tile)
        for v in range(used):
            w = v % period
            x = load(rows, tile.spin + v)
            first, second = load(rows, base + u * stride + v), load(rows, base + pair * stride + v)
            kept = 1.0 + magnitude(first)
            turned = fma(
                magnitude(first),
                where_above(first * x, 0.0, load(rows, tile.turn + w), load(rows, tile.turn + stride + w)),
                1.0,
            )
            if not alone:
                kept *= 1.0 + magnitude(second)
                turned *= fma(
                    magnitude(second),
                    where_above(
                        second * x,
                        0.0,
                        load(rows, tile.turn + 2 * stride + w),
                        load(rows, tile.turn + 3 * stride + w),
                    ),
                    1.0,
                )
            store(rows, tile.odds + v, load(rows, tile.odds + v) * (kept / turned))
    # Forwards. Row `ahead` is ρ a, `against` is b.
    rho, a, b, c = 1.0, 1.0, 1.0, 1.0
    own = flat[(tile.state + unit[0] * stride) * LANES + place[0]]
    y = own if own > 0.0 else -1.0 / own
    chained = False
    for j in range(n):
        x = flat[spin + j]
        up, down = (1.0, flat[odds + j]) if x > 0.0 else (flat[odds + j], 1.0)
        from_before = (rho * a + b) / (rho * a * c + b / c) if chained else 1.0
        down *= y
        a, b, c = 1.0, 1.0, 1.0
        if j + 1 < n:
            own = flat[(tile.state + unit[j + 1] * stride) * LANES + place[j + 1]]
            y = own if own > 0.0 else -1.0 / own
        chained = linked[j]
        if chained:
            c = tables.link[unit[j + 1], unit[j]]
            y = y / c if x > 0.0 else y * c
            a, b = 1.0 + y / c, 1.0 + y * c
            up *= b
            down *= a
            if own < 0.0:
                down *= c * c
        ratio = min(max(up / down, 1.0 / LARGEST_ODDS), LARGEST_ODDS)
        rho = ratio * from_before
        flat[ahead + j] = rho * a
        flat[against + j] = b
    # Backwards.
    later = 1.0
    for j in range(n - 1, -1, -1):
        chance = flat[ahead + j]
        if linked[j] and later < 0.0:
            c = tables.link[unit[j + 1], unit[j]]
            chance *= c * c
        later = 1.0 if flat[draw + j] * (flat[against + j] + chance) < chance else -1.0
        if later == flat[spin + j]:
            flat[spin + j] = 0.0


@kernel
def _set_turn(tables: Tables, u: int, pair: int, n: int, unit: Order, period: int, tile: Tile) -> None:
    """e^{±4 W} of two spins from the spins of a path, in the lanes of the steps after these. A path comes back to a
    spin after `period` steps, and to the same lane after as many vectors: these are all that is written.
    """
    rows, stride = tile.rows, tile.stride
    if period == 1:
        store(rows, tile.turn, tables.turn[u, unit[0]])
        store(rows, tile.turn + stride, tables.back[u, unit[0]])
        store(rows, tile.turn + 2 * stride, tables.turn[pair, unit[0]])
        store(rows, tile.turn + 3 * stride, tables.back[pair, unit[0]])
        return
    flat = rows.reshape(-1)
    wide = stride * LANES
    for j in range(min(n, period * LANES)):
        here = tile.turn * LANES + (j + 1) % (period * LANES)
        flat[here] = tables.turn[u, unit[j]]
        flat[here + wide] = tables.back[u, unit[j]]
        flat[here + 2 * wide] = tables.turn[pair, unit[j]]
        flat[here + 3 * wide] = tables.back[pair, unit[j]]


@kernel
def _turn_over(tables: Tables, n: int, unit: Order, period: int, tile: Tile) -> None:
    """What the spins of a path that turned over do to the spins of the next steps."""
    rows, stride = tile.rows, tile.stride
    n_units = tables.weights.shape[0]
    for u in range(0, n_units, 2):
        pair = min(u + 1, n_units - 1)
        _set_turn(tables, u, pair, n, unit, period, tile)
        for v in range(n // LANES + 1):
            w = v % period
            x = load(rows, tile.spin + v)
            for k in range(pair - u + 1):
                place = tile.state + (u + k) * stride + v
                turn = tile.turn + 2 * k * stride + w
                s = load(rows, place)
                factor = where_above(
                    s * x,
                    0.0,
                    load(rows, turn),
                    where_above(0.0 - s * x, 0.0, load(rows, turn + stride), 1.0),
                )
                store(rows, place, s * factor)


@kernel
def _turn_some_over(tables: Tables, n: int, unit: int, place: Order, tile: Tile) -> None:
    """The same for a path with holes."""
    flat = tile.rows.reshape(-1)
    for j in range(n):
        x = flat[tile.spin * LANES + 1 + j]
        if x != 0.0:
            for u in range(tables.weights.shape[0]):
                here = (tile.state + u * tile.stride) * LANES + 1 + place[j]
                s = flat[here]
                flat[here] = s * (tables.turn[u, unit] if s * x > 0.0 else tables.back[u, unit])


@kernel
def _flip_own(n: int, unit: Order, place: Order, tile: Tile) -> None:
    """Turn the spins of a path over: z V = z e^{-2 z H} becomes -1/(z V)."""
    flat = tile.rows.reshape(-1)
    for j in range(n):
        if flat[tile.spin * LANES + 1 + j] != 0.0:
            here = (tile.state + unit[j] * tile.stride) * LANES + place[j]
            flat[here] = -1.0 / flat[here]
