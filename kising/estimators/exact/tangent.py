"""The forward recursion and its derivatives with respect to all couplings: the information in the next step.

With the symbols of `forward_backward`, V_d = ∂p_t/∂θ_d for every coupling θ_d, and W = (known inputs) + Nh inputs
x(σ) = (s, 1, u, σ) of every spin,

    ψ_d(s') = ∂ log P(s(t+1) = s' | s(≤t)) / ∂θ_d = Σ_σ e(σ) V_d(σ)/Z + Σ_σ α(σ) (s'_i - tanh f_i(σ)) x_j(σ)

where the second term is there for the couplings (i, j) of visible spins. It has mean zero given the past, and ψ of
different steps are uncorrelated: the information of a recording is Σ_t ⟨ψ ψᵀ⟩ over s' from P(s' | s(≤t)), with all
correlations in time. Here s' is drawn, several times per step, while V follows the recording:

    ∂α      = e V/Z + α (s_i - tanh f_i) x_j - α ψ
    V'(σ')  = Σ_σ P(σ'|σ) ∂α(σ) + Σ_σ α(σ) P(σ'|σ) (σ'_a - tanh B_a(σ)) x_j(σ)

Couplings are numbered by rows: those on visible spins, then those on hidden ones, W per spin.
"""

import numpy as np

from kising.estimators.exact.forward_backward import Steps, Tables, emission, spread, upwards
from kising.kernels.counter import philox, uniform
from kising.kernels.jit import inlined, kernel
from kising.model import Array

# Word of the counter's last place: what a number is for.
OUTCOME = 5
# Couplings that are gone through together: the rows of V for these stay in the cache.
TOGETHER = 128


@inlined
def _surprise(steps: Steps, tables: Tables, t: int, k: int, up: Array, surprise: Array) -> None:
    """s' - tanh f_i(σ) for one state σ; `up` says which s' are +1. Odds are those of the recording's s(t+1)."""
    for i in range(surprise.shape[0]):
        seen = steps.up[t, i]
        factor, known = tables.by_state[seen, k, i], steps.visible[t, i]
        odds = known * factor if tables.tame else np.exp(known + factor)
        # 1/(1 + o) is the probability of what was seen.
        likely = 1.0 / (1.0 + odds)
        tanh = 2.0 * likely - 1.0 if seen == 1 else 1.0 - 2.0 * likely
        surprise[i] = up[i] - tanh


@inlined
def _score(
    V: Array,
    relative: Array,
    alpha: Array,
    surprise: Array,
    known: Array,
    signs: Array,
    psi: Array,
) -> None:
    """ψ of an outcome: `relative` is e/Z, `surprise` (S, Nv) that of its s'."""
    size, nv = surprise.shape
    nh, q = signs.shape[0], known.shape[0]
    psi[:] = 0.0
    for k in range(size):
        weight = relative[k]
        for d in range(psi.shape[0]):
            psi[d] += weight * V[k, d]
    for i in range(nv):
        row = i * (q + nh)
        for k in range(size):
            value = alpha[k] * surprise[k, i]
            for j in range(q):
                psi[row + j] += value * known[j]
            for b in range(nh):
                psi[row + q + b] += value * signs[b, k]


