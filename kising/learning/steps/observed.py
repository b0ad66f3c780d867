"""How much of the information about a coupling is left because hidden spins are not seen.

The statistical error of a coupling is that of complete data, divided by the root of this share. Where a hidden spin has
weak bonds, hardly anything is known of its state, and its couplings have errors many times those of complete data.

The information that is missing is the covariance of the score given the visible spins (Louis 1982; `errors` has all of
it). Here it is taken coupling by coupling, with only the coupling's own hidden spin unseen and the others as in the
chains: with p the chance of σ_a = +1 given all others, and f_i^± the fields with σ_a = ±1,

    K_ia   ⟨ p(1-p) (2 s_i⁺ - tanh f_i⁺ - tanh f_i⁻)² ⟩     of     ⟨ 1 - tanh² f_i ⟩
    L_aj   ⟨ 4 p(1-p) ⟩                                     of     ⟨ 1 - tanh² B_a ⟩,  the same for b_a and G_a

The other hidden spins are not seen either: the true share is smaller, and so is what it lets pass as converged.
"""

import numpy as np

from kising.blocks import TABLE
from kising.estimators.chunks import Chunk, fields
from kising.estimators.parallel import one_blas_thread
from kising.estimators.slices import Slices
from kising.learning.state import Anchor
from kising.model import Array, Couplings, Spins

# Keeps errors finite where nothing is known of a hidden spin.
LEAST_SHARE = 1e-2


def observed_shares(anchor: Anchor, recording: Slices | Spins) -> Couplings:
    """The share of the information about every coupling that is left, between LEAST_SHARE and 1."""
    couplings = anchor.couplings
    sigma = anchor.chains.astype(np.float64)
    with one_blas_thread():
        chunk = fields(couplings, recording, slice(0, len(sigma)))
        f = chunk.theta + sigma @ couplings.K.T
        pairs = [_of_unit(a, f, sigma, couplings.K, chunk) for a in range(sigma.shape[1])]
    of_K = np.clip([k for k, _ in pairs], LEAST_SHARE, 1.0).reshape(couplings.K.T.shape).T
    of_unit = np.clip([own for _, own in pairs], LEAST_SHARE, 1.0)
    found: dict[str, Array] = {}
    for block, x in zip(TABLE, couplings, strict=True):
        if block.rows == "hidden":
            found[block.name] = np.ones_like(x) * of_unit.reshape(-1, *(1,) * (x.ndim - 1)) if x.size else x
        else:
            found[block.name] = of_K if block.columns == "hidden" else np.ones_like(x)
    return Couplings(**found)


def _of_unit(a: int, f: Array, sigma: Array, K: Array, chunk: Chunk) -> tuple[Array, float]:
    """The shares of hidden spin a: those of K_·a, (Nv,), and the one of its own row."""
    without = f - sigma[:, a, None] * K[:, a]
    up, down = without + K[:, a], without - K[:, a]
    odds = 2.0 * chunk.g[:, a] - np.sum(_log_2cosh(up) - _log_2cosh(down), axis=1)
    likely = 0.5 + 0.5 * np.tanh(0.5 * odds)
    unsure = likely * (1.0 - likely)
    up, down = np.tanh(up), np.tanh(down)
    missing = unsure @ (2.0 * chunk.after - up - down) ** 2
    complete = likely @ (1.0 - up**2) + (1.0 - likely) @ (1.0 - down**2)
    freedom = np.sum(1.0 - np.tanh(chunk.b[:, a]) ** 2)
    tiny = np.finfo(float).tiny
    return 1.0 - missing / (complete + tiny), float(1.0 - 4.0 * np.sum(unsure) / (freedom + tiny))


def _log_2cosh(x: Array) -> Array:
    size = np.abs(x)
    result: Array = size + np.log1p(np.exp(-2.0 * size))
    return result
