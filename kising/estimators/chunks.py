"""What an estimator is given and what it fills in: the fields of a chunk of slices, and their moments.

A slice is (s⁻, s, s⁺) = (s(t-1), s(t), s(t+1)). Every estimator sees of it only

    θ_i = Σ_j J_ij s_j          the field of the visible spins on s⁺
    g_a = Σ_i K_ia s_i⁺ + b_a,  b_a = Σ_j L_aj s_j⁻

Chunks are cut by the shape of the network alone, never by threads, so that sums over slices are always taken
in one order.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.model import Array, Couplings, Spins

CHUNK_SLICES = 4096


class Chunk(NamedTuple):
    """The fields of a run of consecutive slices."""

    before: Array
    """s⁻, (B, Nv)"""
    now: Array
    """s, (B, Nv)"""
    after: Array
    """s⁺, (B, Nv)"""
    theta: Array
    """θ, (B, Nv)"""
    b: Array
    """b, (B, Nh)"""
    g: Array
    """g, (B, Nh)"""


class Estimate(NamedTuple):
    """The moments of a chunk's slices, written by an estimator."""

    m: Array
    """⟨tanh f_i⟩, (B, Nv)"""
    mu: Array
    """⟨σ_b⟩, (B, Nh)"""
    pair: Array
    """⟨tanh(f_i) σ_b⟩, (B, Nv, Nh) where they are to be kept, else (1, Nv, Nh): the last slice's, as scratch
    """
    pair_sum: Array
    """Σ_t ⟨tanh(f_i) σ_b⟩, (Nv, Nh)"""
    pair_abs: Array
    """Σ_t Σ_ib |⟨tanh(f_i) σ_b⟩|, (1,)"""
    log_z: Array
    """log Σ_σ exp[Σ_a g_a σ_a - Σ_i log 2cosh f_i], or the estimator's approximation of it, (B,), nats"""
    converged: npt.NDArray[np.bool_]
    """whether the iteration reached its tolerance, (B,)"""
    iterations: npt.NDArray[np.int64]
    """how many iterations it took, (B,)"""
    corrected: npt.NDArray[np.int64]
    """how many of the Nv Nh pair averages were replaced, (B,)"""

    def put(self, places: npt.NDArray[np.int64], part: "Estimate") -> None:
        """Fill in slices that were left out, and left out of the sums, so far."""
        self.pair_sum[...] += part.pair_sum
        self.pair_abs[...] += part.pair_abs
        for mine, theirs in zip(self, part, strict=True):
            if len(mine) == len(self.m) and mine is not self.pair_sum and mine is not self.pair_abs:
                mine[places] = theirs


def cut(n_slices: int) -> list[slice]:
    """The chunks of a recording, as ranges of slice numbers."""
    return [slice(k, min(k + CHUNK_SLICES, n_slices)) for k in range(0, n_slices, CHUNK_SLICES)]


def fields(couplings: Couplings, visible: Spins, part: slice) -> Chunk:
    """The chunk of slices `part`: slice k has s⁻ = visible[k], s = visible[k+1], s⁺ = visible[k+2]."""
    J, K, L = couplings
    spins = visible[part.start : part.stop + 2].astype(np.float64)
    before, now, after = spins[:-2], spins[1:-1], spins[2:]
    b = before @ L.T
    return Chunk(before, now, after, theta=now @ J.T, b=b, g=after @ K + b)


def empty_estimate(n_slices: int, nv: int, nh: int, *, keep_pairs: bool) -> Estimate:
    """Room for the moments of a chunk."""
    return Estimate(
        m=np.empty((n_slices, nv)),
        mu=np.empty((n_slices, nh)),
        pair=np.empty((n_slices if keep_pairs else 1, nv, nh)),
        pair_sum=np.zeros((nv, nh)),
        pair_abs=np.zeros(1),
        log_z=np.empty(n_slices),
        converged=np.zeros(n_slices, dtype=np.bool_),
        iterations=np.zeros(n_slices, dtype=np.int64),
        corrected=np.zeros(n_slices, dtype=np.int64),
    )
