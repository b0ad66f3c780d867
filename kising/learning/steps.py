"""One step of learning: from a gradient to the next couplings.

`scaled`    (default) the step that needs no rate: the gradient of a row, divided by the row's complete-data
            information. Here with the weights 1 - m_i² averaged, (mean of 1-m_i²) C, C = mean of x xᵀ, x = (s, σ);
            for L, x = s⁻. With exact averages and with samples it is divided as `metric` has it, but for the first
            step, sparse learning and very large networks. Repeating it is EM; Anderson acceleration makes a longer one
            of the last few.
`gradient`  the paper's plain ascent: rate times the gradient of the mean log-likelihood, with momentum.

Anderson acceleration solves for a vanishing step, wherever that is: near a saddle of the likelihood it goes
there, where EM would leave. A start that knows nothing of the truth passes such saddles while its hidden
units find their roles; steps grow as it leaves one. It is accelerated only after steps have shrunk for
`patience` iterations in a row.

Acceleration can also leap where the E-step is not smooth. Four safeguards hold it: history is dropped when
the scaled step has doubled since the iteration before; coefficients come from a regularised least-squares
problem; no coupling moves by more than ten of its own steps and a tenth of its bond scale, so that those which the
recording does not determine are not thrown far out; and no block may move in one iteration by more than its own root
mean square or its bond scale, whichever is larger.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from kising.estimators.chunks import cut
from kising.estimators.inference import Gradient
from kising.model import Array, BondScales, Couplings, Spins

STEPS = ("scaled", "gradient")
# For couplings as they are, not in units of the bond scale.
UNIT = BondScales(1.0, 1.0, 1.0)
MEMORY = 5
# Relative to the unit diagonal of C: makes C positive definite where there are fewer slices than spins.
RIDGE = 1e-6
REGULARISATION = 1e-10
GROWTH_THAT_DROPS_HISTORY = 2.0
MOST_STEPS, MOST_BEYOND = 10.0, 0.1
# A row that never varies (1 - m² → 0) would be divided by nothing.
SMALLEST_FREEDOM = 1e-3


class SpinProducts(NamedTuple):
    """What the data alone contributes to C: computed once for a recording."""

    now: Array
    """mean over slices of s sᵀ, (Nv, Nv)"""
    before: Array
    """mean over slices of s⁻ s⁻ᵀ, (Nv, Nv)"""


class History(NamedTuple):
    """What a step remembers of the steps before it; all of it is part of a saved state."""

    points: Array
    """the last couplings, oldest first, in units of the bond scale, (k, n)"""
    steps: Array
    """the scaled steps there, (k, n)"""
    size: float
    """the length of the last scaled step, in units of the bond scale"""
    shrinking: int
    """for how many iterations in a row it has become smaller"""
    velocity: Array
    """momentum of `gradient`, (n,)"""


def spin_products(visible: Spins) -> SpinProducts:
    """Σ_t s sᵀ, in blocks."""
    nv = visible.shape[1]
    n_slices = visible.shape[0] - 2
    now = np.zeros((nv, nv))
    before = np.zeros((nv, nv))
    for part in cut(n_slices):
        spins = visible[part.start : part.stop + 1].astype(np.float64)
        before += spins[:-1].T @ spins[:-1]
        now += spins[1:].T @ spins[1:]
    return SpinProducts(now / n_slices, before / n_slices)


def no_history(size: int) -> History:
    """A step's memory at the start."""
    return History(np.empty((0, size)), np.empty((0, size)), np.inf, -1, np.zeros(size))


def forgotten(history: History) -> History:
    """A memory without the steps before, which acceleration would build on."""
    return history._replace(points=history.points[:0], steps=history.steps[:0])


def complete_information(gradient: Gradient, products: SpinProducts) -> Array:
    """C of the rows of (J, K): mean of x xᵀ, x = (s, σ)."""
    return np.block(
        [[products.now, gradient.visible_hidden], [gradient.visible_hidden.T, gradient.hidden_hidden]]
    )


def pulled(
    gradient: Gradient, couplings: Couplings, scales: BondScales, n_slices: int, width: float
) -> Gradient:
    """The gradient with that of a Gaussian prior, N(0, (width sd_X)²) for each coupling X, as a mean over slices.

    It moves a coupling with standard error ε by some (ε / width sd_X)² of itself: next to nothing where the recording
    determines it. Where it does not, because bonds saturate, the likelihood is largest anywhere out to infinity, and
    with the prior it is not.
    """
    J, K, L = (
        slope - x / ((width * sd) ** 2 * n_slices)
        for slope, x, sd in zip((gradient.J, gradient.K, gradient.L), couplings, scales, strict=True)
    )
    return gradient._replace(J=J, K=K, L=L)


