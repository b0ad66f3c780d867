"""The TAP equations: an expansion to second order in the couplings (maths.md, "TAP and naive mean field").

    m_i = tanh[ θ_i + Σ_b K_ib μ_b - m_i Σ_b K_ib² (1-μ_b²) ]
    μ_a = tanh[ g_a - Σ_i K_ia m_i + μ_a Σ_i K_ia² (1-m_i²) ]
    ⟨τ_i σ_b⟩ = m_i μ_b + K_ib (1-m_i²)(1-μ_b²)

They are the stationary points of the free energy of one σ and n → -1 replicas of τ, with S the entropy of a
±1 spin,

    log Z = Σ_a [g_a μ_a + S(μ_a)] - Σ_i [θ_i m_i + S(m_i)] - Σ_ib K_ib m_i μ_b - ½ Σ_ib K_ib²
    (1-m_i²)(1-μ_b²)

so that the gradient with this ⟨τσ⟩ is that of the TAP log-likelihood. Naive mean field is the same without
the K² terms and without the connected part: `order` 1 where TAP has 2. A slice that does not settle counts as
not converged, and its last values are used, as in `bp`.
"""

import numpy as np
import numpy.typing as npt

from kising.estimators.block import Block, Estimate
from kising.estimators.numerics import damping_at
from kising.jit import kernel
from kising.model import Array, Couplings


def estimate(
    couplings: Couplings,
    block: Block,
    out: Estimate,
    *,
    tolerance: float,
    damping: float,
    max_iterations: int,
) -> None:
    """Fill `out` with the TAP averages of the block's slices."""
    estimate_to_order(
        2, couplings, block, out, tolerance=tolerance, damping=damping, max_iterations=max_iterations
    )


def estimate_to_order(
    order: int,
    couplings: Couplings,
    block: Block,
    out: Estimate,
    *,
    tolerance: float,
    damping: float,
    max_iterations: int,
) -> None:
    """Fill `out` by the expansion to `order` 1 (naive mean field) or 2 (TAP)."""
    K = couplings.K
    second = K if order == 2 else np.zeros_like(K)
    _iterate_slices(
        block.theta, block.g, K, second, tolerance, damping, max_iterations,
        out.m, out.mu, out.pair, out.pair_sum, out.pair_abs, out.log_z, out.converged, out.iterations,
    )  # fmt: skip


@kernel
def _iterate_slices(
    theta: Array,
    g: Array,
    K: Array,
    second: Array,
    tolerance: float,
    damping: float,
    max_iterations: int,
    m: Array,
    mu: Array,
    pair: Array,
    pair_sum: Array,
    pair_abs: Array,
    log_z: Array,
    converged: npt.NDArray[np.bool_],
    iterations: npt.NDArray[np.int64],
) -> None:
    """`second` is K where second-order terms are kept and zero where they are not."""
    n_slices, nv = theta.shape
    nh = K.shape[1]
    field = np.empty(nh)
    reaction = np.empty(nh)
    for t in range(n_slices):
        slot = t if pair.shape[0] > 1 else 0
        for i in range(nv):
            m[t, i] = np.tanh(theta[t, i])
        for a in range(nh):
            mu[t, a] = 0.0
        iteration = 0
        settled = False
        while iteration < max_iterations and not settled:
            keep = damping_at(iteration, damping, max_iterations)
            change = 0.0
            field[:] = g[t]
            reaction[:] = 0.0
            for i in range(nv):
                for a in range(nh):
                    field[a] -= K[i, a] * m[t, i]
                    reaction[a] += second[i, a] * second[i, a] * (1.0 - m[t, i] * m[t, i])
            for a in range(nh):
                difference = np.tanh(field[a] + mu[t, a] * reaction[a]) - mu[t, a]
                change += difference * difference
                mu[t, a] += (1.0 - keep) * difference
            for i in range(nv):
                here = theta[t, i]
                back = 0.0
                for a in range(nh):
                    here += K[i, a] * mu[t, a]
                    back += second[i, a] * second[i, a] * (1.0 - mu[t, a] * mu[t, a])
                difference = np.tanh(here - m[t, i] * back) - m[t, i]
                change += difference * difference
                m[t, i] += (1.0 - keep) * difference
            iteration += 1
            settled = change < tolerance * (nv + nh)
        value = 0.0
        for a in range(nh):
            value += g[t, a] * mu[t, a] + _entropy(mu[t, a])
        for i in range(nv):
            value -= theta[t, i] * m[t, i] + _entropy(m[t, i])
            for a in range(nh):
                free = (1.0 - m[t, i] * m[t, i]) * (1.0 - mu[t, a] * mu[t, a])
                value -= K[i, a] * m[t, i] * mu[t, a] + 0.5 * second[i, a] * second[i, a] * free
                p = m[t, i] * mu[t, a] + second[i, a] * free
                pair[slot, i, a] = p
                pair_sum[i, a] += p
                pair_abs[0] += abs(p)
        log_z[t] = value
        converged[t] = settled
        iterations[t] = iteration


@kernel
def _entropy(m: float) -> float:
    """The entropy of a ±1 spin of mean m, in nats."""
    up = 0.5 * (1.0 + m)
    down = 0.5 * (1.0 - m)
    value = 0.0
    if up > 0.0:
        value -= up * np.log(up)
    if down > 0.0:
        value -= down * np.log(down)
    return value
