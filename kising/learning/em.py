"""The EM loop: a pure function from one state to the next, and everything that decides when it ends.

The verdict, in one place. At each iteration the scale-free step (as in `steps.scaled_step`; of estimators exact and
gibbs as in `metric`) is computed, whichever step is taken: it is the distance that EM would go next, so that it does
not depend on a learning rate; with `l1` or `decimate`, it is the step of `sparse`. It climbs the likelihood, or, with
`prior`, the likelihood times the prior (`steps.pulled`). Block X of J, K, L

    has converged    when √(mean ΔX²)/sd_X has stayed below `tolerance` for `hold` iterations in a row
    has diverged     when its root mean square has passed 20 bond scales (of the ensemble, or of a dense
                     network of strength 1 where that is larger), or when anything in it is not finite

Learning ends `converged` when all three blocks have converged, `diverged` when any has diverged, `stalled` at
`max_iterations`. A run that did not end `converged` keeps a flag for each block: J may have settled while K
and L have not. With estimator `gibbs` steps never vanish, and a block has converged by the rule of `sampled`.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from kising.errors import InputError
from kising.estimators.inference import EStep, Gradient, checked_gradient, marginals, sampled_gradient
from kising.learning.metric import (
    SLICES,
    Anchor,
    Metric,
    bounded,
    complete_errors,
    fits,
    is_due,
    metric_of,
    metric_step,
    of_chains,
    of_marginals,
)
from kising.learning.sampled import (
    Sampler,
    arrive,
    begin_sampling,
    gain,
    mean,
    monte_carlo_error,
)
from kising.learning.scores import BLOCKS, BlockShares, align, nominal_scales, rmse
from kising.learning.sparse import (
    NARROWING,
    decimated_step,
    narrowed,
    penalised_step,
    penalties,
    share_kept,
    soft_threshold,
    with_zeros,
)
from kising.learning.steps import (
    STEPS,
    UNIT,
    History,
    SpinProducts,
    accelerate,
    ascend,
    blocks_of,
    flatten,
    forgotten,
    no_history,
    pulled,
    scaled_step,
    spin_products,
    unflatten,
    within_reach,
)
from kising.learning.trace_columns import TRACE_COLUMNS as TRACE_COLUMNS
from kising.model import Array, BondScales, Couplings, Spins
from kising.seeds import Seed

LARGEST_GROWTH = 20.0


@dataclass(frozen=True, kw_only=True)
class Learning:
    """How couplings are learned."""

    estep: EStep
    """how hidden spins are averaged over"""
    step: str = "scaled"
    """scaled | gradient"""
    rate: float = 0.1
    """of `gradient`: coupling change per unit of the mean log-likelihood's gradient"""
    momentum: float = 0.0
    """of `gradient`: share of the last move that is added to this one"""
    tolerance: float = 1e-4
    """the relative step below which a block counts as settled"""
    hold: int = 3
    """for how many iterations in a row"""
    max_iterations: int = 300
    """EM iterations after which learning ends unconverged"""
    patience: int = 0
    """of `scaled`: for how many iterations in a row the step must have shrunk before it is accelerated"""
    noise: float = 0.1
    """of estimator gibbs: the share of the statistical error below which the Monte-Carlo error counts as settled"""
    l1: float = 0.0
    """penalty on the size of every coupling, in standard errors (see `sparse`)"""
    prior: float | None = None
    """of `scaled`: how wide the Gaussian is that couplings are drawn from beforehand, in bond scales; None for any size
    alike
    """
    decimate: BlockShares | None = None
    """of `scaled`: the share of each block's couplings that may differ from zero; None for all"""

    @property
    def sparse(self) -> bool:
        """Whether couplings are driven to zero."""
        return self.l1 > 0 or self.decimate is not None

    def __post_init__(self) -> None:
        if self.step not in STEPS:
            raise InputError(f"step={self.step!r}: must be one of {', '.join(STEPS)}")
        if not self.rate > 0:
            raise InputError(f"rate={self.rate}: must be above 0")
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum={self.momentum}: must be at least 0 and below 1")
        if not self.tolerance > 0:
            raise InputError(f"tolerance={self.tolerance}: must be above 0")
        if not self.noise > 0:
            raise InputError(f"noise={self.noise}: must be above 0")
        if self.estep.estimator == "gibbs" and self.step != "scaled":
            raise InputError(f"step={self.step!r}: estimator 'gibbs' learns by step 'scaled' alone")
        if not 0 <= self.l1 < np.inf:
            raise InputError(f"l1={self.l1}: must be at least 0, and finite")
        if self.prior is not None and not 0 < self.prior < np.inf:
            raise InputError(f"prior={self.prior}: must be above 0 and finite, or None")
        if self.decimate is not None and not all(0 <= share <= 1 for share in self.decimate):
            raise InputError(f"decimate={self.decimate}: shares must be at least 0 and at most 1")
        if self.decimate is not None and self.step != "scaled":
            raise InputError(f"step={self.step!r}: decimate goes with step 'scaled' alone")
        if self.decimate is not None and self.l1 > 0:
            raise InputError(f"l1={self.l1}, decimate={self.decimate}: take one of the two")
        if self.sparse and self.estep.estimator == "gibbs":
            raise InputError("estimator 'gibbs' knows neither l1 nor decimate: take bp or exact")
        if self.hold < 1 or self.max_iterations < 1:
            raise InputError(
                f"hold={self.hold}, max_iterations={self.max_iterations}: both must be at least 1"
            )


