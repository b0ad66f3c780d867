"""Belief propagation for couplings of any strength, one slice at a time (equations in `propagation`).

Everything is carried as odds, e^{-2 field}, which are products of positive numbers: no tanh, atanh or log per
edge, and no cancellation however strong the couplings are. With κ_ia = e^{-2 K_ia}:

    r_ia = e^{-2 atanh(t_ia m_i^a)} = (w + κ)/(1 + κ w)          w = e^{-2 atanh m_i^a} = W_i / f_ia
    f_ia = e^{-2 atanh(t_ia μ_a^i)} = (v + κ)/(1 + κ v)          v = e^{-2 atanh μ_a^i} = V_a / r_ia
    V_a  = e^{-2 atanh μ_a} = e^{-2 g_a} / Π_j r_ja              W_i = e^{-2 atanh m_i} = e^{-2 θ_i} Π_b f_ib

Pair averages are in `correlations`.
"""

import numpy as np
import numpy.typing as npt

from kising.estimators.bp import correlations as corr
from kising.estimators.chunks import Chunk, Estimate
from kising.estimators.damping import damping_at
from kising.estimators.estep import EStep
from kising.kernels.jit import kernel
from kising.model import Array, Couplings

# Odds stay within floating point when fields are clipped at ±100 and hidden-to-visible couplings at ±40. Nothing
# measurable is lost: a cavity field that should be larger is still at least 60, and tanh 60 is 1 to the last
# bit.
LARGEST_FIELD = 100.0
LARGEST_COUPLING = 40.0
LARGEST_ODDS = np.exp(2.0 * LARGEST_FIELD)
# The odds of a bond lie between e^{-2|K|} and e^{2|K|}. While Σ 2|K| over a row and over a column, and twice the
# fields of a slice, stay below this, products of odds stay within floating point and need no logarithms.
SAFE_EXPONENT = 600.0
# Rows of the scratch array.
PLUS, MINUS = 0, 1


def estimate(
    couplings: Couplings, chunk: Chunk, out: Estimate, *, rule: int, correct: bool, estep: EStep
) -> None:
    """Fill `out` with the BP averages of the chunk's slices."""
    K = np.clip(couplings.K, -LARGEST_COUPLING, LARGEST_COUPLING)
    # g is recomputed where K was clipped: fields and messages must belong to the same network.
    g = chunk.g if np.array_equal(K, couplings.K) else chunk.after @ K + chunk.b
    size = 2.0 * np.abs(K)
    tame = bool(max(size.sum(axis=0).max(), size.sum(axis=1).max()) < SAFE_EXPONENT)
    _propagate_slices(
        chunk.theta, g, K, np.exp(-2.0 * K), tame, rule, correct,
        estep.tolerance, estep.damping, estep.max_iterations,
        out.m, out.mu, out.pair, out.pair_sum, out.pair_abs, out.log_z,
        out.converged, out.iterations, out.corrected,
    )  # fmt: skip


@kernel
def clip(x: float, bound: float) -> float:
    """The value of [-bound, bound] nearest to x."""
    return min(max(x, -bound), bound)


