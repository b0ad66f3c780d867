"""Belief propagation on the replicated system, n → -1 (docs/maths.md, "Belief propagation on the replicated
system").

    μ_a^i = tanh[ g_a - Σ_j atanh(t_ja m_j^a) - atanh(t_ia m_i^a) ]
    m_i^a = tanh[ θ_i + Σ_{b≠a} atanh(t_ib μ_b^i) ]

One kernel computes it for couplings of any strength, with many slices side by side (`lanes`).

A slice whose messages have not converged after `max_iterations` (mean square change of m_i^a ≥ tolerance) is marked as
such, and the moments of its last messages are used like those of any other slice. Leaving it out would bias the
gradient towards easy slices, and on the paper's networks the last messages are close to the exact averages.
"""

from typing import NamedTuple

import numpy as np

from kising.estimators.bp.edges import Edges, Indices, edges_of
from kising.estimators.bp.iterated import (
    Propagation,
    begin_response,
    finish_response,
    has_ended,
    iterate_response,
    iterated_row,
    new_propagation,
    stage_response,
)
from kising.estimators.bp.lanes import (
    Scratch,
    Tile,
    begin,
    exchange,
    new_scratch,
    new_tile,
    retire,
    set_damping,
    stage,
    sweep,
)
from kising.estimators.bp.response import (
    Response,
    bethe_row,
    closed_row,
    magnetisations,
    new_response,
    susceptibility,
)
from kising.estimators.bp.rules import BELIEF, CLOSED, ITERATED, PRODUCT, RULES
from kising.estimators.chunks import Chunk, Estimate
from kising.estimators.estep import EStep
from kising.estimators.lane_state import ITERATION, SETTLED, SLOT
from kising.estimators.totals import sum_lanes
from kising.kernels.jit import kernel
from kising.kernels.vectors import LARGEST_EXPONENT, largest, load, magnitude, store, where_above
from kising.model import Array, Couplings

# Adding e^{-80} to 1 does not change a double: a stronger bond has the same moments.
LARGEST_COUPLING = 40.0
# Beyond any sum of such couplings: a stronger field decides alone.
LARGEST_FIELD = 1e6
# Bonds as strong as this need the range of float64.
STRONGEST_SINGLE = 8.0


class Iteration(NamedTuple):
    """How messages are iterated, and which averages are made of them."""

    tolerance: float
    damping: float
    max_iterations: int
    rule: int
    cure: int
    wide: bool
    """whether products could overflow"""
    factors: int
    """how many norms can be multiplied"""
    constant: float
    """of log Z"""


def estimate(couplings: Couplings, chunk: Chunk, out: Estimate, *, estep: EStep, first: int) -> None:
    """Fill `out` with the BP averages of the chunk's slices."""
    rule, cure = RULES[estep.options.correlations]
    K = np.clip(couplings.K, -LARGEST_COUPLING, LARGEST_COUPLING)
    # g is recomputed where K was clipped: fields and messages must belong to the same network.
    g = chunk.g if np.array_equal(K, couplings.K) else chunk.after @ K + chunk.b
    strongest = np.abs(K).max(initial=0.0)
    precision = "float64" if strongest > STRONGEST_SINGLE else estep.precision
    safe, exponent = LARGEST_EXPONENT[precision], _largest_exponent(couplings._replace(K=K), chunk)
    wide = exponent > safe
    edges = edges_of(K, precision, safe if wide else None)
    n, nv, nh = len(edges.hidden), *K.shape
    staged, active, done = (new_tile(k, nv, nh, precision) for k in (nv, n, n))
    how = Iteration(
        estep.tolerance, estep.damping, estep.max_iterations, rule, cure, wide,
        max(1, int(safe / exponent)), -float(np.sum(K)),
    )  # fmt: skip
    theta, cut = chunk.theta, 0.0
    if exponent > LARGEST_FIELD:
        # log 2cosh of a clipped field lacks what was cut off.
        fields = theta, g
        theta, g = (np.clip(x, -LARGEST_FIELD, LARGEST_FIELD) for x in fields)
        cut = np.sum(np.abs(fields[1]) - np.abs(g), axis=1) - np.sum(
            np.abs(fields[0]) - np.abs(theta), axis=1
        )
    _propagate_slices(
        theta, g, edges, how, staged, active, done, new_scratch(nh, precision),
        new_response(n, nv, nh, precision, rule), new_propagation(n, nv, nh, precision, rule), out,
    )  # fmt: skip
    out.log_z[:] += cut


