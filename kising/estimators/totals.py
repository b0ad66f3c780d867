"""Sums over the slices of a chunk, in one pass over its moments."""

from typing import NamedTuple

import numpy as np

from kising.estimators.chunks import Chunk, Estimate
from kising.kernels.jit import kernel
from kising.model import Array


class Totals(NamedTuple):
    """What a gradient and a trace need of a chunk besides pair averages."""

    surprise: Array
    """s⁺ - m, (B, Nv)"""
    hidden_surprise: Array
    """μ - tanh b, (B, Nh)"""
    log_likelihood: Array
    """log P_t = Σ_i s_i⁺ θ_i + log Z - Σ_a log 2cosh b_a, nats, (B,)"""
    abs_m: Array
    """Σ_t |m_i|, (Nv,)"""
    square_m: Array
    """Σ_t m_i², (Nv,)"""
    abs_mu: Array
    """Σ_t |μ_a|, (Nh,)"""
    square_mu: Array
    """Σ_t μ_a², (Nh,)"""
    square_expected: Array
    """Σ_t tanh² b_a, (Nh,)"""


def add_up(chunk: Chunk, estimate: Estimate) -> Totals:
    """The totals of a chunk."""
    (n, nv), nh = estimate.m.shape, estimate.mu.shape[1]
    totals = Totals(
        np.empty_like(estimate.m),
        np.empty_like(estimate.mu),
        np.empty(n),
        *(np.zeros(k) for k in (nv, nv, nh, nh, nh)),
    )
    _visible(chunk.known_after, chunk.theta, estimate.m, *totals[:1], *totals[2:5])
    _hidden(chunk.b, estimate.mu, estimate.log_z, totals.hidden_surprise, totals.log_likelihood, *totals[5:])
    return totals


@kernel
def _visible(
    after: Array, theta: Array, m: Array, surprise: Array, energy: Array, abs_m: Array, square_m: Array
) -> None:
    """The sums over slices, one visible spin beside the other; Σ_i s_i⁺ θ_i goes into `energy`. The first Nv columns
    of `after` are s⁺.
    """
    nv = m.shape[1]
    products = np.empty(nv)
    for t in range(m.shape[0]):
        for i in range(nv):
            surprise[t, i] = after[t, i] - m[t, i]
            products[i] = after[t, i] * theta[t, i]
        for i in range(nv):
            abs_m[i] += abs(m[t, i])
        for i in range(nv):
            square_m[i] += m[t, i] * m[t, i]
        energy[t] = np.sum(products)


@kernel
def _hidden(
    b: Array,
    mu: Array,
    log_z: Array,
    surprise: Array,
    log_likelihood: Array,
    abs_mu: Array,
    square_mu: Array,
    square_expected: Array,
) -> None:
    """With e = e^{-2|b|}: log 2cosh b = |b| + log(1+e), tanh|b| = (1-e)/(1+e)."""
    n, nh = mu.shape
    for t in range(n):
        value = log_likelihood[t] + log_z[t]
        norm = 1.0
        for a in range(nh):
            e = np.exp(-2.0 * abs(b[t, a]))
            expected = np.copysign((1.0 - e) / (1.0 + e), b[t, a])
            value -= abs(b[t, a])
            norm *= 1.0 + e
            # Each factor is at most 2: a product of 512 cannot overflow.
            if a % 512 == 511 or a + 1 == nh:
                value -= np.log(norm)
                norm = 1.0
            surprise[t, a] = mu[t, a] - expected
            abs_mu[a] += abs(mu[t, a])
            square_mu[a] += mu[t, a] * mu[t, a]
            square_expected[a] += expected * expected
        log_likelihood[t] = value


@kernel
def sum_lanes(rows: Array, pair_abs: int, pair_sum: int, out: Estimate) -> None:
    """Add to the sums of `out` what every lane has gathered in row `pair_abs` and in the rows from `pair_sum` on,
    of which i Nh + b is that of ⟨τ_i σ_b⟩; in the order of the lanes.
    """
    nv, nh = out.pair_sum.shape
    for lane in range(rows.shape[1]):
        out.pair_abs[0] += rows[pair_abs, lane]
        for i in range(nv):
            for b in range(nh):
                out.pair_sum[i, b] += rows[pair_sum + i * nh + b, lane]
