"""The EM loop: a pure function from one state to the next, and everything that decides when it ends.

The verdict, in one place. At each iteration the scale-free step (`steps.scaled_step`) is computed, whichever
step is taken: it is the distance that EM would go next, so that it does not depend on a learning rate. Block
X of J, K, L

    has converged    when √(mean ΔX²)/sd_X has stayed below `tolerance` for `hold` iterations in a row
    has diverged     when its root mean square has passed 20 bond scales (of the ensemble, or of a dense
                     network of strength 1 where that is larger), or when anything in it is not finite

Learning ends `converged` when all three blocks have converged, `diverged` when any has diverged, `stalled` at
`max_iterations`. A run that did not end `converged` keeps a flag for each block: J may have settled while K
and L have not.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from kising.estimators.inference import EStep, Gradient, checked_gradient
from kising.learning.scores import BLOCKS, align, nominal_scales, rmse
from kising.learning.steps import (
    STEPS,
    History,
    SpinProducts,
    accelerate,
    ascend,
    no_history,
    scaled_step,
    spin_products,
)
from kising.model import Array, BondScales, Couplings, Spins

LARGEST_GROWTH = 20.0

TRACE_COLUMNS = (
    "iteration",
    *(f"step_{x}" for x in BLOCKS),  # √(mean ΔX²)/sd_X of the scale-free step
    *(f"rmse_{x}" for x in BLOCKS),  # NaN where there is no truth
    "bp_converged",  # fraction of slices whose E-step reached its tolerance
    "corrected",  # fraction of pair averages that were replaced
    "abs_m",
    "abs_mu",
    "abs_pair",  # means of |m_i|, |μ_b|, |⟨τ_i σ_b⟩|
    "log_likelihood",  # nats a slice
    "estep_iterations",  # mean over slices
)


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

    def __post_init__(self) -> None:
        if self.step not in STEPS:
            raise ValueError(f"step={self.step!r}: must be one of {', '.join(STEPS)}")
        if not self.rate > 0:
            raise ValueError(f"rate={self.rate}: must be above 0")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum={self.momentum}: must be at least 0 and below 1")
        if not self.tolerance > 0:
            raise ValueError(f"tolerance={self.tolerance}: must be above 0")
        if self.hold < 1 or self.max_iterations < 1:
            raise ValueError(
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

    @property
    def iteration(self) -> int:
        """How many iterations were made."""
        return len(self.trace)


def pose(visible: Spins, scales: BondScales, truth: Couplings | None, *, aligned: bool) -> Problem:
    """Prepare a recording for learning."""
    return Problem(visible, spin_products(visible), scales, truth, aligned)


def begin(couplings: Couplings) -> EMState:
    """The state before the first iteration."""
    size = sum(x.size for x in couplings)
    return EMState(couplings, no_history(size), (0, 0, 0), np.empty((0, len(TRACE_COLUMNS))), "running")


def advance(state: EMState, problem: Problem, learning: Learning, *, threads: int = 1) -> EMState:
    """One EM iteration: E-step at the couplings of `state`, verdict, and, unless that ends it, the step to
    the next.
    """
    gradient = checked_gradient(state.couplings, problem.visible, learning.estep, threads=threads)
    return move(state, gradient, problem, learning)


def move(state: EMState, gradient: Gradient, problem: Problem, learning: Learning) -> EMState:
    """What of an iteration comes after the E-step."""
    couplings = state.couplings
    step = scaled_step(gradient, problem.products) if _finite(gradient) else None
    sizes = tuple(np.inf for _ in BLOCKS)
    if step is not None:
        sizes = tuple(
            float(np.sqrt(np.mean(dx**2)) / sd) for dx, sd in zip(step, problem.scales, strict=True)
        )
    held = tuple(h + 1 if size < learning.tolerance else 0 for h, size in zip(state.held, sizes, strict=True))
    trace = np.vstack([state.trace, _trace_row(state.iteration, couplings, sizes, gradient, problem)])
    state = replace(state, held=held, trace=trace)
    if step is None or _runaway(couplings, problem.scales):
        return replace(state, held=(0, 0, 0), outcome="diverged")
    if min(held) >= learning.hold:
        return replace(state, outcome="converged")
    if state.iteration >= learning.max_iterations:
        return replace(state, outcome="stalled")
    if learning.step == "scaled":
        couplings, history = accelerate(
            couplings, step, state.history, problem.scales, patience=learning.patience
        )
    else:
        couplings, history = ascend(
            couplings, gradient, state.history, rate=learning.rate, momentum=learning.momentum
        )
    return replace(state, couplings=couplings, history=history)


def _finite(gradient: Gradient) -> bool:
    return all(np.isfinite(x).all() for x in (gradient.J, gradient.K, gradient.L))


def _runaway(couplings: Couplings, scales: BondScales) -> bool:
    nominal = nominal_scales(*couplings.K.shape)
    return any(
        not np.sqrt(np.mean(x**2)) < LARGEST_GROWTH * max(sd, unit)
        for x, sd, unit in zip(couplings, scales, nominal, strict=True)
    )


def _trace_row(
    iteration: int, couplings: Couplings, sizes: tuple[float, ...], gradient: Gradient, problem: Problem
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
        ]
    )


def score(couplings: Couplings, problem: Problem) -> dict[str, float] | None:
    """RMSE against the truth, after matching hidden units where the problem says so; None without a truth."""
    if problem.truth is None:
        return None
    if problem.aligned:
        couplings = align(couplings, problem.truth, problem.scales).apply(couplings)
    return rmse(couplings, problem.truth, problem.scales)
