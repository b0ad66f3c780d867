"""Several starts: which of them to learn from.

The likelihood has several maxima: hidden units take each other's roles, or two of them share one, and the start
decides which maximum is found. From every start a *pilot* learns for a few iterations from the beginning of the
recording. Learning then starts at the couplings of the likeliest pilot. Likelihoods are those of the pilot's slices by
its own estimator: exact, the Bethe approximation, or importance sampling.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kising.estimators.gradient import checked_gradient
from kising.learning.effort import PILOT_ITERATIONS, PILOT_SLICES
from kising.learning.starts import seeds_of
from kising.model import Couplings

if TYPE_CHECKING:
    from kising.learning.session import Session


def likeliest_start(session: Session) -> Couplings:
    """The couplings of the likeliest pilot; the first start where all pilots diverge."""
    short = session.shortened(slices=PILOT_SLICES, iterations=PILOT_ITERATIONS)
    seeds = seeds_of(session.seed, session.learner.starts)
    drawn = [session.draw_start(own) for own in seeds]
    best, highest = drawn[0], -np.inf
    for start, own in zip(drawn, seeds, strict=True):
        couplings, nats = pilot(replace(short, seed=own, given_start=start))
        if nats > highest:
            best, highest = couplings, nats
    return best


def pilot(session: Session) -> tuple[Couplings, float]:
    """The couplings that a session ends with, and their log-likelihood in nats per slice; -inf where it diverged."""
    state = session.run()
    couplings = session.step.learned(state)
    if state.outcome == "diverged":
        return couplings, -np.inf
    nats = checked_gradient(
        couplings, session.problem.slices, session.scoring_estep, threads=session.threads
    ).log_likelihood
    return couplings, nats if np.isfinite(nats) else -np.inf