class Problem(NamedTuple):
    """What is learned from, and what the result is measured by: fixed during learning."""

    visible: Spins
    products: SpinProducts
    scales: BondScales
    truth: Couplings | None
    aligned: bool
    """whether RMSE is taken after matching hidden units to the truth"""


@dataclass(frozen=True)
class EMState:
    """Learning after some iterations; continuing from it gives the same bits as never having stopped."""

    couplings: Couplings
    history: History
    held: tuple[int, ...]
    """for how many iterations in a row J, K, L have been settled"""
    trace: Array
    """a row an iteration, columns as in TRACE_COLUMNS"""
    outcome: str
    """running | converged | stalled | diverged"""
    sampler: Sampler | None = None
    """chains and averages of estimator gibbs"""
    anchor: Anchor | None = None
    """what steps are measured by, once there is such a thing, ..."""
    metric: Metric | None = None
    """... and made of it, unless the state was just read: the one part that is not saved"""

    @property
    def iteration(self) -> int:
        """How many iterations were made."""
        return len(self.trace)


def pose(visible: Spins, scales: BondScales, truth: Couplings | None, *, aligned: bool) -> Problem:
    """Prepare a recording for learning."""
    return Problem(visible, spin_products(visible), scales, truth, aligned)


def begin(couplings: Couplings, sampler: Sampler | None = None) -> EMState:
    """The state before the first iteration."""
    size = sum(x.size for x in couplings)
    trace = np.empty((0, len(TRACE_COLUMNS)))
    return EMState(couplings, no_history(size), (0, 0, 0), trace, "running", sampler)


def sampler_of(couplings: Couplings, problem: Problem, learning: Learning, *, seed: Seed) -> Sampler | None:
    """What to begin with where the estimator samples; None where it does not."""
    if learning.estep.estimator != "gibbs":
        return None
    n_couplings = sum(x.size for x in couplings)
    return begin_sampling(len(problem.visible) - 2, couplings.K.shape[1], n_couplings, seed)


def learned(state: EMState, problem: Problem) -> Couplings:
    """What learning has come to: the couplings, or, of a sampler that averages, their mean."""
    average = None if state.sampler is None else mean(state.sampler)
    return state.couplings if average is None else unflatten(average, state.couplings, problem.scales)


def noise_of(state: EMState, problem: Problem) -> Couplings | None:
    """The Monte-Carlo error of what a sampler has learned; None where there is none, or not yet."""
    error = None if state.sampler is None else monte_carlo_error(state.sampler, blocks_of(state.couplings))
    return None if error is None else unflatten(error, state.couplings, problem.scales)


