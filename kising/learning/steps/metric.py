"""Steps measured by each row's own information (docs/maths.md, "Learning").

A step is the gradient divided by the information that complete data would hold, for row i of (J, K)

    A_i = ⟨ (1 - tanh² f_i) x xᵀ ⟩,  x = (s, σ)            for row a of L: ⟨ (1 - tanh² b_a) s⁻ s⁻ᵀ ⟩

It is at least the information that the visible spins hold, so that full steps do not overshoot once couplings are
near. With the weights 1 - tanh² replaced by their mean, as in `scaled`, they do: where strong bonds meet, spins are
free only while their fields cancel, and A_i has directions with many times the mean weight and directions with next to
none. Along the latter, a step that is divided by the mean is tiny wherever the maximum lies: learning seems to have
converged on a plateau, hundreds of nats below it.

The standard errors that couplings would have if the hidden spins were observed come from A_i itself: those of a row
that is hardly ever free are large, however short its steps are kept.

Averages are those of the first slices of a recording, over the chains of a sampler, or over one hidden state per slice
that is drawn from the marginals of the E-step. A metric is kept for many iterations: it must be roughly right, not
exact.

Learning with exact averages takes its first step as `scaled` does, and no coupling moves by more than its bond scale
at once. Far from the end, the weights say little about where the steps of a sampler lead; there the mean of a weight
and its bound, 1, stands for all of them.

Approximate averages are measured by the same mixture as noisy ones, where biases or weights of inputs are learned: the
bias of a spin that is often driven hard has many times the mean weight, and steps divided by the mean overshoot and
oscillate. The gradient of approximate averages is not that of a likelihood. Divided by next to nothing, its error would
throw couplings far out; the mixture does not let that happen. Without fields the mean is good enough, and cheaper.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from kising.estimators.chunks import fields
from kising.estimators.estep import EStep
from kising.estimators.gibbs.chains import Chains
from kising.estimators.gradient import Gradient
from kising.estimators.moments import marginals
from kising.estimators.parallel import one_blas_thread
from kising.estimators.paths.sampled import sample_states
from kising.estimators.slices import Slices
from kising.estimators.steps import Steps
from kising.learning.effort import LARGEST_METRIC
from kising.learning.layout import Rows, from_rows, rows_of, slopes
from kising.learning.state import Anchor, EMState, History, Mixture, Problem
from kising.learning.steps.prior import Prior
from kising.learning.steps.scaled import RIDGE, ScaledStep
from kising.model import Array, BondScales, Couplings, Spins
from kising.options import Learner
from kising.seeds import random_stream

T = TypeVar("T")

SLICES = 4096
# A sampler's metric has a matrix per row from this iteration on.
FIRST_OF_ROWS = 16
LEAST_FREEDOM = 1e-2
# More than half of A_i keeps steps from overshooting; the rest keeps noise from running along directions of which A_i
# has hardly any.
NOISY = Mixture(0.6, 0.6)
# Without noise, just enough of the average that no direction is divided by zero.
SMOOTH = Mixture(1.0, 0.05)


class Metric(NamedTuple):
    """Inverses of the information per slice."""

    matrices: Rows
    """one matrix per row, (Nv, Nv+Nh, Nv+Nh) and (Nh, Nv, Nv), with M (Nh, Nv+Nh, Nv+Nh), or one for all rows"""
    weights: Rows
    """what a row's step is divided by besides, (Nv,) and (Nh,)"""
    variances: Rows
    """of every coupling, times the number of slices, if the hidden spins were observed: the diagonals of A_i⁻¹, with
    the precision of the prior in A_i, (Nv, Nv+Nh) and (Nh, Nv), with M (Nh, Nv+Nh)"""


@dataclass
class LastAnchor(Generic[T]):
    """What was made of the last anchor: it takes long to make, and a state does not save it."""

    anchor: Anchor | None = None
    made: T | None = None

    def of(self, anchor: Anchor, make: Callable[[Anchor], T]) -> T:
        """What is made of an anchor; made again only if the anchor has changed."""
        if self.made is None or self.anchor is not anchor:
            self.anchor, self.made = anchor, make(anchor)
        return self.made


