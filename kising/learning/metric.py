"""The measure of a learner's steps: the complete-data information, row by row.

A step is the gradient divided by the information that complete data would hold, of row i of (J, K)

    A_i = ⟨ (1 - tanh² f_i) x xᵀ ⟩,  x = (s, σ)            of row a of L: ⟨ (1 - tanh² b_a) s⁻ s⁻ᵀ ⟩

It is at least the information that the visible spins hold, so that full steps do not overshoot once couplings are
near. With the weights 1 - tanh² replaced by their mean, as the scale-free step of `steps` has it, they do: where
strong bonds meet, spins are free only while their fields cancel, and A_i has directions with many times the mean of
the weights and directions with next to nothing. Along the latter a step that is divided by the mean is next to
nothing too, wherever the maximum lies: learning seems to have converged on a plateau, hundreds of nats below it.

Far from the end weights say little of where the steps of a sampler lead; there the mean of a weight and its bound, 1,
stands for all of them. Learning with exact averages takes its first step as `steps` has it, and no coupling moves by
more than its bond scale at once.

Averages are those of the first slices of a recording, over the chains of a sampler, or over one hidden state a slice
that is drawn from the marginals of the E-step. A metric is kept for many iterations: it must be roughly right, not
exact.
"""

from typing import NamedTuple

import numpy as np

from kising.estimators.chunks import fields
from kising.estimators.gibbs.chains import Chains
from kising.estimators.inference import Gradient
from kising.estimators.parallel import one_blas_thread
from kising.learning.steps import RIDGE
from kising.model import Array, BondScales, Couplings, Spins
from kising.seeds import random_stream

SLICES = 4096
# A sampler's metric is one of rows from this iteration on, and made anew whenever their number is a power of four.
FIRST_OF_ROWS = 16
LEAST_FREEDOM = 1e-2
# Numbers that a metric of rows may have; of a larger network it is made of averages.
MOST_NUMBERS = 30_000_000


class Shares(NamedTuple):
    """What a step is divided by: so much of A_i, and so much of what A_i were with the mean of its weights."""

    own: float
    average: float


# More than half of A_i keeps steps from overshooting; the rest keeps noise from running along directions that A_i
# hardly holds.
NOISY = Shares(0.6, 0.6)
# Without noise, just enough of the average that no direction is divided by nothing.
SMOOTH = Shares(1.0, 0.05)


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
    shares: Shares


def is_due(iteration: int, *, noisy: bool) -> bool:
    """Whether a new metric is made at this iteration: of a sampler at 0, 1, 4, 16, 64, ..., else at 1, 2, 4, 8, ..."""
    if iteration == 0:
        return noisy
    return iteration.bit_count() == 1 and (iteration.bit_length() % 2 == 1 or not noisy)


def of_chains(couplings: Couplings, chains: Chains, iteration: int) -> Anchor:
    """What a sampler's metric of this iteration is made of."""
    rows = fits(couplings) and iteration >= FIRST_OF_ROWS
    return Anchor(couplings, chains[:SLICES].copy(), rows, NOISY)


def of_marginals(couplings: Couplings, mu: Array, iteration: int) -> Anchor:
    """What a metric is made of where ⟨σ⟩ of the first slices is known: one hidden state each is drawn from them."""
    # The draws are a way to take an average, the same for every run; what is learned does not depend on them.
    chance = random_stream(iteration).random(mu.shape)
    return Anchor(couplings, np.where(chance < 0.5 + 0.5 * mu, 1, -1).astype(np.int8), True, SMOOTH)


def fits(couplings: Couplings) -> bool:
    """Whether a network is small enough for a metric of rows."""
    nv, nh = couplings.K.shape
    return bool(nv * (nv + nh) ** 2 + nh * nv**2 <= MOST_NUMBERS)


def metric_of(anchor: Anchor, visible: Spins) -> Metric:
    """The metric; a function of the anchor and the recording alone."""
    sigma = anchor.chains.astype(np.float64)
    with one_blas_thread():
        chunk = fields(anchor.couplings, visible, slice(0, len(sigma)))
        m = np.tanh(chunk.theta + sigma @ anchor.couplings.K.T)
        x = np.hstack([chunk.now, sigma])
        JK, weight_JK = _inverses(x, 1.0 - m**2, anchor)
        L, weight_L = _inverses(chunk.before, 1.0 - np.tanh(chunk.b) ** 2, anchor)
    return Metric(JK, L, weight_JK, weight_L)


def _inverses(x: Array, freedom: Array, anchor: Anchor) -> tuple[Array, Array]:
    n, size = x.shape
    C = x.T @ x / n
    ridge = RIDGE * np.eye(size)
    mean = freedom.mean(axis=0)
    if not anchor.rows:
        return np.linalg.inv(C + ridge)[None], 0.5 + 0.5 * mean
    found = np.empty((len(mean), size, size))
    for i, w in enumerate(mean):
        own = (x.T * freedom[:, i]) @ x / n
        least = anchor.shares.average * max(w, LEAST_FREEDOM)
        found[i] = np.linalg.inv(anchor.shares.own * own + least * C + ridge)
    return found, np.ones(len(mean))


def metric_step(metric: Metric, gradient: Gradient) -> Couplings:
    """The gradient, divided by the information row by row."""
    nv = gradient.J.shape[0]
    JK = _divided(np.hstack([gradient.J, gradient.K]), metric.JK, metric.weight_JK)
    return Couplings(JK[:, :nv], JK[:, nv:], _divided(gradient.L, metric.L, metric.weight_L))


def bounded(step: Couplings, scales: BondScales) -> Couplings:
    """The step with no coupling moving by more than its bond scale."""
    return Couplings(*(np.clip(dx, -sd, sd) for dx, sd in zip(step, scales, strict=True)))


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
