"""The model: couplings, the ensembles they are drawn from, and the dynamics (docs/maths.md, "Model and time
indices").

Symbols: s(t) visible and σ(t) hidden spins, both ±1; J couples visible to visible, K hidden to visible, L visible to
hidden, M hidden to hidden; h and b are biases, F and G the weights of known inputs u(t). One step draws every spin
from the previous state:

    P(s_i(t+1) = s) = 1 / (1 + exp(-2 s f_i)),   f_i = h_i + Σ_k F_ik u_k(t) + Σ_j J_ij s_j(t) + Σ_b K_ib σ_b(t)
    P(σ_a(t+1) = σ) = 1 / (1 + exp(-2 σ B_a)),   B_a = b_a + Σ_k G_ak u_k(t) + Σ_j L_aj s_j(t) + Σ_b M_ab σ_b(t)
"""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.arguments import check_values
from kising.arrays import holds_arrays
from kising.blocks import TABLE, shapes
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


class _Blocks(NamedTuple):
    J: Array
    K: Array
    L: Array
    h: Array
    b: Array
    F: Array
    G: Array
    M: Array


@holds_arrays
class Couplings(_Blocks):
    """The couplings of a network of Nv visible and Nh hidden spins, with p known inputs.

    J_ij (Nv, Nv) acts on visible spin i from visible spin j, K_ib (Nv, Nh) on visible spin i from hidden spin b, L_aj
    (Nh, Nv) on hidden spin a from visible spin j, M_ab (Nh, Nh) on hidden spin a from hidden spin b. Biases h (Nv,)
    and b (Nh,) are zero, and M and the weights F (Nv, p) and G (Nh, p) of inputs are empty, unless they are given;
    where one of F and G is given, the other is zero.
    """

    __slots__ = ()

    def __new__(  # noqa: D102
        cls,
        J: npt.ArrayLike,
        K: npt.ArrayLike,
        L: npt.ArrayLike,
        h: npt.ArrayLike | None = None,
        b: npt.ArrayLike | None = None,
        F: npt.ArrayLike | None = None,
        G: npt.ArrayLike | None = None,
        M: npt.ArrayLike | None = None,
    ) -> "Couplings":
        nv, nh = len(np.asarray(J)), len(np.asarray(L))
        given = (J, K, L, h, b, F, G, M)
        # Where the inputs act on visible spins alone, or on hidden ones alone, the other weights are zero.
        p = next((np.shape(x)[-1] for x in (F, G) if x is not None and np.ndim(x) == 2), 0)
        missing = ((), (), (), (nv,), (nh,), (nv, p), (nh, p), (nh, 0))
        blocks = (np.zeros(shape) if x is None else x for x, shape in zip(given, missing, strict=True))
        return super().__new__(cls, *blocks)  # type: ignore[arg-type]

    @property
    def filled(self) -> "Couplings":
        """The couplings with zeros for biases that were not learned."""
        h, b = (x if x.size else None for x in (self.h, self.b))
        return Couplings(self.J, self.K, self.L, h, b, self.F, self.G, self.M)

    @property
    def with_M(self) -> "Couplings":
        """The couplings with zeros for M if M is absent."""
        return self if self.M.size else self._replace(M=np.zeros((len(self.L), len(self.L))))

    @property
    def lean(self) -> "Couplings":
        """The couplings without optional blocks that are zero."""
        biases = ("h", "b") if self.h.any() or self.b.any() else ()
        weights = ("F", "G") if self.F.size or self.G.size else ()
        memory = ("M",) if self.M.any() else ()
        return self.only((*biases, *weights, *memory))

    @property
    def couples_slices(self) -> bool:
        """Whether there is an M: the hidden spins of all steps of a segment then depend on each other."""
        return bool(self.M.size)

    @property
    def without_zero_M(self) -> "Couplings":
        """The same couplings, without M if it is zero, so that slices are independent of each other."""
        return self if self.M.any() else self._replace(M=np.empty((len(self.L), 0)))

    def only(self, blocks: Collection[str]) -> "Couplings":
        """The couplings with only these optional blocks; all others are empty."""
        empty = {
            block.name: np.empty((*np.shape(x)[:1], 0) if np.ndim(x) == 2 else 0)
            for block, x in zip(TABLE, self, strict=True)
            if block.is_optional and block.name not in blocks
        }
        return self._replace(**empty)