@dataclass(frozen=True)
class MetricStep(ScaledStep):
    """Steps divided by each row's own information, accelerated."""

    metrics: LastAnchor[Metric] = field(default_factory=LastAnchor)

    @classmethod
    def applies(cls, learner: Learner, estep: EStep, problem: Problem) -> bool:
        """Where averages are exact or fields are learned, and the network is not too large."""
        return (estep.estimator.unbiased or has_fields(problem)) and fits(problem.n_visible, problem.hidden)

    def observe(self, state: EMState, *, threads: int) -> tuple[EMState, Gradient]:
        """The E-step; at some iterations, the metric is recomputed."""
        state, gradient = super().observe(state, threads=threads)
        return anchored(state, self.problem, self.estep), gradient

    def direction(self, state: EMState, gradient: Gradient) -> Couplings:
        """The gradient over the information of every row, once that is known."""
        if state.anchor is None:
            return super().direction(state, gradient)
        metric = self.metrics.of(state.anchor, lambda x: metric_of(x, self.problem.slices, self.prior))
        return bounded(metric_step(metric, gradient), self.problem.scales)

    def comparable_history(self, state: EMState, direction: Couplings) -> History:
        """None where the metric is new: earlier steps were measured by another."""
        history = super().comparable_history(state, direction)
        return history.without_steps() if is_due(state.iteration, noisy=False) else history


def has_fields(problem: Problem) -> bool:
    """Whether biases or weights of inputs are learned."""
    return problem.bias or problem.slices.n_inputs > 0


def anchored(state: EMState, problem: Problem, estep: EStep) -> EMState:
    """The state, with the metric recomputed where it is due."""
    if not is_due(state.iteration, noisy=False):
        return state
    return replace(
        state, anchor=_anchor(state.couplings, problem.slices.first(SLICES), state.iteration, estep)
    )


def _anchor(couplings: Couplings, beginning: Slices, iteration: int, estep: EStep) -> Anchor:
    """The anchor of averages that are not sampled."""
    if beginning.has_gaps:
        return Anchor(couplings, sample_states(couplings, beginning, seed=iteration), True, SMOOTH)
    if couplings.couples_slices:
        code = estep.estimator.path_code(gaps=False)
        return Anchor(couplings, code.sample(couplings, beginning, 1, seed=iteration)[0], True, SMOOTH)
    mixture = SMOOTH if estep.estimator.unbiased else NOISY
    return of_marginals(couplings, marginals(couplings, beginning, estep), iteration, mixture)


def is_due(iteration: int, *, noisy: bool) -> bool:
    """Whether a new metric is made at this iteration: for a sampler at 0, 1, 4, 16, ..., else at 1, 2, 4, 8, ..."""
    if iteration == 0:
        return noisy
    return iteration.bit_count() == 1 and (iteration.bit_length() % 2 == 1 or not noisy)


def of_chains(couplings: Couplings, chains: Chains, iteration: int) -> Anchor:
    """The anchor of a sampler's metric."""
    rows = fits(*couplings.K.shape) and iteration >= FIRST_OF_ROWS
    return Anchor(couplings, chains[:SLICES].copy(), rows, NOISY)


def of_marginals(couplings: Couplings, mu: Array, iteration: int, mixture: Mixture = SMOOTH) -> Anchor:
    """The anchor where ⟨σ⟩ of the first slices is known: one hidden state per slice is drawn from it."""
    # The draws are a way to take an average, the same for every run; what is learned does not depend on them.
    chance = random_stream(iteration).random(mu.shape)
    return Anchor(couplings, np.where(chance < 0.5 + 0.5 * mu, 1, -1).astype(np.int8), True, mixture)


def fits(visible: int, hidden: int) -> bool:
    """Whether a network is small enough for a matrix per row."""
    return visible * (visible + hidden) ** 2 + hidden * visible**2 <= LARGEST_METRIC


def metric_of(anchor: Anchor, recording: Slices | Spins, prior: Prior | None = None) -> Metric:
    """The metric: a function of the anchor, the recording and the prior alone."""
    found = information_of(anchor, recording, prior)
    with one_blas_thread():
        inverses = (np.asarray(np.linalg.inv(x), dtype=np.float64) for x in found.matrices)
        return found._replace(matrices=Rows(*inverses))


