"""How much of the information about a coupling is left because hidden spins are not observed.

The statistical error of a coupling is that of complete data, divided by the root of this share. Where a hidden spin has
weak bonds, hardly anything is known of its state, and its couplings have errors many times those of complete data.

The information that is missing is the covariance of the score given the visible spins (Louis 1982; `errors` has all of
it). Here it is taken coupling by coupling, with only the coupling's own hidden spin unseen and the others as in the
chains: with p the chance of σ_a = +1 given all others, and f_i^± the fields with σ_a = ±1,

    K_ia   ⟨ p(1-p) (2 s_i⁺ - tanh f_i⁺ - tanh f_i⁻)² ⟩     of     ⟨ 1 - tanh² f_i ⟩
    L_aj   ⟨ 4 p(1-p) ⟩                                     of     ⟨ 1 - tanh² B_a ⟩,  the same for b_a and G_a

With M, hidden spins act on hidden ones as on visible ones, so a column of M is as one of K. A coupling M_ab has the
smaller share of that and of row a. The other hidden spins are not observed either: the true share is smaller, so the
true statistical error is larger and the verdict errs on the strict side.
"""

from typing import NamedTuple

import numpy as np

from kising.blocks import TABLE
from kising.estimators.chunks import fields
from kising.estimators.parallel import one_blas_thread
from kising.estimators.slices import Slices
from kising.estimators.steps import Steps
from kising.learning.state import Anchor
from kising.model import Array, Couplings, Spins

# Keeps errors finite where nothing is known of a hidden spin.
LEAST_SHARE = 1e-2


class _Seen(NamedTuple):
    """Some time steps, with the states of all spins given."""

    sigma: Array
    """σ(t), (n, Nh)"""
    own: Array
    """B, the fields on σ(t), (n, Nh)"""
    W: Array
    """what σ(t) acts with: K, and M below it where there is one, (N', Nh)"""
    f: Array
    """the fields at t+1 of the spins it acts on, (n, N')"""
    after: Array
    """their states, (n, N')"""


def observed_shares(anchor: Anchor, recording: Slices | Spins) -> Couplings:
    """The share of the information about every coupling that is left, between LEAST_SHARE and 1."""
    couplings = anchor.couplings
    nv, nh = couplings.K.shape
    with one_blas_thread():
        seen = (_of_steps if anchor.of_steps else _of_slices)(anchor, recording)
        pairs = [_of_unit(a, seen) for a in range(nh)]
    of_W = np.clip([w for w, _ in pairs], LEAST_SHARE, 1.0).reshape(nh, len(seen.W)).T
    of_unit = np.clip([own for _, own in pairs], LEAST_SHARE, 1.0)
    found: dict[str, Array] = {}
    for block, x in zip(TABLE, couplings, strict=True):
        if not x.size:
            found[block.name] = x
        elif block.columns == "hidden":
            found[block.name] = (
                of_W[:nv] if block.rows == "visible" else np.minimum(of_W[nv:], of_unit[:, None])
            )
        elif block.rows == "hidden":
            found[block.name] = np.ones_like(x) * of_unit.reshape(-1, *(1,) * (x.ndim - 1))
        else:
            found[block.name] = np.ones_like(x)
    return Couplings(**found)


def _of_slices(anchor: Anchor, recording: Slices | Spins) -> _Seen:
    """The first slices, with the hidden spins of the anchor."""
    sigma, K = anchor.chains.astype(np.float64), anchor.couplings.K
    chunk = fields(anchor.couplings, recording, slice(0, len(sigma)))
    return _Seen(sigma, chunk.b, K, chunk.theta + sigma @ K.T, chunk.after)


def _of_steps(anchor: Anchor, recording: Slices | Spins) -> _Seen:
    """The first steps that have one before and one after them in their segment; the anchor has the states of the hidden
    spins, or of all.
    """
    couplings, steps = anchor.couplings, Steps.of(recording)
    n, nv = len(anchor.chains), couplings.K.shape[0]
    found, sigma = steps.first(couplings, anchor.chains)
    theta, drive = found.theta + sigma @ couplings.K.T, found.drive
    sampled = anchor.chains.shape[1] > sigma.shape[1]
    spins = anchor.chains[:, :nv].astype(np.float64) if sampled else found.known[:, :nv]
    t = 1 + np.flatnonzero(~(steps.begins | steps.ends)[1 : n - 1])
    if not couplings.M.size:
        return _Seen(sigma[t], drive[t - 1], couplings.K, theta[t], spins[t + 1])
    drive = drive + sigma @ couplings.M.T
    return _Seen(
        sigma[t],
        drive[t - 1],
        np.vstack([couplings.K, couplings.M]),
        np.hstack([theta[t], drive[t]]),
        np.hstack([spins[t + 1], sigma[t + 1]]),
    )


def _of_unit(a: int, seen: _Seen) -> tuple[Array, float]:
    """The shares of hidden spin a: those of W_·a, and the one of its own row."""
    w = seen.W[:, a]
    without = seen.f - seen.sigma[:, a, None] * w
    up, down = without + w, without - w
    odds = 2.0 * (seen.own[:, a] + seen.after @ w) - np.sum(_log_2cosh(up) - _log_2cosh(down), axis=1)
    likely = 0.5 + 0.5 * np.tanh(0.5 * odds)
    unsure = likely * (1.0 - likely)
    up, down = np.tanh(up), np.tanh(down)
    missing = unsure @ (2.0 * seen.after - up - down) ** 2
    complete = likely @ (1.0 - up**2) + (1.0 - likely) @ (1.0 - down**2)
    freedom = np.sum(1.0 - np.tanh(seen.own[:, a]) ** 2)
    tiny = np.finfo(float).tiny
    return 1.0 - missing / (complete + tiny), float(1.0 - 4.0 * np.sum(unsure) / (freedom + tiny))


def _log_2cosh(x: Array) -> Array:
    size = np.abs(x)
    result: Array = size + np.log1p(np.exp(-2.0 * size))
    return result
