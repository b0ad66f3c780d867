"""The model: couplings, the ensembles they are drawn from, and the dynamics (docs/maths.md, "Model and time
indices").

Symbols: s(t) visible and σ(t) hidden spins, both ±1; J couples visible to visible, K hidden to visible, L
visible to hidden. One step draws every spin afresh from the state before it:

    P(s_i(t+1) = s) = 1 / (1 + exp(-2 s f_i)),   f_i = Σ_j J_ij s_j(t) + Σ_b K_ib σ_b(t)
    P(σ_a(t+1) = σ) = 1 / (1 + exp(-2 σ b_a)),   b_a = Σ_j L_aj s_j(t)
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.arguments import check_values
from kising.arrays import holds_arrays
from kising.errors import InputError
from kising.kernels.jit import kernel
from kising.kernels.vector_math import exp
from kising.kernels.vectors import load, rows, store, width_of
from kising.seeds import Seed, random_stream

Array = npt.NDArray[np.float64]
Spins = npt.NDArray[np.int8]

# Sums over thousands of couplings stay finite below this, and a field of 1e100 acts like an infinite one.
LARGEST_COUPLING = 1e100
# How many steps of random numbers are drawn at once; it bounds memory and does not enter the results.
BLOCK_STEPS = 1024
CHECKED_STEPS = 65536
# How many spins' messages are looked up together, and in networks of which sizes: a table for fewer spins is not
# worth making, and for more it does not fit in the cache.
GROUPED_SPINS = 4
GROUPED_SIZES = range(32, 1001)


@holds_arrays
class Couplings(NamedTuple):
    """The couplings of a network of Nv visible and Nh hidden spins."""

    J: Array
    """(Nv, Nv): J_ij acts on visible spin i, from visible spin j."""
    K: Array
    """(Nv, Nh): K_ib acts on visible spin i, from hidden spin b."""
    L: Array
    """(Nh, Nv): L_aj acts on hidden spin a, from visible spin j."""


@holds_arrays
class Recording(NamedTuple):
    """A simulated history of T steps."""

    visible: Spins
    """(T, Nv): s_i(t), ±1."""
    hidden: Spins
    """(T, Nh): σ_a(t), ±1; a learner never sees them."""


class BondScales(NamedTuple):
    """The standard deviation of a non-zero bond of each block: the unit in which RMSE is measured."""

    J: float
    """g / √(2 Nv c)"""
    K: float
    """g / √(2 Nh c)"""
    L: float
    """g / √(Nv c)"""


def bond_scales(visible: int, hidden: int, *, strength: float, connectivity: float) -> BondScales:
    """The scale of non-zero bonds for coupling strength g and connectivity c (docs/maths.md, "Ensembles")."""
    return BondScales(
        J=strength / np.sqrt(2 * visible * connectivity),
        K=strength / np.sqrt(2 * hidden * connectivity),
        L=strength / np.sqrt(visible * connectivity),
    )


def draw_couplings(
    visible: int,
    hidden: int,
    *,
    strength: float = 1.0,
    connectivity: float = 1.0,
    bonds: str = "gaussian",
    seed: Seed,
) -> Couplings:
    """Draw a network: each bond is non-zero with probability `connectivity`, then N(0, sd²) or ±sd."""
    check_values(
        "model", visible=visible, hidden=hidden, strength=strength, connectivity=connectivity, bonds=bonds
    )
    rng = random_stream(seed)
    scales = bond_scales(visible, hidden, strength=strength, connectivity=connectivity)

    def block(shape: tuple[int, int], sd: float) -> Array:
        present = rng.random(shape) < connectivity
        values = rng.standard_normal(shape) if bonds == "gaussian" else rng.choice([-1.0, 1.0], size=shape)
        return np.where(present, sd * values, 0.0)

    return Couplings(
        J=block((visible, visible), scales.J),
        K=block((visible, hidden), scales.K),
        L=block((hidden, visible), scales.L),
    )


def simulate(couplings: Couplings, length: int, *, seed: Seed) -> Recording:
    """Run the dynamics for `length` steps from a random state; a shorter recording is a prefix of a longer
    one.
    """
    J, K, L = as_couplings(couplings)
    if length < 1:
        raise InputError(f"length={length}: must be at least 1")
    nv, nh = K.shape
    rng = random_stream(seed)
    weights = np.zeros((nv + nh, nv + nh))
    weights[:nv] = np.hstack([J, K])
    weights[nv:, :nv] = L
    together = GROUPED_SPINS if nv + nh in GROUPED_SIZES else 1
    sent = _sent(weights, together)
    room = rows(-(-(nv + nh) // width_of(np.float64)), np.float64)
    visible = np.empty((length, nv), dtype=np.int8)
    hidden = np.empty((length, nh), dtype=np.int8)
    # Only some steps at a time are held with visible and hidden spins in one array.
    spins = np.empty((BLOCK_STEPS + 1, nv + nh), dtype=np.int8)
    spins[0] = np.where(rng.random(nv + nh) < 0.5, -1, 1)
    visible[0], hidden[0] = spins[0, :nv], spins[0, nv:]
    for start in range(1, length, BLOCK_STEPS):
        stop = min(start + BLOCK_STEPS, length)
        _advance(sent, together, rng.random((stop - start, nv + nh)), room, spins[: stop - start + 1])
        visible[start:stop] = spins[1 : stop - start + 1, :nv]
        hidden[start:stop] = spins[1 : stop - start + 1, nv:]
        spins[0] = spins[stop - start]
    return Recording(visible, hidden)


def _sent(weights: Array, together: int) -> Array:
    """What each group of `together` spins sends to every spin, for each of the group's states: a step then adds one
    row of this table per group, not one per spin.

    Spin i of all rows is in lane i % 8 of vector i // 8; row (group, state) begins at vector (group 2^together +
    state) ⌈N/8⌉. Bit k of a state is set where spin k of the group is +1.
    """
    n = len(weights)
    groups, vectors = -(-n // together), -(-n // width_of(np.float64))
    table = rows(groups * 2**together * vectors, np.float64)
    by_state = table.reshape(groups, 2**together, -1)[:, :, :n]
    for k in range(together):
        signs = np.where((np.arange(2**together) >> k) & 1, 1.0, -1.0)
        senders = weights[:, k::together].T
        by_state[: len(senders)] += signs[:, None] * senders[:, None, :]
    return table


@kernel
def _advance(sent: Array, together: int, uniform: Array, room: Array, spins: Spins) -> None:
    """Fill spins[1:] from spins[0]; row t of `uniform` decides step t. `room` holds a row for every spin."""
    n, vectors = spins.shape[1], room.shape[0]
    groups = sent.shape[0] // (vectors * 2**together)
    places = np.empty(groups, np.int64)
    draws = room.reshape(-1)
    for t in range(uniform.shape[0]):
        for group in range(groups):
            state = 0
            for k in range(min(together, n - group * together)):
                if spins[t, group * together + k] > 0:
                    state |= 1 << k
            places[group] = (group * 2**together + state) * vectors
        for i in range(n):
            draws[i] = uniform[t, i]
        for k in range(vectors):
            field = load(sent, places[0] + k)
            for group in range(1, groups):
                field += load(sent, places[group] + k)
            # 1/P(+1) = 1 + e^{-2f}: the spin is +1 where the draw times this is below one.
            store(room, k, load(room, k) * (1.0 + exp(-2.0 * field)))
        for i in range(n):
            spins[t + 1, i] = 1 if draws[i] < 1.0 else -1


def as_couplings(couplings: Couplings) -> Couplings:
    """Couplings as contiguous float64 arrays of matching shapes, or an InputError that names what does not fit."""
    J, K, L = (np.ascontiguousarray(x, dtype=np.float64) for x in couplings)
    if J.ndim != 2 or K.ndim != 2 or L.ndim != 2:
        raise InputError(f"J, K and L must be matrices; they have {J.ndim}, {K.ndim} and {L.ndim} dimensions")
    nv, nh = K.shape
    if J.shape != (nv, nv) or L.shape != (nh, nv):
        raise InputError(
            f"couplings do not fit together: J {J.shape}, K {K.shape}, L {L.shape}; "
            f"with K (Nv, Nh) = {K.shape}, J must be {(nv, nv)} and L {(nh, nv)}"
        )
    if nv < 1 or nh < 1:
        raise InputError(f"a network needs at least one visible and one hidden spin; K is {K.shape}")
    checked = []
    for name, block in zip("JKL", (J, K, L), strict=True):
        # The largest entry is enough to accept ordinary couplings; a comparison with NaN is false.
        if not np.abs(block).max() <= LARGEST_COUPLING:
            if not np.isfinite(block).all():
                raise InputError(f"{name} holds NaN or infinity; couplings must be finite")
            block = np.clip(block, -LARGEST_COUPLING, LARGEST_COUPLING)
        checked.append(block)
    return Couplings(*checked)


def as_spins(visible: npt.ArrayLike, *, width: int | None = None) -> Spins:
    """A recording as int8 (T, Nv) with T ≥ 3, or an InputError that names what does not fit."""
    array = np.asarray(visible)
    if array.ndim != 2:
        raise InputError(f"a recording is a (T, Nv) array; this one has {array.ndim} dimensions")
    if width is not None and array.shape[1] != width:
        raise InputError(f"the recording has {array.shape[1]} visible spins, the couplings {width}")
    if array.shape[0] < 3 or array.shape[1] < 1:
        raise InputError(f"a recording needs at least 3 steps of at least 1 spin; this one is {array.shape}")
    # Checked in pieces: the mask of a long recording would take more memory than the recording.
    for start in range(0, array.shape[0], CHECKED_STEPS):
        rows = array[start : start + CHECKED_STEPS]
        wrong = (rows != 1) & (rows != -1)
        if wrong.any():
            t, i = np.argwhere(wrong)[0]
            raise InputError(f"spins must be -1 or +1; step {start + t}, spin {i} is {rows[t, i]}")
    return np.ascontiguousarray(array, dtype=np.int8)