@holds_arrays
class Recording(NamedTuple):
    """A simulation of T time steps."""

    visible: Spins
    """(T, Nv): s_i(t), ±1."""
    hidden: Spins
    """(T, Nh): σ_a(t), ±1; not used for learning."""


class BondScales(NamedTuple):
    """The standard deviation of a non-zero bond of each block, and of a field: the unit in which RMSE is measured."""

    J: float
    """g / √(2 Nv c)"""
    K: float
    """g / √(2 Nh c)"""
    L: float
    """g / √(Nv c)"""
    h: float = 1.0
    """the standard deviation of biases; 1 where none are drawn"""
    b: float = 1.0
    F: float = 1.0
    G: float = 1.0
    M: float = 1.0
    """r g / √(2 Nh c), r the relative strength of M; that of r = 1 where M is not drawn"""


def bond_scales(
    visible: int,
    hidden: int,
    *,
    strength: float,
    connectivity: float,
    bias: float = 0.0,
    hidden_coupling: float = 0.0,
) -> BondScales:
    """The scale of non-zero bonds for coupling strength g and connectivity c (docs/maths.md, "Ensembles")."""
    from_hidden = strength / np.sqrt(2 * max(hidden, 1) * connectivity)
    return BondScales(
        J=strength / np.sqrt(2 * visible * connectivity),
        K=from_hidden,
        L=strength / np.sqrt(visible * connectivity),
        h=bias or 1.0,
        b=bias or 1.0,
        M=(hidden_coupling or 1.0) * from_hidden,
    )


def draw_couplings(
    visible: int,
    hidden: int,
    *,
    strength: float = 1.0,
    connectivity: float = 1.0,
    bonds: str = "gaussian",
    bias: float = 0.0,
    hidden_coupling: float = 0.0,
    seed: Seed,
) -> Couplings:
    """Draw a network. Each bond is non-zero with probability `connectivity`. Non-zero bonds are N(0, sd²) for
    'gaussian' bonds and ±sd for 'binary' ones, with sd proportional to `strength` (`bond_scales`). Biases are
    N(0, bias²). `hidden_coupling` is the strength of M relative to that of K; 0: hidden spins are not coupled.
    """
    check_values(
        "model",
        visible=visible,
        hidden=hidden,
        strength=strength,
        connectivity=connectivity,
        bonds=bonds,
        bias=bias,
        hidden_coupling=hidden_coupling,
    )
    rng = random_stream(seed)
    scales = bond_scales(
        visible, hidden, strength=strength, connectivity=connectivity, hidden_coupling=hidden_coupling
    )

    def block(shape: tuple[int, int], sd: float) -> Array:
        present = rng.random(shape) < connectivity
        values = rng.standard_normal(shape) if bonds == "gaussian" else rng.choice([-1.0, 1.0], size=shape)
        return np.where(present, sd * values, 0.0)

    return Couplings(
        J=block((visible, visible), scales.J),
        K=block((visible, hidden), scales.K),
        L=block((hidden, visible), scales.L),
        h=bias * rng.standard_normal(visible) if bias else None,
        b=bias * rng.standard_normal(hidden) if bias else None,
        # Drawn last, so that networks without M do not change.
        M=block((hidden, hidden), scales.M) if hidden_coupling else None,
    )


