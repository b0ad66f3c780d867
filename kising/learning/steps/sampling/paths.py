"""Learning from samples of whole paths: where hidden spins act on each other, or entries are missing.

As `sampled`, with another E-step: a sweep draws all unknown spins of the recording, hidden and missing ones, along
paths through time, and the gradient is the score of complete data in the state that it leaves. For short recordings,
and while couplings are averaged, it is the mean over several sweeps.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from kising.estimators.estep import EStep
from kising.estimators.gradient import Gradient
from kising.estimators.paths.gradients import gradient_of
from kising.estimators.paths.sampler import first_states, sweep
from kising.estimators.paths.statistics import Complete, complete_sums
from kising.estimators.paths.timeline import Timeline
from kising.kernels.counter import key_of
from kising.learning.state import Anchor, EMState, Problem, first_state
from kising.learning.steps.metric import FIRST_OF_ROWS, NOISY, SLICES, fits, is_due
from kising.learning.steps.sampling.phases import MOMENTUM, begin_sampling, went_back
from kising.learning.steps.sampling.sampled import SampledStep
from kising.model import Couplings, Spins
from kising.options import Learner
from kising.seeds import Seed

# Where a recording is short, an iteration makes several sweeps, so that about this many steps are drawn: the noise of a
# single sweep can carry couplings that a short recording hardly determines far away.
STEPS_PER_ITERATION = 8192
MOST_SWEEPS = 16
# While couplings are averaged, an iteration makes at least this many. The number of sweeps brings the Monte-Carlo error
# down, not that of iterations, and what an iteration costs besides its sweeps is then paid less often.
SWEEPS_AVERAGED = 4
# With less noise per iteration, steps may shrink more slowly: couplings of which the recording says little hardly move
# any more once steps are short, and the mean would keep what they were like when averaging began.
EXPONENT = 0.4


@dataclass(frozen=True)
class PathStep(SampledStep):
    """Steps along the scores of sampled paths."""

    exponent: ClassVar[float] = EXPONENT
    # Not measured along paths.
    long_momentum: ClassVar[float] = MOMENTUM

    @classmethod
    def applies(cls, learner: Learner, estep: EStep, problem: Problem) -> bool:
        """Where averages are noisy, and slices depend on each other."""
        return estep.estimator.samples and (problem.hidden_couplings or problem.slices.has_gaps)

    @cached_property
    def timeline(self) -> Timeline:
        """The recording, time step by time step."""
        return Timeline.of(self.problem.slices)

    def begin(self, couplings: Couplings, seed: Seed) -> EMState:
        """Unknown spins at their first states, and nothing averaged yet."""
        states = first_states(self.timeline, self.problem.hidden, key_of(seed))
        sampler = begin_sampling(0, self.problem.hidden, sum(x.size for x in couplings), seed)
        return first_state(couplings, sampler._replace(chains=self._unknown(states)))

    @property
    def chains_shape(self) -> tuple[int, int]:
        """One row per unknown spin."""
        return int(np.count_nonzero(self.timeline.unknown(self.problem.hidden))), 1

    def observe(self, state: EMState, *, threads: int) -> tuple[EMState, Gradient]:
        """A sweep of all paths, or several; at some iterations, the metric is recomputed."""
        sampler, timeline = state.sampler, self.timeline
        assert sampler is not None
        network, states = timeline.network(state.couplings), self._states(sampler.chains)
        least = SWEEPS_AVERAGED if sampler.averages else 1
        repeats = min(max(STEPS_PER_ITERATION // len(states), least), MOST_SWEEPS)
        sums = []
        for iteration in numbers_of_sweeps(state, repeats):
            sweep(network, timeline, states, key=sampler.key, iteration=iteration, threads=threads)
            sums.append(complete_sums(network, timeline, states, threads=threads))
        mean = Complete(*(sum(x) / repeats for x in zip(*sums, strict=True)))
        found = gradient_of(mean, int(np.sum(timeline.sources)), np.nan, state.couplings)
        state = replace(state, sampler=sampler._replace(chains=self._unknown(states)))
        if is_due(state.iteration, noisy=True):
            rows = fits(*state.couplings.K.shape) and state.iteration >= FIRST_OF_ROWS
            beginning = states[timeline.sources][:SLICES]
            state = replace(state, anchor=Anchor(state.couplings, beginning, rows, NOISY))
        return state, self.pulled(found, state.couplings)

    def _unknown(self, states: Spins) -> Spins:
        """The unknown spins, one per row: all that sampling has to remember."""
        return states[self.timeline.unknown(self.problem.hidden)][:, None]

    def _states(self, chains: Spins) -> Spins:
        """The state of all spins, (T, N)."""
        n, hidden = len(self.timeline.spins), self.problem.hidden
        states = np.empty((n, self.problem.n_visible + hidden), np.int8)
        states[:, : self.problem.n_visible] = self.timeline.spins
        states[self.timeline.unknown(hidden)] = chains[:, 0]
        return states


def numbers_of_sweeps(state: EMState, repeats: int) -> Iterator[int]:
    """The numbers of an iteration's sweeps, which their random numbers go by: none comes twice while learning."""
    again = went_back(state)
    for k in range(repeats * state.iteration, repeats * (state.iteration + 1)):
        # An approach makes fewer sweeps per iteration than the average before it, whose numbers would come again: each
        # iteration then has MOST_SWEEPS numbers of its own. Paths and blocks take turns as before, by k modulo 4.
        yield MOST_SWEEPS * state.iteration + k % MOST_SWEEPS if again else k
