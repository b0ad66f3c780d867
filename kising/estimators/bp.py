"""Belief propagation on the replicated system, n → -1 (maths.md, "Belief propagation on the replicated
system").

    μ_a^i = tanh[ g_a - Σ_j atanh(t_ja m_j^a) - atanh(t_ia m_i^a) ]
    m_i^a = tanh[ θ_i + Σ_{b≠a} atanh(t_ib μ_b^i) ]

Two kernels compute it. `lanes` takes many slices side by side and is the fast one; it carries magnetisations,
which lose their digits where couplings are strong. `odds` takes one slice at a time and carries odds, which
lose none. The couplings alone decide between them; a slice that still leaves floating point in the first goes
through the second.

A slice whose messages have not settled after `max_iterations` (mean square change of m_i^a ≥ tolerance) is
marked so, and the moments of its last messages are used like any other's: leaving it out would bias the
gradient towards easy slices, and on the paper's networks the last messages are close to the exact averages.
"""

import numpy as np

from kising.estimators import correlations as corr
from kising.estimators import odds
from kising.estimators.block import Block, Estimate, empty_estimate
from kising.estimators.edges import Edges, edges_of
from kising.estimators.lanes import (
    CHANGE,
    LANES,
    Scratch,
    Tile,
    close_ranks,
    move,
    new_scratch,
    new_tile,
    refill,
    set_damping,
    stage,
    sweep,
)
from kising.estimators.response import (
    Response,
    bethe_row,
    closed_row,
    lane_sum,
    magnetisations,
    new_response,
    susceptibility,
)
from kising.jit import kernel
from kising.model import Array, Couplings

# tanh 3 leaves 1 - t² = 0.01: magnetisations still tell such a bond from an infinite one in all but the last
# four digits.
STRONGEST_LANE_COUPLING = 3.0
# A product of norms has at most this logarithm.
SAFE_EXPONENT = 600.0


def estimate(
    couplings: Couplings,
    block: Block,
    out: Estimate,
    *,
    correlations: str,
    tolerance: float,
    damping: float,
    max_iterations: int,
) -> None:
    """Fill `out` with the BP averages of the block's slices; a negative `damping` is the adaptive one."""
    way, correct = corr.CODES[correlations]
    largest = _largest_exponent(couplings)
    if way == corr.ITERATED or np.abs(couplings.K).max() > STRONGEST_LANE_COUPLING or largest > SAFE_EXPONENT:
        odds.estimate(
            couplings, block, out, way=way, correct=correct,
            tolerance=tolerance, damping=damping, max_iterations=max_iterations,
        )  # fmt: skip
        return
    dtype = np.float64
    K = couplings.K
    nv, nh = K.shape
    edges = edges_of(K, dtype)
    n = len(edges.t)
    staged, active, done = (new_tile(n, nv, nh, dtype) for n in (nv, n, n))
    _propagate_slices(
        np.exp(block.theta), np.exp(block.g), edges, tolerance, damping, max_iterations,
        way, correct, max(1, int(SAFE_EXPONENT / largest)), np.sum(np.log(np.cosh(K))),
        staged, active, done, new_scratch(nh, dtype), new_response(n, nv, nh, dtype, way), out,
    )  # fmt: skip
    failed = np.flatnonzero(~np.isfinite(out.log_z))
    if len(failed):
        again = Block(*(x[failed] for x in block))
        patch = empty_estimate(len(failed), nv, nh, keep_pairs=len(out.pair) == len(out.m))
        odds.estimate(
            couplings, again, patch, way=way, correct=correct,
            tolerance=tolerance, damping=damping, max_iterations=max_iterations,
        )  # fmt: skip
        out.put(failed, patch)


def _largest_exponent(couplings: Couplings) -> float:
    """A bound on the logarithm of every product in `lanes`, whatever the spins are."""
    J, K, L = (np.abs(x) for x in couplings)
    visible = np.sum(J, axis=1) + 4.0 * np.sum(K, axis=1)
    hidden = np.sum(L, axis=1) + 3.0 * np.sum(K, axis=0)
    return float(max(visible.max(), hidden.max())) + 1.0


