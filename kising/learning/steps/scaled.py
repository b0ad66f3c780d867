"""The step that needs no rate: the gradient of a row, divided by the row's complete-data information (docs/maths.md,
"Learning").

Here the weights 1 - m_i² are averaged over slices: the information of row i is (mean of 1 - m_i²) C, with C the mean of
x xᵀ, x = (s, σ); for a row of L, x = s⁻, and with M (s⁻, σ⁻). Repeating the step is EM. Acceleration makes a longer one
of the last few.
"""

from dataclasses import replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from kising.blocks import BLOCKS
from kising.estimators.estep import EStep
from kising.estimators.gradient import Gradient, checked_gradient
from kising.estimators.parallel import one_blas_thread
from kising.estimators.slices import Slices
from kising.learning.effort import is_long, iteration_limit, slices_of_part, takes_rounds
from kising.learning.layout import Rows, flatten, from_rows, places, rows_of, slopes, unflatten
from kising.learning.state import EMState, History, Problem, Rounds, SpinProducts
from kising.learning.steps.acceleration import accelerate
from kising.learning.steps.base import Lack, Step
from kising.learning.steps.crawling import (
    EVERY,
    REMEMBERED,
    WINDOWS,
    Window,
    is_out_of_reach,
    is_still,
)
from kising.learning.steps.rounds import (
    before_rounds,
    of_all,
    part_used,
    rest_is_fresh,
    round_begun,
    rounds_crawl,
    with_rest,
)
from kising.learning.verdict import relative_sizes
from kising.model import Array, Couplings
from kising.options import Learner
from kising.seeds import Seed

# Relative to the unit diagonal of C: makes C positive definite where there are fewer slices than spins.
RIDGE = 1e-6
# Keeps a row that never varies (1 - m² → 0) from being divided by zero.
SMALLEST_FREEDOM = 1e-3
# Steps, in bond scales, from which on messages are in float64: rounding to float32 changes a step by about 1e-7.
FINE = 1e-5