@kernel
def _propagate_slices(
    theta: Array,
    g: Array,
    K: Array,
    kappa: Array,
    tame: bool,
    rule: int,
    correct: bool,
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
    corrected: npt.NDArray[np.int64],
) -> None:
    n_slices, nv = theta.shape
    nh = K.shape[1]
    r = np.empty((nv, nh))
    w = np.empty((nv, nh))
    v = np.empty((nv, nh))
    cavity = np.empty((nv, nh))
    bias_v = np.empty(nv)
    bias_h = np.empty(nh)
    W = np.empty(nv)
    V = np.empty(nh)
    scratch = np.empty((4, nh))
    space = corr.workspace(nv, nh, rule)
    for t in range(n_slices):
        slot = t if pair.shape[0] > 1 else 0
        safe = tame
        for i in range(nv):
            safe = safe and 2.0 * abs(theta[t, i]) < SAFE_EXPONENT
        for a in range(nh):
            safe = safe and 2.0 * abs(g[t, a]) < SAFE_EXPONENT
        for i in range(nv):
            odds = np.exp(-2.0 * clip(theta[t, i], LARGEST_FIELD))
            bias_v[i] = np.exp(-2.0 * theta[t, i]) if safe else theta[t, i]
            for a in range(nh):
                cavity[i, a] = corr.tanh_of(odds)
                r[i, a] = (odds + kappa[i, a]) / (1.0 + kappa[i, a] * odds)
        for a in range(nh):
            bias_h[a] = np.exp(-2.0 * g[t, a]) if safe else g[t, a]
        settled = False
        iteration = 0
        while iteration < max_iterations and not settled:
            keep = damping_at(iteration, damping, max_iterations)
            change = _sweep(bias_v, bias_h, kappa, safe, keep, r, cavity, V, scratch)
            iteration += 1
            settled = change < tolerance
        _hidden_odds(bias_h, r, safe, V, scratch)
        for i in range(nv):
            W[i] = _visible_odds(i, bias_v, kappa, r, V, safe, scratch)
            m[t, i] = corr.tanh_of(W[i])
            for a in range(nh):
                w[i, a] = W[i] * (scratch[PLUS, a] / scratch[MINUS, a])
                v[i, a] = V[a] / r[i, a]
        for a in range(nh):
            mu[t, a] = corr.tanh_of(V[a])
        log_z[t] = _bethe(theta[t], g[t], K, kappa, w, v, tame, scratch)
        fine = corr.pair_averages(
            rule, K, kappa, w, v, W, V, tolerance, damping, max_iterations, space, pair[slot]
        )  # fmt: skip
        if correct:
            corrected[t] = corr.replace_impossible(m[t], mu[t], pair[slot])
        for i in range(nv):
            for a in range(nh):
                pair_sum[i, a] += pair[slot, i, a]
                pair_abs[0] += abs(pair[slot, i, a])
        converged[t] = settled and fine
        iterations[t] = iteration


@kernel
def _sweep(
    bias_v: Array,
    bias_h: Array,
    kappa: Array,
    safe: bool,
    damping: float,
    r: Array,
    cavity: Array,
    V: Array,
    scratch: Array,
) -> float:
    """One iteration of the messages r, and of m_i^a in `cavity`.

    Returns the mean square change of m_i^a, as if undamped.
    """
    nv, nh = kappa.shape
    _hidden_odds(bias_h, r, safe, V, scratch)
    change = 0.0
    for i in range(nv):
        W = _visible_odds(i, bias_v, kappa, r, V, safe, scratch)
        for a in range(nh):
            # w = W / f = W plus / minus, left undivided.
            down = W * scratch[PLUS, a]
            up = scratch[MINUS, a]
            new = (up - down) / (up + down)
            difference = new - cavity[i, a]
            change += difference * difference
            cavity[i, a] = new
            message = (down + kappa[i, a] * up) / (up + kappa[i, a] * down)
            if damping > 0.0:
                # A mean of t m = (1-r)/(1+r), taken of both (1 ± t m)/2 so that neither loses its digits.
                here = (1.0 - damping) / (1.0 + message)
                there = damping / (1.0 + r[i, a])
                message = (message * here + r[i, a] * there) / (here + there)
            r[i, a] = message
    # With damping, messages have moved by a share (1 - damping) of what they would have.
    return change / (nv * nh * (1.0 - damping) ** 2)


@kernel
def _hidden_odds(bias: Array, r: Array, safe: bool, V: Array, scratch: Array) -> None:
    """V_a = e^{-2 g_a} / Π_j r_ja, within bounds. `bias` is e^{-2 g_a} where products are safe, else g_a."""
    nv, nh = r.shape
    for a in range(nh):
        scratch[PLUS, a] = 1.0 if safe else 0.0
    for i in range(nv):
        for a in range(nh):
            if safe:
                scratch[PLUS, a] *= r[i, a]
            else:
                scratch[PLUS, a] += np.log(r[i, a])
    for a in range(nh):
        if safe:
            V[a] = min(max(bias[a] / scratch[PLUS, a], 1.0 / LARGEST_ODDS), LARGEST_ODDS)
        else:
            V[a] = np.exp(-2.0 * clip(bias[a] + 0.5 * scratch[PLUS, a], LARGEST_FIELD))


