"""The measure of a sampling learner's steps: the complete-data information, row by row.

A step is the gradient divided by the information that complete data would hold, of row i of (J, K)

    A_i = ⟨ (1 - tanh² f_i) x xᵀ ⟩,  x = (s, σ)            of row a of L: ⟨ (1 - tanh² b_a) s⁻ s⁻ᵀ ⟩

It is at least the information that the visible spins hold, so that full steps do not overshoot once couplings are
near. With the weights 1 - tanh² replaced by their mean, as the scale-free step of `steps` has it, they do: where
strong bonds meet, spins are free only while their fields cancel, and A_i has directions with many times the mean of
the weights and directions with next to nothing. Far from the end weights say little of where steps lead; there the
mean of a weight and its bound, 1, stands for all of them.

Averages are those of the chains over the first slices of a recording, and a metric is kept for many iterations: it
must be roughly right, not exact.
"""

from typing import NamedTuple

import numpy as np

from kising.estimators.block import fields
from kising.estimators.gibbs import Chains
from kising.estimators.inference import Gradient
from kising.estimators.parallel import one_blas_thread
from kising.learning.steps import RIDGE
from kising.model import Array, Couplings, Spins

SLICES = 4096
# A metric of rows is made from this iteration on, and a new one whenever their number is a power of four.
FIRST_OF_ROWS = 16
# A step is divided by so much of A_i, and so much of what A_i were with the mean of its weights. More than half of A_i
# keeps steps from overshooting; the rest keeps noise from running along directions that it hardly holds.
SHARE_OF_OWN = 0.6
SHARE_OF_AVERAGE = 0.6
LEAST_FREEDOM = 1e-2
# Numbers that a metric of rows may have; of a larger network it is made of averages.
MOST_NUMBERS = 30_000_000


class Metric(NamedTuple):
    """Inverses of the information a slice holds."""

    JK: Array
    """(Nv, Nv+Nh, Nv+Nh), or one matrix for all rows"""
    L: Array
    """(Nh, Nv, Nv), or one matrix"""
    weight_JK: Array
    """what a row's matrix is divided by, (Nv,)"""
    weight_L: Array
    """(Nh,)"""


class Anchor(NamedTuple):
    """What a metric is made of; it is what a saved state holds in its place."""

    couplings: Couplings
    chains: Chains
    """of the first slices"""
    rows: bool
    """whether rows have matrices of their own"""


def is_due(iteration: int) -> bool:
    """Whether a new metric is made at this iteration: at 0, 1, 4, 16, 64, ..."""
    return iteration == 0 or (iteration.bit_count() == 1 and iteration.bit_length() % 2 == 1)


def anchored(couplings: Couplings, chains: Chains, iteration: int) -> Anchor:
    """What the metric of this iteration is made of."""
    nv, nh = couplings.K.shape
    fits = nv * (nv + nh) ** 2 + nh * nv**2 <= MOST_NUMBERS
    return Anchor(couplings, chains[:SLICES].copy(), fits and iteration >= FIRST_OF_ROWS)


def metric_of(anchor: Anchor, visible: Spins) -> Metric:
    """The metric; a function of the anchor and the recording alone."""
    sigma = anchor.chains.astype(np.float64)
    with one_blas_thread():
        block = fields(anchor.couplings, visible, slice(0, len(sigma)))
        m = np.tanh(block.theta + sigma @ anchor.couplings.K.T)
        x = np.hstack([block.now, sigma])
        JK, weight_JK = _inverses(x, 1.0 - m**2, rows=anchor.rows)
        L, weight_L = _inverses(block.before, 1.0 - np.tanh(block.b) ** 2, rows=anchor.rows)
    return Metric(JK, L, weight_JK, weight_L)


def _inverses(x: Array, freedom: Array, *, rows: bool) -> tuple[Array, Array]:
    n, size = x.shape
    C = x.T @ x / n
    ridge = RIDGE * np.eye(size)
    mean = freedom.mean(axis=0)
    if not rows:
        return np.linalg.inv(C + ridge)[None], 0.5 + 0.5 * mean
    found = np.empty((len(mean), size, size))
    for i, w in enumerate(mean):
        own = (x.T * freedom[:, i]) @ x / n
        least = SHARE_OF_AVERAGE * max(w, LEAST_FREEDOM)
        found[i] = np.linalg.inv(SHARE_OF_OWN * own + least * C + ridge)
    return found, np.ones(len(mean))


def metric_step(metric: Metric, gradient: Gradient) -> Couplings:
    """The gradient, divided by the information row by row."""
    nv = gradient.J.shape[0]
    JK = _divided(np.hstack([gradient.J, gradient.K]), metric.JK, metric.weight_JK)
    return Couplings(JK[:, :nv], JK[:, nv:], _divided(gradient.L, metric.L, metric.weight_L))


def _divided(rows: Array, inverses: Array, weights: Array) -> Array:
    solved: Array = np.einsum("kij,kj->ki", np.broadcast_to(inverses, (len(rows), *inverses.shape[1:])), rows)
    return solved / weights[:, None]


def complete_errors(metric: Metric, n_slices: int) -> Couplings:
    """The standard errors that couplings would have if the hidden spins were seen, as far as the metric knows: a tenth
    too small for the usual coupling.
    """
    nv = metric.L.shape[1]
    JK = _errors(metric.JK, metric.weight_JK, n_slices)
    return Couplings(JK[:, :nv], JK[:, nv:], _errors(metric.L, metric.weight_L, n_slices))


def _errors(inverses: Array, weights: Array, n_slices: int) -> Array:
    errors: Array = np.sqrt(np.diagonal(inverses, axis1=1, axis2=2) / (weights[:, None] * n_slices))
    return errors