@kernel
def _propagate_slices(
    e_theta: Array,
    e_g: Array,
    edges: Edges,
    tolerance: float,
    damping: float,
    max_iterations: int,
    way: int,
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
    """Iterate every slice of a block to its end: see `lanes` for the tiles."""
    n_slices = e_theta.shape[0]
    lanes = active.mu.shape[1]
    slot, iteration, settled, row = active.slot, active.iteration, active.settled, scratch.row
    here, there = np.empty(lanes, np.int64), np.empty(lanes, np.int64)
    enough = tolerance * max(edges.t.shape[0], 1)
    alive, n_staged, next_staged, n_done, next_slice = 0, 0, 0, 0, 0
    while True:
        while alive < lanes and (next_staged < n_staged or next_slice < n_slices):
            if next_staged == n_staged:
                n_staged = stage(next_slice, e_theta, e_g, edges, staged, scratch)
                next_slice += n_staged
                next_staged = 0
            count = 0
            for lane in range(lanes):
                if slot[lane] < 0 and next_staged < n_staged:
                    here[count] = next_staged
                    there[count] = lane
                    count += 1
                    next_staged += 1
            refill(count, edges, staged, here, active, there)
            alive += count
        if alive == 0:
            break
        if alive < lanes:
            lanes = close_ranks(lanes, alive, active, here, there)
        set_damping(lanes, damping, max_iterations, active, scratch)
        sweep(lanes, edges, active, scratch)
        count = 0
        for lane in range(lanes):
            if slot[lane] < 0:
                continue
            iteration[lane] += 1
            settled[lane] = row[CHANGE, lane] < enough
            if settled[lane] or iteration[lane] >= max_iterations:
                here[count] = lane
                there[count] = n_done + count
                count += 1
            if n_done + count == LANES:
                move(count, active, here, done, there)
                alive -= count
                count = 0
                _conclude(LANES, way, correct, factors, log_cosh, edges, done, scratch, space, out)
                n_done = 0
        move(count, active, here, done, there)
        alive -= count
        n_done += count
    if n_done > 0:
        _conclude(n_done, way, correct, factors, log_cosh, edges, done, scratch, space, out)


@kernel
def _conclude(
    n_done: int,
    way: int,
    correct: bool,
    factors: int,
    log_cosh: float,
    edges: Edges,
    tile: Tile,
    scratch: Scratch,
    space: Response,
    out: Estimate,
) -> None:
    """The moments of the first `n_done` lanes, into the places of their slices."""
    magnetisations(factors, edges, tile, scratch, space)
    M, mu, slot, counts, sound = space.M, tile.mu, tile.slot, space.counts, space.sound
    log_z, pair, line = space.log_z, space.pair, space.line
    start, hidden = edges.start, edges.hidden
    r, B, root, inverse = space.r, space.B, space.root, space.inverse
    all_m, all_mu, all_pair, pair_sum, pair_abs, all_log_z, converged, iterations, corrected = out
    nv, lanes = M.shape
    nh = mu.shape[0]
    one, nothing = M.dtype.type(1), M.dtype.type(0)
    for lane in range(lanes):
        log_z[lane] -= log_cosh
        counts[lane] = lane < n_done and np.isfinite(log_z[lane])
    for lane in range(n_done):
        t = slot[lane]
        all_log_z[t] = log_z[lane]
        converged[t] = tile.settled[lane]
        iterations[t] = tile.iteration[lane]
        for i in range(nv):
            all_m[t, i] = M[i, lane]
        for a in range(nh):
            all_mu[t, a] = mu[a, lane]
    if way == corr.CLOSED:
        susceptibility(edges, tile, space)
    else:
        sound[:] = False
    unsound = not np.all(sound[:n_done])
    total, replaced, terms = 0, 1, 2
    line[:] = nothing
    for i in range(nv):
        if way == corr.CLOSED:
            closed_row(i, start, hidden, mu, M, r, B, root, inverse, pair)
        if unsound:
            bethe_row(i, edges, tile, space, ~sound)
        for b in range(nh):
            for lane in range(lanes):
                value = pair[b, lane]
                impossible = correct and abs(value) > one
                value = M[i, lane] * mu[b, lane] if impossible else value
                pair[b, lane] = value
                value = value if counts[lane] else nothing
                line[terms, lane] = value
                line[total, lane] += abs(value)
                line[replaced, lane] += one if impossible else nothing
            pair_sum[i, b] += lane_sum(line[terms])
        if all_pair.shape[0] == all_m.shape[0]:
            for lane in range(n_done):
                for b in range(nh):
                    all_pair[slot[lane], i, b] = pair[b, lane]
    for lane in range(n_done):
        corrected[slot[lane]] = int(line[replaced, lane])
    pair_abs[0] += lane_sum(line[total])
