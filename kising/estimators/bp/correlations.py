"""Pair averages ⟨τ_i σ_b⟩ from the messages of belief propagation, by four rules (docs/maths.md, "Pair correlations").

`pair`       the Bethe pair belief of one bond: always within [-1, 1]
`closed`     linear response at the fixed point, by one Nh × Nh solve
`iterated`   linear response by iterating susceptibility propagation, as the paper does; it can diverge
`corrected`, `iterated-corrected`   the same, and m_i μ_b wherever the result passes ±1

All are computed from cavity odds (w of m_i^a, v of μ_a^i, κ = e^{-2K}). The joint law of one τ_i and σ_a has
the weights 1, wv, κv, κw for (++), (--), (+-), (-+): products and sums of positive numbers, which lose no
digits in saturated slices.
"""

import numpy as np

from kising.estimators.damping import damping_at
from kising.kernels.jit import kernel
from kising.model import Array

Workspace = tuple[Array, Array, Array, Array, Array]

PAIR, CLOSED, ITERATED = 0, 1, 2
CODES = {
    "iterated": (ITERATED, False),
    "closed": (CLOSED, False),
    "pair": (PAIR, False),
    "corrected": (CLOSED, True),
    "iterated-corrected": (ITERATED, True),
}
# Below this share of the largest pivot, the matrix of the closed form counts as singular.
SMALLEST_PIVOT = 1e-13
# A susceptibility iteration that has grown beyond this has diverged: its values are finite, and useless.
LARGEST_RESPONSE = 1e8


@kernel
def workspace(nv: int, nh: int, rule: int) -> Workspace:
    """Scratch arrays for one slice at a time."""
    nb = nh if rule == ITERATED else 1
    edges, responses = (nv, nh), (nv, nh, nb)
    return np.empty(edges), np.empty(edges), np.empty((nh, nh)), np.empty(responses), np.empty(responses)


@kernel
def pair_averages(
    rule: int,
    K: Array,
    kappa: Array,
    w: Array,
    v: Array,
    W: Array,
    V: Array,
    tolerance: float,
    damping: float,
    max_iterations: int,
    space: Workspace,
    pair: Array,
) -> bool:
    """Fill `pair` with ⟨τ_i σ_b⟩ of one slice; False where an iteration did not settle."""
    nv, nh = K.shape
    alpha, beta, square, response, cavity = space
    settled = True
    if rule == CLOSED:
        if not _closed(kappa, w, v, W, V, alpha, square, beta[0], pair):
            rule = PAIR
    elif rule == ITERATED:
        for i in range(nv):
            for a in range(nh):
                alpha[i, a] = _slope(K[i, a], w[i, a])
                beta[i, a] = _slope(K[i, a], v[i, a])
        settled = _iterated(
            alpha, beta, w, v, W, V, tolerance, damping, max_iterations, square, response, cavity, pair
        )
    if rule == PAIR:
        for i in range(nv):
            for a in range(nh):
                equal = 1.0 + w[i, a] * v[i, a]
                opposite = kappa[i, a] * (w[i, a] + v[i, a])
                pair[i, a] = (equal - opposite) / (equal + opposite)
    return settled


@kernel
def replace_impossible(m: Array, mu: Array, pair: Array) -> int:
    """Put m_i μ_b where |⟨τ_i σ_b⟩| > 1, the paper's cure; returns how many."""
    count = 0
    for i in range(pair.shape[0]):
        for a in range(pair.shape[1]):
            if abs(pair[i, a]) > 1.0:
                pair[i, a] = m[i] * mu[a]
                count += 1
    return count


@kernel
def variance(odds: float) -> float:
    """1 - tanh² of a field, from its odds e^{-2 field}."""
    return 4.0 * odds / ((1.0 + odds) * (1.0 + odds))


@kernel
def _closed(
    kappa: Array, w: Array, v: Array, W: Array, V: Array, B: Array, S: Array, root: Array, pair: Array
) -> bool:
    """χ = D⁻¹ A (E + Aᵀ D⁻¹ A)⁻¹, scaled so that nothing cancels or overflows; False where the matrix is
    singular.

    With A_ia = c_ia/Δ_ia, C_ia = c_ia A_ia, R_i = Σ_a C_ia, r_i² = (1-m_i²)/(1+R_i):

        B_ia = r_i A_ia √(1-μ_a²)     S = diag(1 - Σ_i C_ia) + BᵀB     χ = r_i (B S⁻¹)_ib √(1-μ_b²)

    B_ia² = C_ia (1 + C_ia)/(1 + R_i), hence S_aa = 1 - Σ_i C_ia (R_i - C_ia)/(1 + R_i): on a tree, where a
    visible spin has one hidden input, R_i = C_ia and S is exactly the identity.
    """
    nv, nh = kappa.shape
    for a in range(nh):
        root[a] = np.sqrt(variance(V[a]))
        for b in range(nh):
            S[a, b] = 1.0 if a == b else 0.0
    for i in range(nv):
        # `pair` holds C_ia until the solution overwrites it.
        total = 0.0
        for a in range(nh):
            # For K < 0 the same bond seen with τ turned over: κ ≤ 1 keeps every ratio finite.
            k = min(kappa[i, a], 1.0 / kappa[i, a])
            x = w[i, a] if kappa[i, a] <= 1.0 else 1.0 / w[i, a]
            y = v[i, a]
            both = 1.0 + x * y + k * (x + y)
            bond = (1.0 - k) * (1.0 + k)
            spread = k * (k * (1.0 + x * y) + x + y)
            A = 0.25 * bond * (both / spread)
            C = bond * bond * (x * y / both) / spread
            B[i, a] = A if kappa[i, a] <= 1.0 else -A
            pair[i, a] = C
            total += C
        scale = np.sqrt(variance(W[i]) / (1.0 + total))
        for a in range(nh):
            others = 0.0
            for b in range(nh):
                others += pair[i, b] if b != a else 0.0
            S[a, a] -= pair[i, a] * others / (1.0 + total)
            B[i, a] *= scale * root[a]
        for a in range(nh):
            for b in range(a):
                S[a, b] += B[i, a] * B[i, b]
        # From here on only r_i is needed of the row; it waits in the first column.
        pair[i, 0] = scale
    if not _factorise(S):
        return False
    for i in range(nv):
        scale = pair[i, 0]
        _solve(S, B[i])
        for a in range(nh):
            value = scale * B[i, a] * root[a] + tanh_of(W[i]) * tanh_of(V[a])
            if not np.isfinite(value):
                return False
            pair[i, a] = value
    return True