def _largest_exponent(couplings: Couplings, chunk: Chunk) -> float:
    """A bound on the logarithm of every product in `lanes`, whatever the spins are."""
    K = np.abs(couplings.K)
    theta, b = chunk.bounds
    visible = theta + 4.0 * np.sum(K, axis=1)
    hidden = b + 3.0 * np.sum(K, axis=0)
    return float(max(visible.max(), hidden.max())) + 1.0


@kernel
def _propagate_slices(
    theta: Array,
    g: Array,
    edges: Edges,
    how: Iteration,
    staged: Tile,
    active: Tile,
    done: Tile,
    scratch: Scratch,
    space: Response,
    room: Propagation,
    out: Estimate,
) -> None:
    """Iterate every slice of a chunk to its end: see `lanes` for the tiles."""
    n_slices, lanes = theta.shape[0], active.state.shape[1]
    slot, iteration, settled = active.state[SLOT], active.state[ITERATION], active.state[SETTLED]
    change = scratch.rows[scratch.change]
    enough = how.tolerance * max(edges.hidden.shape[0], 1)
    # A zero of the type of n_slices: a literal 0 would make numba compile the loop twice.
    none = n_slices - n_slices
    alive, n_staged, next_staged, n_done, next_slice, n_answers = none, none, none, none, none, none
    while True:
        for lane in range(lanes):
            if slot[lane] >= 0 and not (iteration[lane] >= how.max_iterations or settled[lane]):
                continue
            if next_staged == n_staged and next_slice < n_slices:
                n_staged = stage(next_slice, theta, g, how.wide, edges, staged, scratch)
                next_slice += n_staged
                next_staged = none
            more = next_staged < n_staged
            if slot[lane] < 0 and not more:
                continue
            # Empty lanes are exchanged too: their contents are never used.
            exchange(lane, active, n_done, done, next_staged if more else none, staged, edges.start)
            if slot[lane] >= 0:
                retire(lane, active, n_done, done)
                alive -= 1
                n_done += 1
            if more:
                begin(next_staged, staged, lane, active)
                settled[lane] = 0
                next_staged += 1
                alive += 1
            # The last tile may be partly filled.
            if n_done == lanes or (n_done > 0 and alive == 0):
                _conclude(n_done, how, edges, done, scratch, space, out)
                if how.rule == ITERATED:
                    n_answers = _respond(n_done, n_answers, how, edges, done, space, room, out)
                else:
                    _add_pairs(n_done, done.state[SLOT], how, edges, done, space, room, out)
                n_done = none
        if alive == 0:
            break
        damped = set_damping(how.damping, how.max_iterations, active, scratch)
        sweep(damped, how.wide, edges, active, scratch)
        for lane in range(lanes):
            iteration[lane] += 1
            settled[lane] = change[lane] < enough
    if how.rule == ITERATED:
        _respond(none, n_answers, how, edges, done, space, room, out)
    sum_lanes(space.rows, space.total, space.pair_sum, out)


@kernel
def _conclude(
    n_done: int,
    how: Iteration,
    edges: Edges,
    tile: Tile,
    scratch: Scratch,
    space: Response,
    out: Estimate,
) -> None:
    """The moments of the first `n_done` lanes, except pair averages, into the places of their slices."""
    rows, slot = space.rows, tile.state[SLOT]
    nv, nh = out.pair_sum.shape
    magnetisations(how.factors, how.wide, edges, tile, scratch, space)
    for lane in range(n_done):
        t = slot[lane]
        out.log_z[t] = space.log_z[lane] + how.constant
        out.converged[t] = tile.state[SETTLED, lane] == 1
        out.iterations[t] = tile.state[ITERATION, lane]
        for i in range(nv):
            out.m[t, i] = rows[space.M + i, lane]
        for a in range(nh):
            out.mu[t, a] = rows[space.MU + a, lane]