def advance(state: EMState, problem: Problem, learning: Learning, *, threads: int = 1) -> EMState:
    """One EM iteration: E-step at the couplings of `state`, verdict, and, unless that ends it, the step to
    the next.
    """
    sampler = state.sampler
    if sampler is None:
        gradient = checked_gradient(state.couplings, problem.visible, learning.estep, threads=threads)
    else:
        gradient, chains = sampled_gradient(
            state.couplings,
            problem.visible,
            sampler.chains,
            key=sampler.key,
            iteration=state.iteration,
            threads=threads,
        )
        state = replace(state, sampler=sampler._replace(chains=chains))
    if _is_measured_anew(state, learning):
        state = replace(state, anchor=_anchor(state, problem, learning), metric=None)
    if state.anchor is not None and state.metric is None:
        state = replace(state, metric=metric_of(state.anchor, problem.visible))
    return move(state, gradient, problem, learning)


def _is_measured_anew(state: EMState, learning: Learning) -> bool:
    """Whether steps are measured by another metric from this iteration on."""
    noisy = state.sampler is not None
    return is_due(state.iteration, noisy=noisy) and (noisy or _has_metric(state.couplings, learning))


def _has_metric(couplings: Couplings, learning: Learning) -> bool:
    """Whether a learner without noise has a metric: not for sparse steps, not for a network too large for it, and not
    with approximate averages. Their gradient is not that of a likelihood, and what it is off by, divided by next to
    nothing, would throw couplings far out.
    """
    return learning.estep.estimator == "exact" and not learning.sparse and fits(couplings)


def _anchor(state: EMState, problem: Problem, learning: Learning) -> Anchor:
    if state.sampler is not None:
        return of_chains(state.couplings, state.sampler.chains, state.iteration)
    mu = marginals(state.couplings, problem.visible[: SLICES + 2], learning.estep)
    return of_marginals(state.couplings, mu, state.iteration)