def simulate(
    couplings: Couplings, length: int, *, covariates: npt.ArrayLike | None = None, seed: Seed
) -> Recording:
    """Run the dynamics for `length` steps from a random state; a shorter recording is a prefix of a longer one.

    `covariates` (length, p) are the inputs u(t) of a network with weights F and G.
    """
    couplings = as_couplings(couplings)
    if length < 1:
        raise InputError(f"length={length}: must be at least 1")
    nv, nh = couplings.K.shape
    inputs = as_covariates(covariates, length, width=couplings.F.shape[1])
    rng = random_stream(seed)
    weights = np.zeros((nv + nh, nv + nh))
    weights[:nv] = np.hstack([couplings.J, couplings.K])
    weights[nv:] = np.hstack([couplings.L, couplings.with_M.M])
    bias = np.concatenate([couplings.h, couplings.b])
    sensitivity = np.vstack([couplings.F, couplings.G])
    together = GROUPED_SPINS if nv + nh in GROUPED_SIZES else 1
    sent = _sent(weights, together)
    room = rows(2 * -(-(nv + nh) // width_of(np.float64)), np.float64)
    visible = np.empty((length, nv), dtype=np.int8)
    hidden = np.empty((length, nh), dtype=np.int8)
    # Only some steps at a time are held with visible and hidden spins in one array.
    spins = np.empty((BLOCK_STEPS + 1, nv + nh), dtype=np.int8)
    spins[0] = np.where(rng.random(nv + nh) < 0.5, -1, 1)
    visible[0], hidden[0] = spins[0, :nv], spins[0, nv:]
    for start in range(1, length, BLOCK_STEPS):
        stop = min(start + BLOCK_STEPS, length)
        # Spins of step t are driven by the inputs of step t - 1.
        field = bias + inputs[start - 1 : stop - 1] @ sensitivity.T
        draws = rng.random((stop - start, nv + nh))
        _advance(sent, together, field, draws, room, spins[: stop - start + 1])
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
def _advance(sent: Array, together: int, external: Array, uniform: Array, room: Array, spins: Spins) -> None:
    """Fill spins[1:] from spins[0]; row t of `uniform` decides step t, on which the fields `external` act. `room`
    holds a row for every spin, twice.
    """
    n, vectors = spins.shape[1], room.shape[0] // 2
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
            draws[vectors * room.shape[1] + i] = external[t, i]
        for k in range(vectors):
            field = load(sent, places[0] + k)
            for group in range(1, groups):
                field += load(sent, places[group] + k)
            field += load(room, vectors + k)
            # 1/P(+1) = 1 + e^{-2f}: the spin is +1 where the draw times this is below one.
            store(room, k, load(room, k) * (1.0 + exp(-2.0 * field)))
        for i in range(n):
            spins[t + 1, i] = 1 if draws[i] < 1.0 else -1


def as_couplings(couplings: Couplings) -> Couplings:
    """Couplings as contiguous float64 arrays of matching shapes, or an InputError that names what does not fit."""
    given = Couplings(*(np.ascontiguousarray(x, dtype=np.float64) for x in couplings)).filled
    dimensions = [x.ndim for x in given[:3]]
    if dimensions != [2, 2, 2]:
        raise InputError(
            "J, K and L must be matrices; they have {}, {} and {} dimensions".format(*dimensions)
        )
    nv, nh = given.K.shape
    if nv < 1:
        raise InputError(f"a network needs at least one visible spin; K is {given.K.shape}")
    wanted = shapes(nv, nh, given.F.shape[1] if given.F.ndim == 2 else 0)
    if not given.M.size:
        wanted["M"] = (nh, 0)
        given = given._replace(M=np.empty((nh, 0)))
    misfits = [
        f"{name} is {x.shape}, not {wanted[name]}"
        for name, x in given._asdict().items()
        if x.shape != wanted[name]
    ]
    if misfits:
        raise InputError(f"couplings do not fit together: with K (Nv, Nh) = {(nv, nh)}, {'; '.join(misfits)}")
    checked = []
    for name, block in given._asdict().items():
        # The largest entry is enough to accept ordinary couplings; a comparison with NaN is false.
        if block.size and not np.abs(block).max() <= LARGEST_COUPLING:
            if not np.isfinite(block).all():
                raise InputError(f"{name} holds NaN or infinity; couplings must be finite")
            block = np.clip(block, -LARGEST_COUPLING, LARGEST_COUPLING)
        checked.append(block)
    return Couplings(*checked)


def as_covariates(covariates: npt.ArrayLike | None, length: int, *, width: int) -> Array:
    """Known inputs as float64 (length, width), or an InputError that names what does not fit."""
    if covariates is None:
        if width:
            raise InputError(
                f"covariates: the couplings have weights for {width} inputs; give a ({length}, {width}) array"
            )
        return np.zeros((length, 0))
    array = np.ascontiguousarray(covariates, dtype=np.float64)
    if array.ndim == 1:
        array = array[:, None]
    if array.shape != (length, width):
        raise InputError(f"covariates: a ({length}, {width}) array is needed; this one is {array.shape}")
    if not np.isfinite(array).all():
        raise InputError("covariates: they hold NaN or infinity; inputs must be finite")
    return array


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