def information_of(anchor: Anchor, recording: Slices | Spins, prior: Prior | None = None) -> Metric:
    """The metric, but with the matrices that steps are divided by instead of their inverses: information, and the
    precision of the prior.
    """
    inputs_of = _step_inputs if anchor.of_steps else _slice_inputs
    with one_blas_thread():
        inputs, freedom = inputs_of(anchor.couplings, recording, anchor.chains)
        means = Rows(*(x.mean(axis=0) for x in freedom))
        precision = (
            Rows(*(np.zeros((len(w), x.shape[1])) for x, w in zip(inputs, means, strict=True)))
            if prior is None
            else prior.precision(anchor.couplings, means)
        )
        kinds = zip(inputs, freedom, precision, strict=True)
        found = [_of_rows(*kind, anchor.mixture) if anchor.rows else _of_average(*kind) for kind in kinds]
    return Metric(*(Rows(*x) for x in zip(*found, strict=True)))


def _slice_inputs(couplings: Couplings, recording: Slices | Spins, states: Spins) -> tuple[Rows, Rows]:
    """The inputs x of the spins of the first slices, and 1 - tanh² of the fields on them, given the hidden spins."""
    sigma = states.astype(np.float64)
    chunk = fields(couplings, recording, slice(0, len(sigma)))
    m = np.tanh(chunk.theta + sigma @ couplings.K.T)
    inputs = Rows(np.hstack([chunk.known_now, sigma]), chunk.known_before)
    return inputs, Rows(1.0 - m**2, 1.0 - np.tanh(chunk.b) ** 2)


def _step_inputs(couplings: Couplings, recording: Slices | Spins, states: Spins) -> tuple[Rows, Rows]:
    """The same for the first steps, given the states of the hidden spins or, where entries are missing, of all."""
    steps = Steps.of(recording)
    found, sigma = steps.first(couplings, states)
    inner = ~steps.ends[: len(states)]
    x = np.hstack([found.known, sigma])
    m = np.tanh(found.theta + sigma @ couplings.K.T)
    felt, drive = (x, found.drive + sigma @ couplings.M.T) if couplings.M.size else (found.known, found.drive)
    return Rows(x, felt[inner]), Rows(1.0 - m**2, 1.0 - np.tanh(drive)[inner] ** 2)


def _of_average(x: Array, freedom: Array, precision: Array) -> tuple[Array, Array, Array]:
    """One matrix for all rows, the weights of rows, and their variances."""
    mean = freedom.mean(axis=0)
    weights, likely = 0.5 + 0.5 * mean, np.maximum(mean, LEAST_FREEDOM)
    if not len(mean):
        return np.empty((0, x.shape[1], x.shape[1])), weights, precision
    C = x.T @ x / len(x) + RIDGE * np.eye(x.shape[1])

    def with_prior(by: Array) -> Array:
        matrix: Array = C + np.diag(np.mean(precision / by[:, None], axis=0))
        return matrix

    variances = np.diagonal(np.linalg.inv(with_prior(likely))) / likely[:, None]
    return with_prior(weights)[None], weights, variances


def _of_rows(x: Array, freedom: Array, precision: Array, mixture: Mixture) -> tuple[Array, Array, Array]:
    """A matrix for every row, the weights of rows, and their variances."""
    n, size = x.shape
    C, mean = x.T @ x / n, freedom.mean(axis=0)
    matrices, variances = np.empty((len(mean), size, size)), np.empty((len(mean), size))
    for i, w in enumerate(mean):
        own = (x.T * freedom[:, i]) @ x / n
        added = np.diag(precision[i] + RIDGE)
        matrices[i] = mixture.own * own + mixture.average * max(w, LEAST_FREEDOM) * C + added
        variances[i] = np.diagonal(np.linalg.inv(own + added))
    return matrices, np.ones(len(mean)), variances


def metric_step(metric: Metric, gradient: Gradient) -> Couplings:
    """The gradient, divided by the information row by row."""
    slope = slopes(gradient)
    return from_rows(Rows(*map(_divided, rows_of(slope), metric.matrices, metric.weights)), slope)


def _divided(rows: Array, inverses: Array, weights: Array) -> Array:
    if not rows.size:
        return rows
    solved: Array = np.einsum("kij,kj->ki", np.broadcast_to(inverses, (len(rows), *inverses.shape[1:])), rows)
    return solved / weights[:, None]


def bounded(step: Couplings, scales: BondScales) -> Couplings:
    """The step with no coupling moving by more than its bond scale."""
    return Couplings(*(np.clip(dx, -sd, sd) for dx, sd in zip(step, scales, strict=True)))


def complete_errors(metric: Metric, n_slices: int, like: Couplings) -> Couplings:
    """The standard errors that couplings would have if the hidden spins were observed."""
    return from_rows(Rows(*(np.sqrt(x / n_slices) for x in metric.variances)), like)