class ScaledStep(Step):
    """Steps divided by averaged information, accelerated."""

    @classmethod
    def applies(cls, learner: Learner, estep: EStep, problem: Problem) -> bool:
        """Always: others come first."""
        return True

    def begin(self, couplings: Couplings, seed: Seed) -> EMState:
        """On a long recording, learning begins with iterations on part of it."""
        state = super().begin(couplings, seed)
        if not takes_rounds(self.learner, self.estep.estimator, self.problem.n_slices):
            return state
        return replace(state, rounds=before_rounds(couplings, self.problem.scales))

    def observe(self, state: EMState, *, threads: int) -> tuple[EMState, Gradient]:
        """Make the E-step: in rounds, on all slices or on part of them."""
        rounds = _rounds(state)
        if rounds is None:
            return super().observe(state, threads=threads)
        estep, slices = self.estep_of(state), self.problem.slices
        part = slices_of_part(len(slices))

        def gradient_of(some: Slices) -> Gradient:
            return checked_gradient(state.couplings, some, estep, threads=threads)

        if self._uses_part(state):
            found = with_rest(gradient_of(slices.first(part)), rounds.rest)
        else:
            found, rest = of_all(gradient_of, slices, part)
            state = replace(state, rounds=rounds._replace(rest=rest))
        return state, self.pulled(found, state.couplings)

    def _uses_part(self, state: EMState) -> bool:
        """Whether an iteration goes through part of the slices; the last one that is allowed never does."""
        rounds = _rounds(state)
        return rounds is not None and rounds.left > 0 and state.iteration + 1 < self._limit

    def estep_of(self, state: EMState) -> EStep:
        """On a long recording in float32, as long as steps are far larger than its rounding."""
        if not is_long(self.problem.n_slices):
            return self.estep
        large = not state.iteration or step_sizes(state)[-1] >= FINE
        return self.estep.coarser() if large else self.estep

    def counts(self, state: EMState) -> bool:
        """Where all slices have a say, as they are now or as they were at couplings that have hardly moved since."""
        rounds = _rounds(state)
        fresh = rounds is not None and rest_is_fresh(rounds, self.learner.tolerance)
        return fresh or not self._uses_part(state)

    def direction(self, state: EMState, gradient: Gradient) -> Couplings:
        """The gradient over the information."""
        precision = None
        if self.prior is not None:
            precision = self.prior.precision(state.couplings, freedom_of(gradient))
        with one_blas_thread():
            return scaled_step(gradient, self.problem.products, precision)

    def advance(self, state: EMState, direction: Couplings, gradient: Gradient) -> EMState:
        """Accelerate, and land where this kind of step may."""
        rounds = _rounds(state)
        if rounds is not None:
            return self._advance_in_rounds(state, direction, rounds)
        past = self.comparable_history(state, direction)
        moved, history = accelerate(
            state.couplings, direction, past, self.problem.scales, patience=self.patience
        )
        if self._may_crawl and state.iteration % EVERY == 0:
            here = flatten(state.couplings, self.problem.scales)
            history = history._replace(marks=np.vstack([history.marks, here])[-REMEMBERED:])
        return replace(state, couplings=self.landing(state, direction, moved), history=history)

    def _advance_in_rounds(self, state: EMState, direction: Couplings, rounds: Rounds) -> EMState:
        scales = self.problem.scales
        size = max(relative_sizes(direction, scales))
        past = self.comparable_history(state, direction)
        whole = not self._uses_part(state)
        if whole:
            here = flatten(state.couplings, scales)
            rounds = round_begun(rounds, here, size, self.learner.tolerance, state.iteration)
            # Steps of the round before had another rest.
            past = past.without_steps()._replace(size=np.inf)
            if rounds.given_up >= 0:
                best = unflatten(rounds.best, state.couplings, scales)
                return replace(state, couplings=best, history=past, rounds=rounds)
        else:
            rounds = part_used(rounds, size, self.learner.tolerance)
        moved, history = accelerate(state.couplings, direction, past, scales, patience=self.patience)
        if not whole and not rounds.left and rounds.sizes.size:
            began = unflatten(rounds.start, moved, scales)
            led = Couplings(*(x - y for x, y in zip(moved, began, strict=True)))
            moved, of_rounds = accelerate(began, led, rounds.history, scales, patience=0)
            rounds = rounds._replace(history=of_rounds)
        return replace(state, couplings=moved, history=history, rounds=rounds)

    @property
    def _may_crawl(self) -> bool:
        # With exact averages learning converges. Approximate ones are not a gradient, and may go round without end.
        return not self.estep.estimator.unbiased

    def crawls(self, state: EMState, size: float) -> bool:
        """Looked at in every iteration that begins a round and, without rounds, every few iterations."""
        if not self._may_crawl:
            return False
        rounds = _rounds(state)
        if rounds is not None:
            return not self._uses_part(state) and self._round_crawls(rounds, state, size)
        return state.iteration % EVERY == 0 and any(self._crawls_over(window, state) for window in WINDOWS)

    def _round_crawls(self, rounds: Rounds, state: EMState, size: float) -> bool:
        tolerance, began = self.learner.tolerance, rounds.history.points
        if len(began) < 2 or not rounds_crawl(rounds, size, tolerance, state.iteration, self._limit):
            return False
        return self._is_still_since(began[-2], state.iteration - int(rounds.iterations[-2]), state)

    def _is_still_since(self, there: Array, iterations: int, state: EMState) -> bool:
        moves = flatten(state.couplings, self.problem.scales) - there
        return is_still([moves[part] for part in places(state.couplings)], iterations)

    def _crawls_over(self, window: Window, state: EMState) -> bool:
        sizes = step_sizes(state)
        watched = 2 * window.length
        if state.rounds is not None:
            # The rounds that were given up stand for the window before the first: they began at the best of them.
            sizes = np.append(np.min(state.rounds.sizes), sizes[state.rounds.given_up :])
            watched = window.length + 1
        if len(sizes) < watched:
            return False
        there = state.history.marks[-(window.length // EVERY)]
        left = self._limit - state.iteration
        return self._is_still_since(there, window.length, state) and is_out_of_reach(
            sizes, self.learner.tolerance, left, window
        )

    def missing(self, state: EMState) -> dict[str, Lack]:
        """Where learning crawled, also that it did."""
        found = super().missing(state)
        if state.iteration >= self._limit:
            return found
        return {
            name: lack._replace(text=f"{lack.text}; shrinks too slowly to reach it")
            for name, lack in found.items()
        }

    @property
    def _limit(self) -> int:
        return iteration_limit(self.learner, self.problem.hidden, gaps=self.problem.slices.has_gaps)

    def comparable_history(self, state: EMState, direction: Couplings) -> History:
        """The history, as far as its steps were of the same kind as this one."""
        return state.history

    def landing(self, state: EMState, direction: Couplings, moved: Couplings) -> Couplings:
        """The couplings to go on from, where acceleration has come to `moved`."""
        return moved


def _rounds(state: EMState) -> Rounds | None:
    """The rounds of learning; None where there are none, or none any more."""
    return state.rounds if state.rounds is not None and state.rounds.given_up < 0 else None


def step_sizes(state: EMState) -> Array:
    """The largest step of any block, in bond scales, for every iteration so far."""
    sizes: Array = state.trace[:, 1 : 1 + len(BLOCKS)].max(axis=1)
    return sizes


def scaled_step(gradient: Gradient, products: SpinProducts, precision: Rows | None = None) -> Couplings:
    """G (freedom C)⁻¹, row by row; with the precision of a prior, G (freedom C + precision)⁻¹."""
    inputs, freedom = complete_information(gradient, products), freedom_of(gradient)
    slope = slopes(gradient)
    if precision is None:
        return from_rows(Rows(*map(_solve_rows, rows_of(slope), inputs, freedom)), slope)
    return from_rows(Rows(*map(_solve_each_row, rows_of(slope), inputs, freedom, precision)), slope)


def complete_information(gradient: Gradient, products: SpinProducts) -> Rows:
    """C of the rows of visible spins, mean of x xᵀ with x = (s, 1, u, σ), and of hidden ones, with x = (s⁻, 1, u⁻).
    With M, both have the same inputs, but for the ends of segments.
    """
    C = np.block(
        [[products.now, gradient.visible_hidden], [gradient.visible_hidden.T, gradient.hidden_hidden]]
    )
    return Rows(C, C if gradient.M.size else products.before)


def freedom_of(gradient: Gradient) -> Rows:
    """The mean weight of every row, (Nv,) and (Nh,), kept away from zero."""
    both = (gradient.freedom_visible, gradient.freedom_hidden)
    return Rows(*(np.maximum(freedom, SMALLEST_FREEDOM) for freedom in both))


def ridged(C: Array) -> Array:
    """A matrix that is positive definite."""
    return C + RIDGE * np.eye(len(C))


def _solve_each_row(rows: Array, C: Array, freedom: Array, precision: Array) -> Array:
    if not rows.size:
        return rows
    matrices = freedom[:, None, None] * ridged(C) + np.einsum("ij,jk->ijk", precision, np.eye(len(C)))
    solved: Array = np.linalg.solve(matrices, rows[:, :, None])[:, :, 0]
    return solved


def _solve_rows(rows: Array, C: Array, freedom: Array) -> Array:
    if not rows.size:
        return rows
    solved: Array = cho_solve(cho_factor(ridged(C)), rows.T).T
    return solved / freedom[:, None]
