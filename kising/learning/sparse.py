"""Steps towards couplings of which many are zero, both on the quadratic model that `steps.scaled_step` climbs:
of a row x of (J, K), or of L, with gradient G at the present row x₀,

    q(x) = ½ f (x - x₀)ᵀ C (x - x₀) - G·(x - x₀),    f its freedom (mean of 1 - m_i²), C the information it shares

`l1`        the row that minimises q(x) + Σ_j λ_j |x_j|. λ_j = l1 √(f C_jj / slices): l1 is a threshold in standard
            errors that the coupling would have alone and with the hidden spins seen, the same for any length.
`decimate`  a block keeps the known number of couplings, those largest in size after a whole scale-free step; the others
            are zero, and every row minimises q over what it keeps. A coupling that was dropped can come back.

Where such a step vanishes is what was asked for: with l1, G = λ sign(x) where x is not zero and |G| ≤ λ where it
is; decimated, G = 0 for all that is kept. Nothing is remembered between iterations but the couplings.
"""

from collections.abc import Callable

import numpy as np

from kising.estimators.inference import Gradient
from kising.kernels.jit import kernel
from kising.learning.scores import BlockShares
from kising.learning.steps import (
    RIDGE,
    SMALLEST_FREEDOM,
    History,
    SpinProducts,
    complete_information,
    forgotten,
    scaled_step,
)
from kising.model import Array, Couplings

# Of coordinate descent. It starts at the present couplings, so that a pass too few makes a step shorter, not wrong.
PASSES = 100
SMALLEST_CHANGE = 1e-10
# Iterations until as few couplings are kept as asked for: the first steps say little about which these are.
NARROWING = 20


def penalties(gradient: Gradient, products: SpinProducts, n_slices: int, l1: float) -> Couplings:
    """λ of every coupling, in units of the gradient of the mean log-likelihood."""
    nv = products.now.shape[0]
    JK = _row_penalties(complete_information(gradient, products), gradient.freedom_visible, n_slices, l1)
    L = _row_penalties(products.before, gradient.freedom_hidden, n_slices, l1)
    return Couplings(JK[:, :nv], JK[:, nv:], L)


def _row_penalties(C: Array, freedom: Array, n_slices: int, l1: float) -> Array:
    information = _at_least(freedom)[:, None] * np.diag(C)[None, :]
    result: Array = l1 * np.sqrt(information / n_slices)
    return result


def penalised_step(
    couplings: Couplings, gradient: Gradient, products: SpinProducts, penalty: Couplings
) -> Couplings:
    """From the couplings to the minimum of q + Σ λ |x|, row by row."""
    return _by_rows(_descend_rows, couplings, gradient, products, penalty)


def _by_rows(
    step_of: Callable[[Array, Array, Array, Array, Array], Array],
    couplings: Couplings,
    gradient: Gradient,
    products: SpinProducts,
    what: Couplings,
) -> Couplings:
    """The step of the rows of (J, K), and of those of L: each from rows, slopes, C, freedom and what it goes by."""
    nv = products.now.shape[0]
    JK = step_of(
        np.hstack([couplings.J, couplings.K]),
        np.hstack([gradient.J, gradient.K]),
        complete_information(gradient, products),
        gradient.freedom_visible,
        np.hstack([what.J, what.K]),
    )
    L = step_of(couplings.L, gradient.L, products.before, gradient.freedom_hidden, what.L)
    return Couplings(JK[:, :nv], JK[:, nv:], L)


def _descend_rows(rows: Array, slopes: Array, C: Array, freedom: Array, penalty: Array) -> Array:
    ridged = C + RIDGE * np.eye(len(C))
    landed = descend(rows, slopes, ridged, _at_least(freedom), penalty, PASSES, SMALLEST_CHANGE)
    return landed - rows


@kernel
def descend(
    x0: Array, G: Array, C: Array, f: Array, penalty: Array, passes: int, smallest_change: float
) -> Array:
    """The rows that minimise q + Σ λ |x|, by coordinate descent from x0: one coordinate at a time is set to where the
    others want it, less the threshold.
    """
    rows, n = x0.shape
    result = x0.copy()
    residual = np.empty(n)
    for i in range(rows):
        x = result[i]
        # What is left of the slope at x: G - f C (x - x0).
        residual[:] = G[i]
        for _ in range(passes):
            largest = 0.0
            for j in range(n):
                curvature = f[i] * C[j, j]
                whole = curvature * x[j] + residual[j]
                cut = abs(whole) - penalty[i, j]
                new = np.copysign(cut, whole) / curvature if cut > 0.0 else 0.0
                change = new - x[j]
                if change != 0.0:
                    x[j] = new
                    for k in range(n):
                        residual[k] -= f[i] * C[k, j] * change
                    largest = max(largest, abs(change))
            if largest < smallest_change:
                break
    return result


def soft_threshold(couplings: Couplings, penalty: Couplings, rate: float) -> Couplings:
    """Every coupling nearer to zero by rate λ, and no further: what follows a step of gradient ascent."""
    return Couplings(
        *(
            np.sign(x) * np.maximum(np.abs(x) - rate * cost, 0.0)
            for x, cost in zip(couplings, penalty, strict=True)
        )
    )


def share_kept(fractions: BlockShares, iteration: int) -> BlockShares:
    """The share of each block's couplings that is kept at an iteration: 1 at the first, falling to its fraction."""
    return BlockShares(*(fraction ** (min(iteration, NARROWING) / NARROWING) for fraction in fractions))


def decimated_step(
    couplings: Couplings, gradient: Gradient, products: SpinProducts, shares: BlockShares
) -> Couplings:
    """From the couplings to the minimum of q over the share of every block that is kept, the others at zero."""
    whole = scaled_step(gradient, products)
    kept = Couplings(
        *(_largest(x + dx, share) for x, dx, share in zip(couplings, whole, shares, strict=True))
    )
    return _by_rows(_restricted_rows, couplings, gradient, products, kept)


def _largest(block: Array, share: float) -> Array:
    """Where the largest of a block are, as many as its share says."""
    order = np.argsort(-np.abs(block), axis=None, kind="stable")
    chosen = np.zeros(block.size, dtype=bool)
    chosen[order[: round(share * block.size)]] = True
    return chosen.reshape(block.shape)


def _restricted_rows(rows: Array, slopes: Array, C: Array, freedom: Array, kept: Array) -> Array:
    ridged = C + RIDGE * np.eye(len(C))
    steps: Array = -rows
    for step, slope, f, own in zip(steps, slopes, _at_least(freedom), kept, strict=True):
        if own.any():
            # What is dropped moves too, and takes along what depends on it.
            pull = slope[own] / f - ridged[np.ix_(own, ~own)] @ step[~own]
            step[own] = np.linalg.solve(ridged[np.ix_(own, own)], pull)
    return steps


def narrowed(couplings: Couplings, step: Couplings, history: History) -> History:
    """The history to accelerate with: none where the step drops couplings or takes some back, for it is of others."""
    same = all(np.array_equal(x == 0, x + dx == 0) for x, dx in zip(couplings, step, strict=True))
    return history if same else forgotten(history)


def with_zeros(moved: Couplings, couplings: Couplings, step: Couplings) -> Couplings:
    """The couplings after an accelerated move, at zero wherever the step alone leads there."""
    return Couplings(
        *(np.where(x + dx == 0, 0.0, new) for new, x, dx in zip(moved, couplings, step, strict=True))
    )


def _at_least(freedom: Array) -> Array:
    floored: Array = np.maximum(freedom, SMALLEST_FREEDOM)
    return floored
