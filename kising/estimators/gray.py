"""Exact averages of many slices at once, a slice a lane: the enumeration of `exact` on [spin, lane] arrays.

With x_i = e^{2 f_i}, 2cosh f = e^{-f} (1 + x) and tanh f = 1 - 2/(1+x). Against the weight at σ = 0, where x has
the value y_i = e^{2θ_i}, a state of the hidden spins weighs

    w(σ) = exp[ Σ_b σ_b (g_b + Σ_i K_ib) ] Π_i ρ_i        ρ_i = (1 + y_i)/(1 + y_i e^{2 Σ_b K_ib σ_b})

so that log Z = log Σ_σ w - Σ_i log 2cosh θ_i, and every average follows from the sums of w, w σ_b, w ρ_i and
w ρ_i σ_b. The exponential in ρ is one number for all lanes. States come in Gray-code order, and sums with σ_b are
settled at the flips of bit b, as in `exact`.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.estimators.block import Block, Estimate
from kising.vectors import width_of
LANES = 64

from kising.jit import kernel
from kising.model import Array

# Flips of this bit and higher ones compute products anew, before their rounding adds up.
FRESH_BIT = 6


class Sums(NamedTuple):
    """Sums over the states so far, and what they are made of."""

    y: Array
    """e^{2θ_i}, (Nv, lanes)"""
    rho: Array
    """ρ_i of the state at hand, (Nv, lanes)"""
    field: Array
    """g_b + Σ_i K_ib, (Nh, lanes)"""
    turn: Array
    """e^{2 field} and e^{-2 field}, (2, Nh, lanes)"""
    line: Array
    """the hidden factor of w; Π ρ, then w; Σ w; room, (4, lanes)"""
    with_sigma: Array
    """Σ w σ_b, (Nh, lanes)"""
    with_rho: Array
    """Σ w ρ_i, (Nv, lanes)"""
    with_both: Array
    """Σ w ρ_i σ_b, (Nv, Nh, lanes)"""
    counts: npt.NDArray[np.bool_]
    """whether the lane holds a slice, and one whose sums are safe, (lanes,)"""


def new_sums(nv: int, nh: int) -> Sums:
    """Room for one tile."""
    return Sums(
        y=np.ones((nv, LANES)),
        rho=np.empty((nv, LANES)),
        field=np.zeros((nh, LANES)),
        turn=np.empty((2, nh, LANES)),
        line=np.empty((4, LANES)),
        with_sigma=np.empty((nh, LANES)),
        with_rho=np.empty((nv, LANES)),
        with_both=np.empty((nv, nh, LANES)),
        counts=np.empty(LANES, np.bool_),
    )


def enumerate_lanes(K: Array, block: Block, out: Estimate) -> None:
    """Fill `out`; log_z is not finite where sums left floating point, and such slices are in no sum."""
    nv, nh = K.shape
    with np.errstate(over="ignore", invalid="ignore"):
        _enumerate(block.theta, block.g, K, np.sum(K, axis=0), new_sums(nv, nh), out)
        out.log_z[...] -= np.sum(np.logaddexp(block.theta, -block.theta), axis=1)


@kernel
def _enumerate(theta: Array, g: Array, K: Array, reach: Array, sums: Sums, out: Estimate) -> None:
    y, field, turn = sums.y, sums.field, sums.turn
    n_slices, nv = theta.shape
    nh = K.shape[1]
    for first in range(0, n_slices, LANES):
        count = min(LANES, n_slices - first)
        for lane in range(count):
            for i in range(nv):
                y[i, lane] = np.exp(2.0 * theta[first + lane, i])
            for b in range(nh):
                field[b, lane] = g[first + lane, b] + reach[b]
        for b in range(nh):
            for lane in range(LANES):
                turn[0, b, lane] = np.exp(2.0 * field[b, lane])
                turn[1, b, lane] = np.exp(-2.0 * field[b, lane])
        _walk(K, sums)
        _conclude(first, count, sums, out)


@kernel
def _walk(K: Array, sums: Sums) -> None:
    """Visit all states; afterwards the sums with σ_b lack the stretch since the last flip of bit b.

    In the last state σ is +1 for the highest bit and -1 for all others.
    """
    y, rho, field, turn, line, with_sigma, with_rho, with_both, _ = sums
    nv, nh = K.shape
    sigma = np.full(nh, -1.0)
    drive = np.empty(nv)
    flip = np.exp(4.0 * K)
    line[2] = 0.0
    with_sigma[:] = 0.0
    with_rho[:] = 0.0
    with_both[:] = 0.0
    for state in range(2**nh):
        b = nh
        if state > 0:
            b = 0
            while (state >> b) & 1 == 0:
                b += 1
            _settle(b, 2.0 * sigma[b], line, with_sigma, with_rho, with_both)
            sigma[b] = -sigma[b]
        if b >= FRESH_BIT or b == nh:
            for i in range(nv):
                drive[i] = np.exp(2.0 * np.sum(K[i] * sigma))
            line[3] = 0.0
            for c in range(nh):
                for lane in range(LANES):
                    line[3, lane] += sigma[c] * field[c, lane]
            for lane in range(LANES):
                line[0, lane] = np.exp(line[3, lane])
        else:
            up = sigma[b] > 0
            for i in range(nv):
                drive[i] = drive[i] * flip[i, b] if up else drive[i] / flip[i, b]
            which = 0 if up else 1
            for lane in range(LANES):
                line[0, lane] *= turn[which, b, lane]
        _weigh(drive, y, rho, line, with_rho)


@kernel
def _weigh(drive: Array, y: Array, rho: Array, line: Array, with_rho: Array) -> None:
    """Add one state."""
    # Never so; but thus the compiler knows how far apart rows are, and that they do not overlap.
    if line.shape[1] != LANES:
        return
    for lane in range(LANES):
        line[1, lane] = 1.0
    for i in range(drive.shape[0]):
        factor = drive[i]
        for lane in range(LANES):
            ratio = (1.0 + y[i, lane]) / (1.0 + y[i, lane] * factor)
            rho[i, lane] = ratio
            line[1, lane] *= ratio
    for lane in range(LANES):
        line[1, lane] *= line[0, lane]
        line[2, lane] += line[1, lane]
    for i in range(drive.shape[0]):
        for lane in range(LANES):
            with_rho[i, lane] += line[1, lane] * rho[i, lane]


@kernel
def _settle(b: int, sign: float, line: Array, with_sigma: Array, with_rho: Array, with_both: Array) -> None:
    """σ_b was constant since its last flip: add what the sums have become since, as Abel summation does."""
    for lane in range(LANES):
        with_sigma[b, lane] += sign * line[2, lane]
    for i in range(with_rho.shape[0]):
        for lane in range(LANES):
            with_both[i, b, lane] += sign * with_rho[i, lane]


@kernel
def _conclude(first: int, count: int, sums: Sums, out: Estimate) -> None:
    """The moments of the first `count` lanes."""
    y, _, _, _, line, with_sigma, with_rho, with_both, counts = sums
    m, mu, pair, pair_sum, pair_abs, log_z, _, _, _ = out
    nv, nh = y.shape[0], with_sigma.shape[0]
    for b in range(nh):
        _settle(b, 1.0 if b == nh - 1 else -1.0, line, with_sigma, with_rho, with_both)
    for lane in range(LANES):
        total = line[2, lane]
        # A sum near the ends of floating point may lack states that were lost there.
        counts[lane] = lane < count and 1e-200 < total < 1e200
        line[0, lane] = 0.0
        if lane < count:
            log_z[first + lane] = np.log(total) if counts[lane] else np.nan
    for b in range(nh):
        for lane in range(count):
            mu[first + lane, b] = with_sigma[b, lane] / line[2, lane]
    for i in range(nv):
        for lane in range(count):
            m[first + lane, i] = 1.0 - 2.0 * with_rho[i, lane] / ((1.0 + y[i, lane]) * line[2, lane])
        for b in range(nh):
            for lane in range(LANES):
                down = 2.0 * with_both[i, b, lane] / (1.0 + y[i, lane])
                value = (with_sigma[b, lane] - down) / line[2, lane]
                with_both[i, b, lane] = value
                value = value if counts[lane] else 0.0
                line[1, lane] = value
                line[0, lane] += abs(value)
            pair_sum[i, b] += lane_sum(line[1])
            if pair.shape[0] == m.shape[0]:
                for lane in range(count):
                    pair[first + lane, i, b] = with_both[i, b, lane]
    pair_abs[0] += lane_sum(line[0])

@kernel
def lane_sum(x: Array) -> float:
    return x.sum()
