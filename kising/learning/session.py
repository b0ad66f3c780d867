"""One learning session, from the start to the result. `fit`, the runs of a sweep and pilots all use it.

A session is fixed: the problem, the learner, the step chosen for both, and a seed. Its states are values. `advance` is
a pure function from one state to the next, so learning can stop after any iteration and continue elsewhere, from a
checkpoint, with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kising.arrays import holds_arrays
from kising.blocks import shapes
from kising.errors import CheckpointError, InputError
from kising.estimators.estep import EStep
from kising.estimators.gradient import Gradient, checked_gradient
from kising.estimators.sampling import Sampling
from kising.estimators.slices import Slices, as_slices
from kising.learning.checkpoint import load
from kising.learning.effort import iteration_limit
from kising.learning.errors.standard import standard_errors
from kising.learning.inputs import shifted_noise
from kising.learning.layout import slopes
from kising.learning.pilots import likeliest_start
from kising.learning.starts import PATIENCE, chain_seed, draw_start, error_seed
from kising.learning.state import EMState, Problem, prepare
from kising.learning.steps.base import Step
from kising.learning.steps.choice import choose
from kising.learning.steps.metric import SLICES
from kising.learning.steps.scaled import freedom_of, step_sizes
from kising.learning.trace import trace_row
from kising.learning.verdict import converged_blocks, judge, relative_sizes
from kising.model import Array, BondScales, Couplings, Spins
from kising.options import Learner
from kising.seeds import Seed


@holds_arrays
@dataclass(frozen=True, kw_only=True)
class Learned:
    """The result of a session."""

    couplings: Couplings
    """as learned: hidden units in the order and orientation in which they came out"""
    converged: dict[str, bool]
    """for each block: whether it had converged when learning ended"""
    rmse: dict[str, float] | None
    """for each block, in units of the bond scale, after matching hidden units unless learning started from the signs
    of the truth; None without a truth
    """
    outcome: str
    """converged | stalled | diverged"""
    missing: str | None
    """of learning that stalled: for each block that had not converged, what it lacked; None otherwise"""
    excess: dict[str, float | None]
    """the same in numbers: how many times its limit the step, the drift or the Monte-Carlo error of the block was; None
    where that was not known yet, and below 1 where it had not been small for long enough
    """
    iterations: int
    """EM iterations made"""
    estimator: str
    """the one that ran, where `auto` was asked for"""
    monte_carlo_error: Couplings | None
    """of estimators that sample: the standard error of the couplings that is due to sampling, not to the data"""
    standard_error: Couplings | None
    """of the couplings, from the observed information, that of sampling included; None unless it was asked for, and
    where learning diverged
    """
    prior_widths: dict[str, float] | None
    """the width of the prior of every block, in units of its couplings while learning; None without a prior"""
    state: EMState
    """where learning ended"""


@dataclass(frozen=True, kw_only=True)
class Session:
    """A problem and how it is learned."""

    step: Step
    """the strategy, with the problem and the learner that it is for"""
    seed: Seed
    given_start: Couplings | None = None
    """couplings to start from; None: as the learner says"""
    input_shift: Array | None = None
    """means of the inputs before they were centred, in the units of the inputs, (p,): standard errors of biases are
    those for the inputs as they were"""
    threads: int = 1
    """they change the time, not the result"""

    @classmethod
    def of(
        cls,
        recording: Slices | Spins,
        hidden: int,
        learner: Learner,
        *,
        seed: Seed,
        scales: BondScales,
        truth: Couplings | None = None,
        start: Couplings | None = None,
        input_shift: Array | None = None,
        threads: int = 1,
    ) -> Session:
        """A session for a recording that was checked before; an InputError where the learner cannot treat it."""
        gaps = as_slices(recording).has_gaps
        estep = EStep.of(learner, hidden, coupled=learner.hidden_couplings, gaps=gaps)
        if gaps and estep.estimator.samples:
            _check_sampled(learner)
        # Only the truth's signs tell a hidden unit which one it is. A start that is given usually comes from a fit.
        aligned = start is not None or learner.start == "random"
        problem = prepare(
            recording,
            hidden,
            scales,
            truth,
            aligned=aligned,
            bias=learner.bias,
            hidden_couplings=learner.hidden_couplings,
        )
        patience = PATIENCE[learner.start] if start is None else 0
        step = choose(problem, learner, estep, patience=patience)
        return cls(step=step, seed=seed, given_start=start, input_shift=input_shift, threads=threads)

    @property
    def problem(self) -> Problem:
        """What is learned from."""
        return self.step.problem

    @property
    def learner(self) -> Learner:
        """How it is learned."""
        return self.step.learner

    @property
    def scoring_estep(self) -> EStep:
        """The E-step that learned couplings are scored by; an estimator that samples draws little for it."""
        return self.step.estep.sampled(Sampling.brief(chain_seed(self.seed)))

    @cached_property
    def start(self) -> Couplings:
        """The couplings that learning starts from."""
        if self.given_start is not None:
            # A start may lack blocks that are learned: they start at zero.
            return self.given_start.filled.with_M.only(self.problem.learned_blocks)
        return self.draw_start(self.seed) if self.learner.starts == 1 else likeliest_start(self)

    def draw_start(self, seed: Seed) -> Couplings:
        """The start that belongs to a seed."""
        return draw_start(self.problem, self.learner.start, seed)

    def shortened(self, *, slices: int, iterations: int) -> Session:
        """The same for the beginning of the recording, and for fewer iterations."""
        problem = prepare(
            self.problem.slices.first(slices),
            self.problem.hidden,
            self.problem.scales,
            self.problem.truth,
            bias=self.problem.bias,
            hidden_couplings=self.problem.hidden_couplings,
        )
        fewer = min(
            iterations, iteration_limit(self.learner, self.problem.hidden, gaps=self.problem.slices.has_gaps)
        )
        learner = self.learner.model_copy(update={"max_iterations": fewer})
        step = choose(problem, learner, self.step.estep, patience=self.step.patience)
        return replace(self, step=step)

    def begin(self) -> EMState:
        """The state before the first iteration."""
        first = self.step.begin(self.start, chain_seed(self.seed))
        return replace(first, estimator=self.step.estep.estimator.name, slices=self.problem.n_slices)

    def resume(self, saved: bytes | None) -> EMState | None:
        """The state of a checkpoint; None where there is none, or none that is sound and of such a network."""
        if saved is None:
            return None
        try:
            state = load(saved)
        except CheckpointError:
            return None
        return state if self.refusal(state) is None else None

    def refusal(self, state: EMState) -> str | None:
        """Why a state is not one of this session, and what to give instead; None where it may be."""
        problem, name = self.problem, self.step.estep.estimator.name
        wanted = shapes(problem.n_visible, problem.hidden, problem.slices.n_inputs)
        if not problem.bias:
            wanted |= {"h": (0,), "b": (0,)}
        if not problem.hidden_couplings:
            wanted |= {"M": (problem.hidden, 0)}
        if any(x.shape != wanted[block] for block, x in state.couplings._asdict().items()):
            return f"it belongs to another network, (Nv, Nh) = {state.couplings.K.shape}"
        if state.estimator not in (None, name):
            return (
                f"it was learned with estimator {state.estimator}; this fit uses {name}: give the same options as "
                "then"
            )
        if state.slices not in (None, problem.n_slices):
            return (
                f"it was learned from {state.slices} slices; the recording has {problem.n_slices}: give the same data "
                "as then"
            )
        # An older version did not save either, but what it saved of a sampler tells.
        chains = None if state.sampler is None else state.sampler.chains.shape
        if (chains is None) != (self.step.chains_shape is None):
            which = "no samples" if chains is None else "samples"
            return f"it holds {which} of hidden spins; this fit uses {name}: give the same options as then"
        if chains != self.step.chains_shape:
            return "it was learned from another recording: give the same data as then"
        return None

    def crawled(self, state: EMState) -> bool:
        """Whether learning stalled here because it crawled: what `conclude` saw when it ended, before the last row."""
        if state.outcome != "stalled":
            return False
        before = replace(state, trace=state.trace[:-1], outcome="running")
        return self.step.crawls(before, float(step_sizes(state)[-1]))

    def states(self, state: EMState) -> Iterator[EMState]:
        """The states after each iteration that is left, until learning ends."""
        while state.outcome == "running":
            state = self.advance(state)
            yield state

    def run(self, state: EMState | None = None, observe: Callable[[EMState], None] | None = None) -> EMState:
        """The state in which learning ends, from the start or from a state given; `observe` sees every state."""
        last = self.begin() if state is None else state
        for last in self.states(last):  # noqa: B020
            if observe is not None:
                observe(last)
        return last

    def advance(self, state: EMState) -> EMState:
        """One EM iteration: the E-step at the couplings of `state`, the verdict, and, unless that ends it, the step to
        the next couplings.
        """
        return self.conclude(*self.step.observe(state, threads=self.threads))

    def conclude(self, state: EMState, gradient: Gradient) -> EMState:
        """What follows the E-step of an iteration."""
        step, problem = self.step, self.problem
        direction = step.direction(state, gradient) if _is_finite(gradient) else None
        sizes = relative_sizes(direction, problem.scales)
        settled = step.settled(state, sizes)
        verdict = judge(
            state,
            direction,
            settled,
            problem,
            self.learner,
            crawls=step.crawls(state, max(sizes)),
            counts=step.counts(state),
        )
        row = trace_row(
            state.iteration, sizes, problem.rmse(step.learned(state)), gradient, step.noise(state)
        )
        trace = np.vstack([state.trace, row])
        if direction is not None and verdict.outcome == "running":
            state = step.advance(state, direction, gradient)
        return replace(state, trace=trace, held=verdict.held, outcome=verdict.outcome)

    def result(self, state: EMState, *, errors: bool = False) -> Learned:
        """The result of learning that has ended; `errors` asks for standard errors."""
        couplings = self.step.learned(state)
        widths = self._prior_widths(state)
        lacks = self.step.missing(state) if state.outcome == "stalled" else {}
        return Learned(
            couplings=couplings.filled,
            converged=converged_blocks(state, self.learner),
            rmse=self.problem.rmse(couplings),
            outcome=state.outcome,
            missing="; ".join(f"{name}: {lack.text}" for name, lack in lacks.items()) or None,
            excess={name: lack.excess for name, lack in lacks.items()},
            iterations=state.iteration,
            estimator=self.step.estep.estimator.name,
            monte_carlo_error=_filled(self.step.monte_carlo_error(state)),
            standard_error=_filled(self._standard_error(state, widths)) if errors else None,
            prior_widths=widths,
            state=state,
        )

    def _prior_widths(self, state: EMState) -> dict[str, float] | None:
        prior = self.step.prior
        if prior is None or state.outcome == "diverged":
            return None
        learned, some = self.step.learned(state), self.problem.slices.first(SLICES)
        found = checked_gradient(learned, some, self.scoring_estep, threads=self.threads)
        return prior.widths(learned, freedom_of(found))

    def _standard_error(self, state: EMState, widths: dict[str, float] | None) -> Couplings | None:
        if state.outcome == "diverged":
            return None
        seed = error_seed(self.seed)
        learned, slices = self.step.learned(state), self.problem.slices
        errors = standard_errors(learned, slices, seed=seed, shift=self.input_shift, widths=widths)
        noise = self.step.monte_carlo_error(state)
        if noise is None:
            return errors
        # As the errors do, it belongs to biases for the inputs as they were.
        noise = noise if self.input_shift is None else shifted_noise(noise, self.input_shift)
        return Couplings(*map(np.hypot, errors, noise))


def _check_sampled(learner: Learner) -> None:
    """Refuse what learning from samples cannot do; where nothing is missing, options are checked before."""
    asked = {"step": learner.step == "gradient", "l1": learner.l1 > 0, "decimate": learner.decimate != "none"}
    for name, refused in asked.items():
        if refused:
            raise InputError(
                f"{name}={getattr(learner, name)!r}: entries are missing and will be sampled, which does not work with "
                f"{name}; leave it out, or leave out steps with gaps: missing='drop'"
            )


def _filled(errors: Couplings | None) -> Couplings | None:
    return None if errors is None else errors.filled


def _is_finite(gradient: Gradient) -> bool:
    return all(np.isfinite(x).all() for x in slopes(gradient))