def scaled_step(gradient: Gradient, products: SpinProducts) -> Couplings:
    """The scale-free step: G C⁻¹ / freedom, row by row."""
    nv = products.now.shape[0]
    C = complete_information(gradient, products)
    JK = _solve_rows(np.hstack([gradient.J, gradient.K]), C, gradient.freedom_visible)
    L = _solve_rows(gradient.L, products.before, gradient.freedom_hidden)
    return Couplings(JK[:, :nv], JK[:, nv:], L)


def _solve_rows(rows: Array, C: Array, freedom: Array) -> Array:
    ridged = C + RIDGE * np.eye(C.shape[0])
    solved: Array = cho_solve(cho_factor(ridged), rows.T).T
    return solved / np.maximum(freedom, SMALLEST_FREEDOM)[:, None]


def flatten(couplings: Couplings, scales: BondScales) -> Array:
    """The couplings as one vector, in units of the bond scale."""
    return np.concatenate([(x / sd).ravel() for x, sd in zip(couplings, scales, strict=True)])


def blocks_of(couplings: Couplings) -> list[slice]:
    """Where J, K and L lie in the vector of `flatten`."""
    ends = np.cumsum([0, *(x.size for x in couplings)])
    return [slice(int(a), int(b)) for a, b in pairwise(ends)]


def unflatten(vector: Array, like: Couplings, scales: BondScales) -> Couplings:
    """The inverse of `flatten`."""
    ends = np.cumsum([x.size for x in like])[:-1]
    return Couplings(
        *(
            part.reshape(x.shape) * sd
            for part, x, sd in zip(np.split(vector, ends), like, scales, strict=True)
        )
    )


def ascend(
    couplings: Couplings, gradient: Gradient, history: History, *, rate: float, momentum: float
) -> tuple[Couplings, History]:
    """Plain gradient ascent with momentum."""
    slope = np.concatenate([gradient.J.ravel(), gradient.K.ravel(), gradient.L.ravel()])
    velocity = momentum * history.velocity + rate * slope
    new = unflatten(flatten(couplings, UNIT) + velocity, couplings, UNIT)
    return new, history._replace(velocity=velocity)


def accelerate(
    couplings: Couplings, step: Couplings, history: History, scales: BondScales, *, patience: int
) -> tuple[Couplings, History]:
    """The scaled step, extended by Anderson acceleration over the last iterations once steps have shrunk for
    long enough.
    """
    x = flatten(couplings, scales)
    f = flatten(step, scales)
    points, steps = history.points, history.steps
    size = float(np.linalg.norm(f))
    shrinking = history.shrinking + 1 if size < history.size else 0
    if size > GROWTH_THAT_DROPS_HISTORY * history.size or shrinking < patience:
        points, steps, *_ = forgotten(history)
    points = np.vstack([points, x])[-MEMORY - 1 :]
    steps = np.vstack([steps, f])[-MEMORY - 1 :]
    move = f
    if len(steps) > 1:
        dx = np.diff(points, axis=0)
        df = np.diff(steps, axis=0)
        normal = df @ df.T
        normal[np.diag_indices(len(df))] += REGULARISATION * np.trace(normal) + np.finfo(float).tiny
        gamma = np.linalg.solve(normal, df @ f)
        most = MOST_STEPS * np.abs(f) + MOST_BEYOND
        move = np.clip(f - gamma @ (dx + df), -most, most)
    new = within_reach(couplings, unflatten(move, couplings, scales), scales)
    return new, History(points, steps, size, shrinking, history.velocity)


def within_reach(couplings: Couplings, move: Couplings, scales: BondScales) -> Couplings:
    """The couplings after the move, each block's cut to its reach."""
    blocks = []
    for x, dx, sd in zip(couplings, move, scales, strict=True):
        size = np.sqrt(np.mean(dx**2))
        reach = max(np.sqrt(np.mean(x**2)), sd)
        blocks.append(x + dx * min(1.0, reach / size) if size > 0 else x + dx)
    return Couplings(*blocks)