def move(state: EMState, gradient: Gradient, problem: Problem, learning: Learning) -> EMState:
    """What of an iteration comes after the E-step."""
    couplings, anew = state.couplings, _is_measured_anew(state, learning)
    step = _step(state, gradient, problem, learning) if _finite(gradient) else None
    sizes = tuple(np.inf for _ in BLOCKS)
    if step is not None:
        sizes = tuple(
            float(np.sqrt(np.mean(dx**2)) / sd) for dx, sd in zip(step, problem.scales, strict=True)
        )
    noise = _noise_shares(state, problem)
    settled = [size < learning.tolerance for size in sizes]
    if state.sampler is not None:
        pairs = zip(noise, state.sampler.arrived, strict=True)
        settled = [share < learning.noise and arrived for share, arrived in pairs]
    if learning.decimate is not None and state.iteration < NARROWING:
        settled = [False for _ in BLOCKS]
    held = tuple(h + 1 if ok else 0 for h, ok in zip(state.held, settled, strict=True))
    row = _trace_row(state.iteration, learned(state, problem), sizes, noise, gradient, problem)
    state = replace(state, held=held, trace=np.vstack([state.trace, row]))
    if step is None or _runaway(couplings, problem.scales):
        return replace(state, held=(0, 0, 0), outcome="diverged")
    if min(held) >= learning.hold:
        return replace(state, outcome="converged")
    if state.iteration >= learning.max_iterations:
        return replace(state, outcome="stalled")
    if state.sampler is not None:
        return _wander(state, step, problem, longest_approach=max(1, learning.max_iterations // 2))
    if learning.step == "scaled":
        past = state.history
        if learning.decimate is not None:
            past = narrowed(couplings, step, past)
        elif anew:
            past = forgotten(past)  # steps of another metric
        moved, history = accelerate(couplings, step, past, problem.scales, patience=learning.patience)
        if learning.sparse:
            moved = with_zeros(moved, couplings, step)
    else:
        moved, history = ascend(
            couplings, gradient, state.history, rate=learning.rate, momentum=learning.momentum
        )
        if learning.l1 > 0:
            moved = soft_threshold(moved, _penalty(gradient, problem, learning), learning.rate)
            # Momentum of the whole move, so that it vanishes where the penalised likelihood is largest.
            history = history._replace(velocity=flatten(moved, UNIT) - flatten(couplings, UNIT))
    return replace(state, couplings=moved, history=history)


def _penalty(gradient: Gradient, problem: Problem, learning: Learning) -> Couplings:
    return penalties(gradient, problem.products, len(problem.visible) - 2, learning.l1)


def _step(state: EMState, gradient: Gradient, problem: Problem, learning: Learning) -> Couplings:
    """The scale-free step: that of the metric once there is one; penalised or decimated where that is asked for."""
    if learning.step == "scaled" and learning.prior is not None:
        n_slices = len(problem.visible) - 2
        gradient = pulled(gradient, state.couplings, problem.scales, n_slices, learning.prior)
    if state.metric is not None:
        step = metric_step(state.metric, gradient)
        return step if state.sampler is not None else bounded(step, problem.scales)
    if learning.l1 > 0:
        return penalised_step(
            state.couplings, gradient, problem.products, _penalty(gradient, problem, learning)
        )
    if learning.decimate is not None:
        shares = share_kept(learning.decimate, state.iteration)
        return decimated_step(state.couplings, gradient, problem.products, shares)
    return scaled_step(gradient, problem.products)


def _wander(state: EMState, step: Couplings, problem: Problem, *, longest_approach: int) -> EMState:
    """The step of a learner whose gradient is noisy."""
    sampler, metric = state.sampler, state.metric
    assert sampler is not None
    assert metric is not None
    share = gain(sampler)
    couplings = within_reach(state.couplings, Couplings(*(share * x for x in step)), problem.scales)
    sampler = arrive(
        sampler,
        flatten(couplings, problem.scales),
        blocks_of(couplings),
        flatten(complete_errors(metric, len(problem.visible) - 2), problem.scales),
        longest_approach=longest_approach,
    )
    return replace(state, couplings=couplings, sampler=sampler)


def _noise_shares(state: EMState, problem: Problem) -> tuple[float, ...]:
    """Of J, K, L: the Monte-Carlo error as a share of the statistical one, in the root mean square."""
    errors = noise_of(state, problem)
    if errors is None or state.metric is None:
        return tuple(np.nan for _ in BLOCKS)
    statistical = complete_errors(state.metric, len(problem.visible) - 2)
    return tuple(
        float(np.sqrt(np.mean((x / error) ** 2))) for x, error in zip(errors, statistical, strict=True)
    )


def _finite(gradient: Gradient) -> bool:
    return all(np.isfinite(x).all() for x in (gradient.J, gradient.K, gradient.L))


def _runaway(couplings: Couplings, scales: BondScales) -> bool:
    nominal = nominal_scales(*couplings.K.shape)
    return any(
        not np.sqrt(np.mean(x**2)) < LARGEST_GROWTH * max(sd, unit)
        for x, sd, unit in zip(couplings, scales, nominal, strict=True)
    )


def _trace_row(
    iteration: int,
    couplings: Couplings,
    sizes: tuple[float, ...],
    noise: tuple[float, ...],
    gradient: Gradient,
    problem: Problem,
) -> Array:
    errors = score(couplings, problem)
    return np.array(
        [
            iteration,
            *sizes,
            *(errors[x] if errors else np.nan for x in BLOCKS),
            gradient.converged,
            gradient.corrected,
            gradient.abs_m,
            gradient.abs_mu,
            gradient.abs_pair,
            gradient.log_likelihood,
            gradient.iterations,
            *noise,
        ]
    )


def score(couplings: Couplings, problem: Problem) -> dict[str, float] | None:
    """RMSE against the truth, after matching hidden units where the problem says so; None without a truth."""
    if problem.truth is None:
        return None
    if problem.aligned:
        couplings = align(couplings, problem.truth, problem.scales).apply(couplings)
    return rmse(couplings, problem.truth, problem.scales)