@kernel
def _visible_odds(i: int, bias: Array, kappa: Array, r: Array, V: Array, safe: bool, scratch: Array) -> float:
    """W_i = e^{-2 θ_i} Π_b f_ib, within bounds; `bias` as in `_hidden_odds`.

    f_ib = (v + κ)/(1 + κ v) with v = V_b / r_ib; numerator and denominator, both times r_ib, stay in `scratch`.
    """
    product = 1.0
    logarithm = 0.0
    for a in range(kappa.shape[1]):
        scratch[PLUS, a] = r[i, a] + kappa[i, a] * V[a]
        scratch[MINUS, a] = V[a] + kappa[i, a] * r[i, a]
        if safe:
            product *= scratch[MINUS, a] / scratch[PLUS, a]
        else:
            logarithm += np.log(scratch[MINUS, a] / scratch[PLUS, a])
    if safe:
        return min(max(bias[i] * product, 1.0 / LARGEST_ODDS), LARGEST_ODDS)
    return np.exp(-2.0 * clip(bias[i] - 0.5 * logarithm, LARGEST_FIELD))


@kernel
def _bethe(
    theta: Array, g: Array, K: Array, kappa: Array, w: Array, v: Array, safe: bool, scratch: Array
) -> float:
    """The Bethe approximation of log Σ_σ exp[Σ_a g_a σ_a - Σ_i log 2cosh f_i] (docs/maths.md, "Bethe
    log-likelihood").

    With cosh K (1 + t m) = e^K (1 + κw)/(1+w) and cosh K (1 - t m) = e^K (κ + w)/(1+w), the factors cosh K of
    the three sums cancel, and of the factors e^K one is left in each.
    """
    nv, nh = K.shape
    up, down, log_up, log_down = scratch[0], scratch[1], scratch[2], scratch[3]
    up[:] = 1.0
    down[:] = 1.0
    log_up[:] = g
    log_down[:] = -g
    value = 0.0
    for i in range(nv):
        row_up = 1.0
        row_down = 1.0
        row_both = 1.0
        log_row_up = theta[i]
        log_row_down = -theta[i]
        for a in range(nh):
            x = w[i, a]
            y = v[i, a]
            k = kappa[i, a]
            share_x = 1.0 / (1.0 + x)
            share_y = 1.0 / (1.0 + y)
            up[a] *= (1.0 + k * x) * share_x
            down[a] *= (k + x) * share_x
            row_up *= (1.0 + k * y) * share_y
            row_down *= (k + y) * share_y
            row_both *= (1.0 + x * y + k * (x + y)) * share_x * share_y
            if not safe:
                log_up[a] -= np.log(up[a])
                log_down[a] -= np.log(down[a])
                log_row_up += np.log(row_up)
                log_row_down += np.log(row_down)
                value += np.log(row_both)
                up[a] = 1.0
                down[a] = 1.0
                row_up = 1.0
                row_down = 1.0
                row_both = 1.0
        log_row_up += np.log(row_up)
        log_row_down += np.log(row_down)
        value += np.log(row_both)
        value -= max(log_row_up, log_row_down) + np.log1p(np.exp(-abs(log_row_up - log_row_down)))
    for a in range(nh):
        log_up[a] -= np.log(up[a])
        log_down[a] -= np.log(down[a])
        # Σ_i K_ia is taken once in the last sum, away in this one and away with the visible one's: it remains
        # once, negative.
        for i in range(nv):
            value -= K[i, a]
        value += max(log_up[a], log_down[a]) + np.log1p(np.exp(-abs(log_up[a] - log_down[a])))
    return value