@kernel
def _respond(
    n_staged: int,
    n_answers: int,
    how: Iteration,
    edges: Edges,
    tile: Tile,
    space: Response,
    room: Propagation,
    out: Estimate,
) -> int:
    """Iterate the response until the first `n_staged` lanes of `tile` have all begun; without any, until every slice
    has its pair averages. Takes and returns how many results wait in room.chi.
    """
    lanes, nh, slot = room.state.shape[1], out.mu.shape[1], room.state[SLOT]
    none = n_staged - n_staged
    next_staged = none
    if n_staged > 0:
        stage_response(edges, tile, room)
    while True:
        alive = False
        for lane in range(lanes):
            if slot[lane] >= 0 and has_ended(lane, how.max_iterations, room):
                out.converged[slot[lane]] &= room.state[SETTLED, lane] == 1
                finish_response(lane, n_answers, nh, room)
                n_answers += 1
                if n_answers == lanes:
                    _add_answers(n_answers, how, edges, tile, space, room, out)
                    n_answers = none
            if slot[lane] < 0 and next_staged < n_staged:
                begin_response(next_staged, tile, space, lane, room)
                next_staged += 1
            alive = alive or slot[lane] >= 0
        if 0 < n_staged == next_staged:
            return n_answers
        if not alive:
            break
        while not iterate_response(how.tolerance, how.damping, how.max_iterations, edges, nh, room):
            pass
    # The last tile may be partly filled.
    if n_answers > 0:
        _add_answers(n_answers, how, edges, tile, space, room, out)
    return none


@kernel
def _add_answers(
    n_answers: int,
    how: Iteration,
    edges: Edges,
    tile: Tile,
    space: Response,
    room: Propagation,
    out: Estimate,
) -> None:
    """The pair averages of the slices whose response is in room.chi. Their magnetisations are read from `out`: in
    `space` are those of the slices that began last.
    """
    for lane in range(n_answers):
        t = room.done[lane]
        for i in range(out.m.shape[1]):
            space.rows[space.M + i, lane] = out.m[t, i]
        for a in range(out.mu.shape[1]):
            space.rows[space.MU + a, lane] = out.mu[t, a]
    _add_pairs(n_answers, room.done, how, edges, tile, space, room, out)


@kernel
def _add_pairs(
    n_done: int,
    slot: Indices,
    how: Iteration,
    edges: Edges,
    tile: Tile,
    space: Response,
    room: Propagation,
    out: Estimate,
) -> None:
    """The pair averages of the first `n_done` lanes, into the sums and, if kept, the places of their slices."""
    rows, pair = space.rows, space.pair
    nv, nh = out.pair_sum.shape
    store(rows, space.counts, 0.0)
    for lane in range(n_done):
        rows[space.counts, lane] = 1.0
    store(rows, space.sound, 1.0 if how.rule == ITERATED else 0.0)
    if how.rule == CLOSED:
        susceptibility(edges, tile, space)
    unsound = False
    for lane in range(n_done):
        unsound = unsound or rows[space.sound, lane] == 0.0
    keep = out.pair.shape[0] == out.m.shape[0]
    sound, counts, total = load(rows, space.sound), load(rows, space.counts), load(rows, space.total)
    replaced = counts - counts
    for i in range(nv):
        if how.rule == CLOSED:
            closed_row(i, edges.start, edges.hidden, tile, space)
        elif how.rule == ITERATED:
            iterated_row(i, nh, room, space)
        if unsound or (how.cure == BELIEF and _impossible(nh, n_done, space)):
            bethe_row(i, edges, tile, space)
        M = load(rows, space.M + i)
        for b in range(nh):
            value = load(rows, pair + b)
            if unsound:
                value = where_above(sound, 0.0, value, load(rows, space.belief + b))
            if how.cure == PRODUCT or how.cure == BELIEF:
                size = magnitude(value)
                cured = load(rows, space.belief + b) if how.cure == BELIEF else M * load(rows, space.MU + b)
                replaced += where_above(size, 1.0, counts, 0.0)
                value = where_above(size, 1.0, cured, value)
            if keep:
                store(rows, pair + b, value)
            value = where_above(counts, 0.0, value, 0.0)
            total += magnitude(value)
            place = space.pair_sum + i * nh + b
            store(rows, place, load(rows, place) + value)
        if keep:
            for lane in range(n_done):
                for b in range(nh):
                    out.pair[slot[lane], i, b] = rows[pair + b, lane]
    store(rows, space.total, total)
    store(rows, space.replaced, replaced)
    for lane in range(n_done):
        out.corrected[slot[lane]] = int(rows[space.replaced, lane])


@kernel
def _impossible(nh: int, n_done: int, space: Response) -> bool:
    """Whether linear response passes ±1 anywhere in the row at hand."""
    rows = space.rows
    size = magnitude(load(rows, space.pair))
    for b in range(1, nh):
        size = largest(size, magnitude(load(rows, space.pair + b)))
    store(rows, space.size, size)
    found = False
    for lane in range(n_done):
        found = found or rows[space.size, lane] > 1.0
    return found
