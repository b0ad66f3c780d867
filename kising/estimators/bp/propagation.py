"""Belief propagation on the replicated system, n → -1 (docs/maths.md, "Belief propagation on the replicated
system").

    μ_a^i = tanh[ g_a - Σ_j atanh(t_ja m_j^a) - atanh(t_ia m_i^a) ]
    m_i^a = tanh[ θ_i + Σ_{b≠a} atanh(t_ib μ_b^i) ]

Two kernels compute it. `lanes` takes many slices side by side and is the fast one; it carries magnetisations,
which lose their digits where couplings are strong. `odds` takes one slice at a time and carries odds, which
lose none. The couplings alone decide between them; a slice that overflows in the
first is recomputed by the second.

A slice whose messages have not settled after `max_iterations` (mean square change of m_i^a ≥ tolerance) is
marked as not converged, and the moments of its last messages are used like any other's: leaving it out would bias the
gradient towards easy slices, and on the paper's networks the last messages are close to the exact averages.
"""

import numpy as np

from kising.estimators.bp import correlations as corr
from kising.estimators.bp import odds
from kising.estimators.bp.edges import Edges, edges_of
from kising.estimators.bp.lanes import (
    ITERATION,
    SETTLED,
    SLOT,
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
from kising.estimators.chunks import Chunk, Estimate, empty_estimate, largest_fields
from kising.estimators.estep import EStep
from kising.estimators.totals import sum_lanes
from kising.kernels.jit import kernel
from kising.kernels.vectors import load, magnitude, store, where_above
from kising.model import Array, Couplings

# tanh 3 leaves 1 - t² = 0.01: magnetisations still tell such a bond from an infinite one in all but the last
# four digits.
STRONGEST_LANE_COUPLING = 3.0
# The logarithm up to which a product is safe from overflow.
LARGEST_EXPONENT = {"float64": 600.0, "float32": 80.0}


def estimate(couplings: Couplings, chunk: Chunk, out: Estimate, *, estep: EStep, first: int) -> None:
    """Fill `out` with the BP averages of the chunk's slices.

    Slices that overflow float32 are recomputed in float64, and those that overflow float64 one at a time.
    """
    _estimate(couplings, chunk, out, estep, estep.options.estep.precision)


def _estimate(couplings: Couplings, chunk: Chunk, out: Estimate, estep: EStep, precision: str) -> None:
    rule, correct = corr.CODES[estep.options.correlations]
    largest = _largest_exponent(couplings, chunk)
    K = couplings.K
    nv, nh = K.shape
    strong = np.abs(K).max() > STRONGEST_LANE_COUPLING or largest > LARGEST_EXPONENT["float64"]
    if rule == corr.ITERATED or strong:
        odds.estimate(couplings, chunk, out, rule=rule, correct=correct, estep=estep)
        return
    edges = edges_of(K, precision)
    n = len(edges.t)
    staged, active, done = (new_tile(n, nv, nh, precision) for n in (nv, n, n))
    _propagate_slices(
        chunk.theta, chunk.g, edges, estep.tolerance, estep.damping, estep.max_iterations,
        rule, correct, max(1, int(LARGEST_EXPONENT[precision] / largest)), np.sum(np.log(np.cosh(K))),
        staged, active, done, new_scratch(nh, precision), new_response(n, nv, nh, precision, rule), out,
    )  # fmt: skip
    failed = np.flatnonzero(~np.isfinite(out.log_z))
    if len(failed):
        again = chunk.take(failed)
        patch = empty_estimate(len(failed), nv, nh, keep_pairs=len(out.pair) == len(out.m))
        if precision == "float32":
            _estimate(couplings, again, patch, estep, "float64")
        else:
            odds.estimate(couplings, again, patch, rule=rule, correct=correct, estep=estep)
        out.put(failed, patch)


def _largest_exponent(couplings: Couplings, chunk: Chunk) -> float:
    """A bound on the logarithm of every product in `lanes`, whatever the spins are."""
    K = np.abs(couplings.K)
    theta, b = largest_fields(couplings, chunk)
    visible = theta + 4.0 * np.sum(K, axis=1)
    hidden = b + 3.0 * np.sum(K, axis=0)
    return float(max(visible.max(), hidden.max())) + 1.0


@kernel
def _propagate_slices(
    theta: Array,
    g: Array,
    edges: Edges,
    tolerance: float,
    damping: float,
    max_iterations: int,
    rule: int,
    correct: bool,
    factors: int,
    log_cosh: float,
    staged: Tile,
    active: Tile,
    done: Tile,
    scratch: Scratch,
    space: Response,
    out: Estimate,
) -> None:
    """Iterate every slice of a chunk to its end: see `lanes` for the tiles."""
    start, hidden, weight = edges.start, edges.hidden, edges.t
    n_slices, lanes = theta.shape[0], active.state.shape[1]
    slot, iteration, settled = active.state[SLOT], active.state[ITERATION], active.state[SETTLED]
    change = scratch.rows[scratch.change]
    enough = tolerance * max(weight.shape[0], 1)
    # A zero of the type of n_slices: a literal 0 would make numba compile the loop twice.
    none = n_slices - n_slices
    alive, n_staged, next_staged, n_done, next_slice = none, none, none, none, none
    while True:
        for lane in range(lanes):
            if slot[lane] >= 0 and not (iteration[lane] >= max_iterations or settled[lane]):
                continue
            if next_staged == n_staged and next_slice < n_slices:
                n_staged = stage(next_slice, theta, g, start, hidden, weight, staged, scratch)
                next_slice += n_staged
                next_staged = none
            more = next_staged < n_staged
            if slot[lane] < 0 and not more:
                continue
            # Empty lanes are exchanged too: their contents are never used.
            exchange(lane, active, n_done, done, next_staged if more else none, staged, start)
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
                _conclude(n_done, rule, correct, factors, log_cosh, edges, done, scratch, space, out)
                n_done = none
        if alive == 0:
            break
        damped = set_damping(damping, max_iterations, active, scratch)
        sweep(damped, start, hidden, weight, active, scratch)
        for lane in range(lanes):
            iteration[lane] += 1
            settled[lane] = change[lane] < enough
    sum_lanes(space.rows, space.total, space.pair_sum, out)


@kernel
def _conclude(
    n_done: int,
    rule: int,
    correct: bool,
    factors: int,
    log_cosh: float,
    edges: Edges,
    tile: Tile,
    scratch: Scratch,
    space: Response,
    out: Estimate,
) -> None:
    """The moments of the first `n_done` lanes, into the places of their slices and into the sums."""
    start, hidden, weight = edges.start, edges.hidden, edges.t
    rows, pair, slot = space.rows, space.pair, tile.state[SLOT]
    nv, nh = out.pair_sum.shape
    magnetisations(factors, start, hidden, weight, tile, scratch, space)
    store(rows, space.counts, 0.0)
    for lane in range(n_done):
        t = slot[lane]
        out.log_z[t] = space.log_z[lane] - log_cosh
        out.converged[t] = tile.state[SETTLED, lane] == 1
        out.iterations[t] = tile.state[ITERATION, lane]
        rows[space.counts, lane] = 1.0 if np.isfinite(out.log_z[t]) else 0.0
        for i in range(nv):
            out.m[t, i] = rows[space.M + i, lane]
        for a in range(nh):
            out.mu[t, a] = tile.rows[tile.mu + a, lane]
    store(rows, space.sound, 0.0)
    if rule == corr.CLOSED:
        susceptibility(edges, tile, space)
    unsound = False
    for lane in range(n_done):
        unsound = unsound or rows[space.sound, lane] == 0.0
    keep = out.pair.shape[0] == out.m.shape[0]
    sound, counts, total = load(rows, space.sound), load(rows, space.counts), load(rows, space.total)
    replaced = counts - counts
    for i in range(nv):
        if rule == corr.CLOSED:
            closed_row(i, start, hidden, tile, space)
        if unsound:
            bethe_row(i, start, hidden, weight, tile, space)
        M = load(rows, space.M + i)
        for b in range(nh):
            value = load(rows, pair + b)
            if unsound:
                value = where_above(sound, 0.0, value, load(rows, space.belief + b))
            if correct:
                size = magnitude(value)
                replaced += where_above(size, 1.0, counts, 0.0)
                value = where_above(size, 1.0, M * load(tile.rows, tile.mu + b), value)
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
