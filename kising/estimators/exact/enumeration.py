"""Exact averages, by enumeration of the 2^Nh hidden states of a slice (docs/maths.md, "Exact averages").

    P(σ | slice) ∝ exp[ Σ_a g_a σ_a - Σ_i log 2cosh f_i(σ) ],    f_i = θ_i + Σ_b K_ib σ_b

States are visited in Gray-code order: one hidden spin flips at a time, so that f_i changes by ±2 K_ib and x_i
= e^{2 f_i} by a factor known beforehand. ⟨tanh(f_i) σ_b⟩ would cost Nh sums per state; since σ_b is constant
between two flips of bit b, it is enough to add 2 σ_b times the running sum of tanh f_i at each of its flips
(Abel summation). All this is done for many slices at once (`lanes`). The kernel of this file processes one slice at a
time; it is used where a field could exceed 160, and in networks with a single hidden spin.
"""

import numpy as np

from kising.estimators.chunks import Chunk, Estimate
from kising.estimators.estep import EStep
from kising.estimators.exact.lanes import TOGETHER, enumerate_lanes, range_of
from kising.kernels.jit import kernel
from kising.model import Array, Couplings

# x_i = e^{2 f_i} is carried by multiplication while no field can pass this; beyond, it is computed anew for
# each state.
SAFE_FIELD = 150.0
# 1 + e^{-2|f|} is at most 2: the product of this many cannot overflow.
SAFE_FACTORS = 512


def estimate(couplings: Couplings, chunk: Chunk, out: Estimate, *, estep: EStep, first: int) -> None:
    """Fill `out` with the exact averages of the chunk's slices."""
    out.converged[:] = True
    out.iterations[:] = 1
    within = range_of(couplings.K, *chunk.bounds) if out.mu.shape[1] >= TOGETHER else None
    if within is None:
        _one_at_a_time(couplings, chunk, out)
        return
    enumerate_lanes(couplings.K, chunk, within, out)


def _one_at_a_time(couplings: Couplings, chunk: Chunk, out: Estimate) -> None:
    K = couplings.K
    flip = np.exp(np.clip(4.0 * K, -4.0 * SAFE_FIELD, 4.0 * SAFE_FIELD).T.copy())
    _enumerate_slices(
        chunk.theta, chunk.g, K, flip, out.m, out.mu, out.pair, out.pair_sum, out.pair_abs, out.log_z
    )


@kernel
def _enumerate_slices(
    theta: Array,
    g: Array,
    K: Array,
    flip: Array,
    m: Array,
    mu: Array,
    pair: Array,
    pair_sum: Array,
    pair_abs: Array,
    log_z: Array,
) -> None:
    n_slices, nv = theta.shape
    nh = K.shape[1]
    f = np.empty(nv)
    x = np.empty(nv)
    tau = np.empty(nv)
    sigma = np.empty(nh)
    reach = 0.0
    for i in range(nv):
        reach = max(reach, np.sum(np.abs(K[i])))
    for t in range(n_slices):
        slot = t if pair.shape[0] > 1 else 0
        safe = np.max(np.abs(theta[t])) + reach < SAFE_FIELD
        sigma[:] = -1.0
        for i in range(nv):
            f[i] = theta[t, i] - np.sum(K[i])
            x[i] = np.exp(2.0 * f[i]) if safe else 0.0
        # All sums are relative to e^reference, the largest weight so far.
        m[t] = 0.0
        mu[t] = 0.0
        pair[slot] = 0.0
        reference = -np.inf
        total = 0.0
        hidden_field = -np.sum(g[t])
        for state in range(2**nh):
            if state > 0:
                b = 0
                while (state >> b) & 1 == 0:
                    b += 1
                # sigma[b] was constant since its last flip: settle the sums over that stretch.
                mu[t, b] += 2.0 * sigma[b] * total
                for i in range(nv):
                    pair[slot, i, b] += 2.0 * sigma[b] * m[t, i]
                sigma[b] = -sigma[b]
                hidden_field += 2.0 * sigma[b] * g[t, b]
                if safe and sigma[b] > 0:
                    for i in range(nv):
                        x[i] *= flip[b, i]
                elif safe:
                    for i in range(nv):
                        x[i] /= flip[b, i]
                for i in range(nv):
                    f[i] += 2.0 * sigma[b] * K[i, b]
            log_weight = hidden_field - _log_2cosh_sum(f, x, safe, tau)
            if log_weight > reference:
                scale = np.exp(reference - log_weight)
                reference = log_weight
                total *= scale
                for i in range(nv):
                    m[t, i] *= scale
                    for b in range(nh):
                        pair[slot, i, b] *= scale
                for b in range(nh):
                    mu[t, b] *= scale
            weight = np.exp(log_weight - reference)
            total += weight
            for i in range(nv):
                m[t, i] += weight * tau[i]
        for b in range(nh):
            mu[t, b] = (mu[t, b] + sigma[b] * total) / total
        for i in range(nv):
            for b in range(nh):
                p = (pair[slot, i, b] + sigma[b] * m[t, i]) / total
                pair[slot, i, b] = p
                pair_sum[i, b] += p
                pair_abs[0] += abs(p)
            m[t, i] /= total
        log_z[t] = reference + np.log(total)


@kernel
def _log_2cosh_sum(f: Array, x: Array, safe: bool, tau: Array) -> float:
    """Σ_i log 2cosh f_i, and tanh f_i in `tau`; with e = e^{-2|f|}: log 2cosh f = |f| + log(1+e), tanh|f| =
    (1-e)/(1+e).
    """
    nv = f.shape[0]
    value = 0.0
    for start in range(0, nv, SAFE_FACTORS):
        product = 1.0
        for i in range(start, min(start + SAFE_FACTORS, nv)):
            e = min(x[i], 1.0 / x[i]) if safe else np.exp(-2.0 * abs(f[i]))
            value += abs(f[i])
            product *= 1.0 + e
            tau[i] = np.copysign((1.0 - e) / (1.0 + e), f[i])
        value += np.log(product)
    return value