@kernel
def tanh_of(odds: float) -> float:
    """tanh of a field, from its odds."""
    return (1.0 - odds) / (1.0 + odds)


@kernel
def _factorise(S: Array) -> bool:
    """S = L D Lᵀ in the lower triangle; S is symmetric, but past BP's instability not positive. False where a
    pivot vanishes.
    """
    n = S.shape[0]
    largest = 0.0
    for a in range(n):
        for b in range(a):
            value = S[a, b]
            for c in range(b):
                value -= S[a, c] * S[b, c] * S[c, c]
            S[a, b] = value / S[b, b]
        for c in range(a):
            S[a, a] -= S[a, c] * S[a, c] * S[c, c]
        largest = max(largest, abs(S[a, a]))
        if not abs(S[a, a]) > SMALLEST_PIVOT * largest:
            return False
    return True


@kernel
def _solve(S: Array, x: Array) -> None:
    """x ← S⁻¹ x with the factors of `_factorise`."""
    n = S.shape[0]
    for a in range(n):
        for b in range(a):
            x[a] -= S[a, b] * x[b]
    for a in range(n):
        x[a] /= S[a, a]
    for a in range(n - 1, -1, -1):
        for b in range(a + 1, n):
            x[a] -= S[b, a] * x[b]


@kernel
def _iterated(
    alpha: Array,
    beta: Array,
    w: Array,
    v: Array,
    W: Array,
    V: Array,
    tolerance: float,
    damping: float,
    max_iterations: int,
    total: Array,
    response: Array,
    cavity: Array,
    pair: Array,
) -> bool:
    """Susceptibility propagation: v^i_ab in `response`, g^a_jb in `cavity`, iterated from g = 0; O(Nv Nh²) per
    iteration.

    alpha_ja = t_ja/(1-(t_ja m_j^a)²) and beta_ja = t_ja/(1-(t_ja μ_a^j)²) do not change during the iteration.
    """
    nv, nh = alpha.shape
    response[:] = 0.0
    cavity[:] = 0.0
    settled = False
    lost = False
    iteration = 0
    while iteration < max_iterations and not settled and not lost:
        keep = damping_at(iteration, damping, max_iterations) if iteration > 0 else 0.0
        total[:] = 0.0
        for j in range(nv):
            for a in range(nh):
                for b in range(nh):
                    total[a, b] += alpha[j, a] * cavity[j, a, b]
        change = 0.0
        for i in range(nv):
            for a in range(nh):
                freedom = variance(v[i, a])
                for b in range(nh):
                    source = 1.0 if a == b else 0.0
                    new = freedom * (source - total[a, b] - alpha[i, a] * cavity[i, a, b])
                    difference = new - response[i, a, b]
                    change += difference * difference
                    response[i, a, b] += (1.0 - keep) * difference
                    lost = lost or not abs(response[i, a, b]) < LARGEST_RESPONSE
        for j in range(nv):
            for b in range(nh):
                drive = 0.0
                for c in range(nh):
                    drive += beta[j, c] * response[j, c, b]
                for a in range(nh):
                    cavity[j, a, b] = variance(w[j, a]) * (drive - beta[j, a] * response[j, a, b])
        iteration += 1
        settled = change < tolerance * nv * nh * nh
    for i in range(nv):
        for b in range(nh):
            chi = 0.0
            for a in range(nh):
                chi += beta[i, a] * response[i, a, b]
            value = variance(W[i]) * chi + tanh_of(W[i]) * tanh_of(V[b])
            if not abs(value) < LARGEST_RESPONSE:
                value = LARGEST_RESPONSE if value > 0.0 else -LARGEST_RESPONSE
            pair[i, b] = value
    return settled and not lost


@kernel
def _slope(K: float, odds: float) -> float:
    """t/(1 - (t m)²), with m given by its odds: (1-κ²)(1+odds)² / [4 (odds + κ)(1 + κ odds)] for K ≥ 0."""
    kappa = np.exp(-2.0 * abs(K))
    magnitude = (1.0 - kappa) * (1.0 + kappa) * (1.0 + odds) * (1.0 + odds)
    magnitude /= 4.0 * (odds + kappa) * (1.0 + kappa * odds)
    return magnitude if K >= 0.0 else -magnitude