@kernel
def scores(
    steps: Steps,
    tables: Tables,
    signs: Array,
    known: Array,
    first: int,
    key: np.uint64,
    p: Array,
    V: Array,
    out: Array,
) -> None:
    """Fill `out` (B, draws, D) with ψ of drawn outcomes; p and V go from the first step to the step after the last."""
    nh, size = tables.hidden.shape
    n, draws, D = out.shape
    nv, q = steps.visible.shape[1], known.shape[1]
    weights, logs, alpha, relative = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    surprise, tanh = np.empty((size, nv)), np.empty((size, nv))
    seen, psi = np.empty(nv), np.empty(D)
    up, down, moves = np.empty((size, nh)), np.empty((size, nh)), np.empty((size, size))
    drive = np.empty((size, nh, nh + 1))
    kept = np.empty((size, TOGETHER))
    for t in range(n):
        if steps.begins[t]:
            p[:] = 1.0 / size
            V[:] = 0.0
        for i in range(nv):
            seen[i] = 1.0 if steps.up[t, i] == 1 else -1.0
        for k in range(size):
            _surprise(steps, tables, t, k, seen, surprise[k])
            for i in range(nv):
                tanh[k, i] = seen[i] - surprise[k, i]
        for draw in range(draws):
            _outcome(p, tanh, first + t, draw, key, seen)
            _likelihoods(tanh, seen, logs, weights)
            _normalise(p, weights, alpha, relative)
            for k in range(size):
                for i in range(nv):
                    surprise[k, i] = seen[i] - tanh[k, i]
            _score(V, relative, alpha, surprise, known[t], signs, out[t, draw])
        if steps.ends[t]:
            continue
        emission(t, steps, tables, weights, logs)
        _normalise(p, weights, alpha, relative)
        for k in range(size):
            for i in range(nv):
                surprise[k, i] = (1.0 if steps.up[t, i] == 1 else -1.0) - tanh[k, i]
        _score(V, relative, alpha, surprise, known[t], signs, psi)
        for k in range(size):
            for d in range(D):
                V[k, d] = relative[k] * V[k, d] - alpha[k] * psi[d]
            for i in range(nv):
                value, row = alpha[k] * surprise[k, i], i * (q + nh)
                for j in range(q):
                    V[k, row + j] += value * known[t, j]
                for b in range(nh):
                    V[k, row + q + b] += value * signs[b, k]
        upwards(t, steps, tables, up, down)
        for k in range(size):
            spread(1.0, up[k], down[k], moves[k])
        _move(moves, V, kept)
        _driven(moves, alpha, up, down, signs, drive)
        for k in range(size):
            for a in range(nh):
                row = (nv + a) * (q + nh)
                for j in range(q):
                    V[k, row + j] += drive[k, a, nh] * known[t, j]
                for b in range(nh):
                    V[k, row + q + b] += drive[k, a, b]
        p[:] = 0.0
        for k in range(size):
            for j in range(size):
                p[j] += alpha[k] * moves[k, j]
        p /= np.sum(p)


@inlined
def _outcome(p: Array, tanh: Array, step: int, draw: int, key: np.uint64, spins: Array) -> None:
    """Draw s' from Σ_σ p(σ) P(s' | σ)."""
    size, nv = tanh.shape
    words = philox(key, np.uint64(step), np.uint64(draw), np.uint64(0), np.uint64(OUTCOME))
    level, state = uniform(words[0]), 0
    total = p[0]
    while state < size - 1 and total < level:
        state += 1
        total += p[state]
    for i in range(nv):
        if i % 4 == 0:
            words = philox(key, np.uint64(step), np.uint64(draw), np.uint64(1 + i // 4), np.uint64(OUTCOME))
        spins[i] = 1.0 if 2.0 * uniform(words[i % 4]) - 1.0 < tanh[state, i] else -1.0


@inlined
def _likelihoods(tanh: Array, spins: Array, logs: Array, weights: Array) -> None:
    """P(s' | σ) up to a factor: Π_i (1 + s'_i tanh f_i)/2."""
    size, nv = tanh.shape
    for k in range(size):
        value, product = 0.0, 1.0
        for i in range(nv):
            product *= 0.5 + 0.5 * spins[i] * tanh[k, i]
            if product < 1e-200:
                value += np.log(max(product, 1e-300))
                product = 1.0
        logs[k] = value + np.log(product)
    largest = np.max(logs)
    for k in range(size):
        weights[k] = np.exp(logs[k] - largest)


@inlined
def _normalise(p: Array, weights: Array, alpha: Array, relative: Array) -> None:
    """α and e/Z."""
    norm = 0.0
    for k in range(p.shape[0]):
        norm += p[k] * weights[k]
    for k in range(p.shape[0]):
        relative[k] = weights[k] / norm
        alpha[k] = p[k] * relative[k]


@inlined
def _move(moves: Array, V: Array, kept: Array) -> None:
    """V'(σ') = Σ_σ P(σ'|σ) V(σ), in place."""
    size, D = V.shape
    for start in range(0, D, TOGETHER):
        width = min(TOGETHER, D - start)
        for k in range(size):
            for d in range(width):
                kept[k, d] = V[k, start + d]
        for j in range(size):
            for d in range(width):
                V[j, start + d] = 0.0
            for k in range(size):
                weight = moves[k, j]
                for d in range(width):
                    V[j, start + d] += weight * kept[k, d]


@inlined
def _driven(moves: Array, alpha: Array, up: Array, down: Array, signs: Array, drive: Array) -> None:
    """Σ_σ α(σ) P(σ'|σ) (σ'_a - tanh B_a(σ)) times σ_b, and, in the last place, times 1."""
    size, nh = up.shape
    drive[:] = 0.0
    for k in range(size):
        for j in range(size):
            weight = alpha[k] * moves[k, j]
            for a in range(nh):
                value = weight * (signs[a, j] - up[k, a] + down[k, a])
                for b in range(nh):
                    drive[j, a, b] += value * signs[b, k]
                drive[j, a, nh] += value
