"""Forward and backward recursions over the 2^Nh hidden states, for networks with couplings M among hidden spins
(docs/maths.md, "The larger model").

    p_t(σ)     = P(σ(t) | s(≤t))                                    p_1 = 2^-Nh
    e_t(σ)     = P(s(t+1) | s(t), σ) = Π_i 1/(1 + o_i(σ)),          o_i = e^{-2 s_i(t+1) f_i}
    Z_t        = Σ_σ p_t e_t = P(s(t+1) | s(≤t))                    the likelihood is the product of these
    α_t        = p_t e_t / Z_t = P(σ(t) | s(≤t+1))
    p_{t+1}(σ') = Σ_σ P_t(σ'|σ) α_t(σ),                             P_t(σ'|σ) = Π_a 1/(1 + e^{-2 σ'_a B_a(σ)})
    β_t(σ)     = Σ_σ' P_t(σ'|σ) e_{t+1}(σ') β_{t+1}(σ') / Z_{t+1}   1 in the last step of a segment
    γ_t        = α_t β_t = P(σ(t) | all s)

In state number k spin a is +1 where bit a of k is set. Every p_t sums to one, so nothing underflows: some state has
p_t ≥ 2^-Nh, and e_t is either within e^±650 or relative to its largest value. A hidden field beyond ±LARGEST_REACH/Nh
is taken as that, so that P_t(σ'|σ) ≥ e^-600 and β_t ≤ e^600.

Odds o_i and e^{-2 B_a} are products of a factor per step and a factor per state, both made outside (`Tables`). Where
these could leave floating point they are given as logarithms instead (`tame` is false), and cost an exponential each.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.kernels.counter import philox, uniform
from kising.kernels.jit import inlined, kernel
from kising.model import Array

LARGEST_REACH = 300.0
# Word of the counter's last place: what a number is for. Others have 0 to 3.
BACKWARD = 4

Flags = npt.NDArray[np.bool_]
Signs = npt.NDArray[np.int64]


class Tables(NamedTuple):
    """What depends on the couplings and the hidden state alone; S = 2^Nh. Logarithms where not `tame`."""

    tame: bool
    visible: Array
    """e^{-2 s Σ_b K_ib σ_b} for s = -1 and +1, (2, Nv, S)"""
    by_state: Array
    """the same, (2, S, Nv)"""
    hidden: Array
    """e^{-2 Σ_b M_ab σ_b}, (Nh, S)"""
    pauses: Flags
    """whether the product over visible spins is turned into a logarithm after this one, (Nv,)"""


class Steps(NamedTuple):
    """What depends on the step. Logarithms where the tables are."""

    visible: Array
    """e^{-2 s_i(t+1) θ_i}, (B, Nv)"""
    up: Signs
    """1 where s_i(t+1) = +1, else 0, (B, Nv)"""
    hidden: Array
    """e^{-2 d_a}, (B, Nh)"""
    begins: Flags
    """whether the step is the first of its segment, (B,)"""
    ends: Flags
    """whether it is the last, (B,)"""


class Filtered(NamedTuple):
    """What the forward recursion leaves of every step."""

    predicted: Array
    """p_t, (B, S)"""
    weights: Array
    """e_t up to a factor, (B, S)"""
    alpha: Array
    """α_t, (B, S)"""
    norms: Array
    """Z_t up to the same factor, (B,)"""
    log_z: Array
    """log Z_t, nats, (B,)"""


class Sums(NamedTuple):
    """Sums over steps that the backward recursion adds to."""

    states: Array
    """Σ_t γ_t(σ), (S,)"""
    surprise: Array
    """Σ_t γ_t(σ) (s_i(t+1) - tanh f_i(σ)), (S, Nv)"""
    expected: Array
    """Σ_t γ_t(σ) tanh B_a(σ), (Nh, S), over steps that are not the last of a segment"""
    moves: Array
    """Σ_t P(σ(t) = σ, σ(t+1) = σ' | all s), (S, S), over the same steps"""


class Smoothed(NamedTuple):
    """What the backward recursion leaves of every step."""

    surprise: Array
    """s_i(t+1) - ⟨tanh f_i⟩, (B, Nv)"""
    mu: Array
    """⟨σ_a(t)⟩, (B, Nh)"""
    expected: Array
    """⟨tanh B_a⟩ of the hidden spins at t+1, (B, Nh); zero, as the next one, in the last step of a segment"""
    hidden_surprise: Array
    """⟨σ_a(t+1) - tanh B_a⟩, (B, Nh)"""
    pair: Array
    """⟨(s_i(t+1) - tanh f_i) σ_b⟩, (B, Nv, Nh), or (0, Nv, Nh) where they are not asked for"""
    in_time: Array
    """⟨σ_a(t+1) σ_b(t)⟩, (B, Nh, Nh), or (0, Nh, Nh); zero in the last step of a segment"""


@inlined
def emission(t: int, steps: Steps, tables: Tables, weights: Array, logs: Array) -> float:
    """Fill `weights` with e_t(σ) up to a factor, and return the logarithm of that factor."""
    nv, size = tables.visible.shape[1], weights.shape[0]
    if not tables.tame:
        logs[:] = 0.0
        for i in range(nv):
            row, known = tables.visible[steps.up[t, i], i], steps.visible[t, i]
            for k in range(size):
                exponent = known + row[k]
                logs[k] -= max(exponent, 0.0) + np.log1p(np.exp(-abs(exponent)))
    else:
        weights[:] = 1.0
        logs[:] = 0.0
        paused = False
        for i in range(nv):
            row, known = tables.visible[steps.up[t, i], i], steps.visible[t, i]
            for k in range(size):
                weights[k] *= 1.0 + known * row[k]
            if tables.pauses[i]:
                paused = True
                for k in range(size):
                    logs[k] -= np.log(weights[k])
                    weights[k] = 1.0
        if not paused:
            for k in range(size):
                weights[k] = 1.0 / weights[k]
            return 0.0
        for k in range(size):
            logs[k] -= np.log(weights[k])
    reference = np.max(logs)
    for k in range(size):
        weights[k] = np.exp(logs[k] - reference)
    return float(reference)


@inlined
def upwards(t: int, steps: Steps, tables: Tables, up: Array, down: Array) -> None:
    """Fill P(σ'_a = +1 | σ) and P(σ'_a = -1 | σ), (S, Nh) each."""
    nh, size = tables.hidden.shape
    largest = 2.0 * LARGEST_REACH / nh
    for a in range(nh):
        row, known = tables.hidden[a], steps.hidden[t, a]
        for k in range(size):
            odds = known * row[k] if tables.tame else np.exp(min(max(known + row[k], -largest), largest))
            likely = 1.0 / (1.0 + odds)
            up[k, a] = likely
            down[k, a] = odds * likely


@inlined
def spread(weight: float, up: Array, down: Array, moves: Array) -> None:
    """Fill `moves` with weight P(σ'|σ) for all σ', given the rows of one σ."""
    moves[0] = weight
    width = 1
    for a in range(up.shape[0]):
        for k in range(width):
            moves[width + k] = up[a] * moves[k]
            moves[k] *= down[a]
        width *= 2


@inlined
def _gathered(values: Array, up: Array, down: Array, room: Array) -> float:
    """Σ_σ' P(σ'|σ) values(σ'), given the rows of one σ."""
    width = values.shape[0] // 2
    a = up.shape[0] - 1
    for k in range(width):
        room[k] = down[a] * values[k] + up[a] * values[width + k]
    while width > 1:
        width //= 2
        a -= 1
        for k in range(width):
            room[k] = down[a] * room[k] + up[a] * room[width + k]
    return float(room[0])


@kernel
def forward(steps: Steps, tables: Tables, predicted: Array, out: Filtered) -> None:
    """Go forward from `predicted`, p of the first step, and leave there p of the step after the last. Rows of `out`
    that are too few are used again and again: one row then serves all steps.
    """
    nh, size = tables.hidden.shape
    logs, moves = np.empty(size), np.empty(size)
    up, down = np.empty((size, nh)), np.empty((size, nh))
    rows = out.alpha.shape[0]
    for t in range(steps.visible.shape[0]):
        row = t % rows
        if steps.begins[t]:
            predicted[:] = 1.0 / size
        alpha, weights = out.alpha[row], out.weights[row]
        reference = emission(t, steps, tables, weights, logs)
        norm = 0.0
        for k in range(size):
            out.predicted[row, k] = predicted[k]
            alpha[k] = predicted[k] * weights[k]
            norm += alpha[k]
        for k in range(size):
            alpha[k] /= norm
        out.norms[row] = norm
        out.log_z[row] = reference + np.log(norm)
        if steps.ends[t]:
            continue
        upwards(t, steps, tables, up, down)
        predicted[:] = 0.0
        for k in range(size):
            spread(alpha[k], up[k], down[k], moves)
            for j in range(size):
                predicted[j] += moves[j]
        # Rounding errors would add up over a long segment.
        norm = np.sum(predicted)
        for k in range(size):
            predicted[k] /= norm


@kernel
def backward(
    steps: Steps,
    tables: Tables,
    signs: Array,
    filtered: Filtered,
    later: Array,
    arrived: Array,
    sums: Sums,
    out: Smoothed,
) -> None:
    """Go backward from `later` and `arrived`, e β / Z and ⟨σ⟩ of the step after the last, and leave there those of the
    first step.
    """
    nh, size = tables.hidden.shape
    nv = steps.visible.shape[1]
    beta, gamma = np.empty(size), np.empty(size)
    moves, room = np.empty(size), np.empty(max(size // 2, 1))
    up, down = np.empty((size, nh)), np.empty((size, nh))
    ratio = np.empty(nv)
    for t in range(steps.visible.shape[0] - 1, -1, -1):
        alpha = filtered.alpha[t]
        out.expected[t] = 0.0
        beta[:] = 1.0
        if not steps.ends[t]:
            upwards(t, steps, tables, up, down)
            for k in range(size):
                beta[k] = _gathered(later, up[k], down[k], room)
        norm = 0.0
        for k in range(size):
            gamma[k] = alpha[k] * beta[k]
            norm += gamma[k]
        for k in range(size):
            gamma[k] /= norm
            sums.states[k] += gamma[k]
        if out.in_time.shape[0] > 0:
            out.in_time[t] = 0.0
        if not steps.ends[t]:
            for k in range(size):
                spread(alpha[k] / norm, up[k], down[k], moves)
                for j in range(size):
                    moves[j] *= later[j]
                    sums.moves[k, j] += moves[j]
                if out.in_time.shape[0] > 0:
                    for a in range(nh):
                        for b in range(nh):
                            for j in range(size):
                                out.in_time[t, a, b] += signs[a, j] * signs[b, k] * moves[j]
                for a in range(nh):
                    value = gamma[k] * (up[k, a] - down[k, a])
                    sums.expected[a, k] += value
                    out.expected[t, a] += value
        for k in range(size):
            later[k] = filtered.weights[t, k] * beta[k] / filtered.norms[t]
        for a in range(nh):
            out.hidden_surprise[t, a] = 0.0 if steps.ends[t] else arrived[a] - out.expected[t, a]
            arrived[a] = 0.0
        for k in range(size):
            for a in range(nh):
                arrived[a] += gamma[k] * signs[a, k]
        out.mu[t] = arrived
        _surprises(t, steps, tables, signs, gamma, ratio, sums, out)


@inlined
def _surprises(
    t: int,
    steps: Steps,
    tables: Tables,
    signs: Array,
    gamma: Array,
    ratio: Array,
    sums: Sums,
    out: Smoothed,
) -> None:
    """s - tanh f = 2 s o / (1 + o), averaged over γ_t."""
    nv, size = ratio.shape[0], gamma.shape[0]
    nh = signs.shape[0]
    out.surprise[t] = 0.0
    keeps = out.pair.shape[0] > 0
    if keeps:
        out.pair[t] = 0.0
    for k in range(size):
        below, above = tables.by_state[0, k], tables.by_state[1, k]
        for i in range(nv):
            factor = above[i] if steps.up[t, i] == 1 else below[i]
            ratio[i] = steps.visible[t, i] * factor if tables.tame else np.exp(steps.visible[t, i] + factor)
        for i in range(nv):
            sign = 2.0 if steps.up[t, i] == 1 else -2.0
            ratio[i] = sign * gamma[k] * (1.0 - 1.0 / (1.0 + ratio[i]))
        for i in range(nv):
            out.surprise[t, i] += ratio[i]
            sums.surprise[k, i] += ratio[i]
        if keeps:
            for i in range(nv):
                for b in range(nh):
                    out.pair[t, i, b] += ratio[i] * signs[b, k]


@kernel
def sample_backward(
    steps: Steps,
    tables: Tables,
    alpha: Array,
    first: int,
    key: np.uint64,
    states: npt.NDArray[np.int64],
) -> None:
    """Draw hidden paths given all s of their segments, one per column of `states` (B, n), as numbers of states; `first`
    is the number of the first step in the recording. Row B - 1 must end a segment, or be where the recording is cut.
    """
    nh, size = tables.hidden.shape
    n = states.shape[1]
    up, down = np.empty((size, nh)), np.empty((size, nh))
    likely = np.empty(size)
    last = steps.visible.shape[0] - 1
    for t in range(last, -1, -1):
        linked = t < last and not steps.ends[t]
        if linked:
            upwards(t, steps, tables, up, down)
        for path in range(n):
            total = 0.0
            for k in range(size):
                weight = alpha[t, k]
                if linked:
                    for a in range(nh):
                        weight *= up[k, a] if (states[t + 1, path] >> a) & 1 else down[k, a]
                total += weight
                likely[k] = total
            words = philox(key, np.uint64(first + t), np.uint64(path), np.uint64(0), np.uint64(BACKWARD))
            level = total * uniform(words[0])
            k = 0
            while k < size - 1 and likely[k] < level:
                k += 1
            states[t, path] = k
