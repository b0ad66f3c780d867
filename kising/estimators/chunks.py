"""What an estimator is given and what it fills in: the fields of a chunk of slices, and their moments.

A slice is (s⁻, s, s⁺) = (s(t-1), s(t), s(t+1)). Every estimator sees of it only

    θ_i = h_i + Σ_k F_ik u_k + Σ_j J_ij s_j         the field on s⁺ of all that is known
    g_a = Σ_i K_ia s_i⁺ + B_a,   B_a = b_a + Σ_k G_ak u_k⁻ + Σ_j L_aj s_j⁻

with biases h, b and known inputs u where a network has them. In code B_a is called `b`, as in a network without.

Chunks are cut by the shape of the network alone, never by threads, so that sums over slices are always taken
in one order.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.estimators.slices import Slices, as_slices
from kising.model import Array, Couplings, Spins

CHUNK_SLICES = 4096


class Chunk(NamedTuple):
    """The fields of a run of consecutive slices."""

    known_before: Array
    """known inputs of the hidden spins: s⁻, 1 where there are biases, u⁻, (B, Nv+q)"""
    known_now: Array
    """known inputs of the visible spins: s, 1, u, (B, Nv+q)"""
    known_after: Array
    """s⁺ and what stands beside it, (B, Nv+q)"""
    theta: Array
    """θ, (B, Nv)"""
    b: Array
    """B_a, (B, Nh)"""
    g: Array
    """g, (B, Nh)"""
    bounds: tuple[Array, Array]
    """of |θ_i| and of |B_a|, whatever the spins and inputs of the recording are, (Nv,) and (Nh,)"""

    @property
    def before(self) -> Array:
        """s⁻, (B, Nv)"""
        return self._spins(self.known_before)

    @property
    def now(self) -> Array:
        """s, (B, Nv)"""
        return self._spins(self.known_now)

    @property
    def after(self) -> Array:
        """s⁺, (B, Nv)"""
        return self._spins(self.known_after)

    def _spins(self, known: Array) -> Array:
        return known[:, : self.theta.shape[1]]

    def take(self, places: npt.NDArray[np.int64]) -> "Chunk":
        """Some of the slices."""
        rows = {name: x[places] for name, x in self._asdict().items() if name != "bounds"}
        return self._replace(**rows)


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


class Weights(NamedTuple):
    """What all chunks of a recording share: the weights of known inputs, and how large fields can become."""

    K: Array
    """(Nv, Nh)"""
    on_visible: Array
    """(Nv, Nv+q)"""
    on_hidden: Array
    """(Nh, Nv+q)"""
    bounds: tuple[Array, Array]
    bias: bool

    @classmethod
    def of(cls, couplings: Couplings, slices: Slices, dtype: npt.DTypeLike = np.float64) -> "Weights":
        """Those of couplings, for a recording; fields are computed as numbers of this type."""
        bias = bool(couplings.h.size)
        on_visible = known_weights(couplings.J, couplings.h, couplings.F, bias=bias)
        on_hidden = known_weights(couplings.L, couplings.b, couplings.G, bias=bias)
        largest = np.concatenate([np.ones(couplings.K.shape[0] + bias), slices.largest_inputs])
        bounds = np.abs(on_visible) @ largest, np.abs(on_hidden) @ largest
        K, on_visible, on_hidden = (x.astype(dtype) for x in (couplings.K, on_visible, on_hidden))
        return cls(K, on_visible, on_hidden, bounds, bias)

    def fields(self, slices: Slices, part: slice) -> Chunk:
        """The chunk of slices `part` of the recording."""
        before, now, known_after, _ = window = slices.window(part, bias=self.bias, dtype=self.K.dtype)
        b = before @ self.on_hidden.T
        theta = now @ self.on_visible.T
        g = window.after @ self.K + b
        return Chunk(before, now, known_after, theta, b, g, self.bounds)


def fields(couplings: Couplings, recording: Slices | Spins, part: slice) -> Chunk:
    """The chunk of slices `part` of a recording, by itself."""
    slices = as_slices(recording)
    return Weights.of(couplings, slices).fields(slices, part)


def known_weights(weights: Array, biases: Array, sensitivity: Array, *, bias: bool) -> Array:
    """The weights of all known inputs, (N, Nv+q)."""
    if not bias and not sensitivity.shape[1]:
        return weights
    return np.concatenate([weights, biases.reshape(len(weights), int(bias)), sensitivity], axis=1)


def empty_estimate(
    n_slices: int, nv: int, nh: int, *, keep_pairs: bool, dtype: npt.DTypeLike = np.float64
) -> Estimate:
    """Room for the moments of a chunk."""
    return Estimate(
        m=np.empty((n_slices, nv), dtype),
        mu=np.empty((n_slices, nh), dtype),
        pair=np.empty((n_slices if keep_pairs else 1, nv, nh)),
        pair_sum=np.zeros((nv, nh)),
        pair_abs=np.zeros(1),
        log_z=np.empty(n_slices),
        converged=np.zeros(n_slices, dtype=np.bool_),
        iterations=np.zeros(n_slices, dtype=np.int64),
        corrected=np.zeros(n_slices, dtype=np.int64),
    )
