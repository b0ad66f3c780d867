"""Several starts: which of them to learn from.

The likelihood has several maxima: hidden units take on each other's roles, two of them share one, and which happens
is decided by where learning starts. From every start a pilot learns from the beginning of the recording, for a while;
the couplings that the likeliest of them has come to are where learning starts. Likelihoods are those of the pilots'
own slices by their own estimator: exact, or the Bethe approximation, or importance sampling.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from kising.estimators.gibbs.chains import Sampling
from kising.estimators.inference import checked_gradient
from kising.learning.em import Learning, Problem, advance, begin, learned, pose, sampler_of
from kising.learning.starts import chain_seed, seeds_of
from kising.model import Couplings
from kising.seeds import Seed

SLICES = 5_000
ITERATIONS = 60
# For the likelihood of a pilot by importance sampling: maxima differ by more than its error.
SWEEPS, DRAWS = 40, 64


def choose_start(
    draw: Callable[[Seed], Couplings],
    seed: Seed,
    starts: int,
    problem: Problem,
    learning: Learning,
    *,
    threads: int,
) -> Couplings:
    """Where to start: what is drawn from the seed, or, with several starts, where the likeliest pilot has come to.
    Where all pilots diverge, it is the first start.
    """
    if starts == 1:
        return draw(seed)
    beginning = pose(problem.visible[: SLICES + 2], problem.scales, None, aligned=False)
    seeds = seeds_of(seed, starts)
    drawn = [draw(own) for own in seeds]
    best, highest = drawn[0], -np.inf
    for start, own in zip(drawn, seeds, strict=True):
        couplings, nats = pilot(start, own, beginning, learning, threads=threads)
        if nats > highest:
            best, highest = couplings, nats
    return best


def pilot(
    start: Couplings, seed: Seed, problem: Problem, learning: Learning, *, threads: int
) -> tuple[Couplings, float]:
    """Where learning from a start has come to, and the log-likelihood there in nats a slice; -inf where it diverged."""
    short = replace(learning, max_iterations=min(ITERATIONS, learning.max_iterations))
    state = begin(start, sampler_of(start, problem, short, seed=chain_seed(seed)))
    while state.outcome == "running":
        state = advance(state, problem, short, threads=threads)
    couplings = learned(state, problem)
    if state.outcome == "diverged":
        return couplings, -np.inf
    estep = replace(learning.estep, sampling=Sampling(sweeps=SWEEPS, draws=DRAWS, seed=chain_seed(seed)))
    nats = checked_gradient(couplings, problem.visible, estep, threads=threads).log_likelihood
    return couplings, nats if np.isfinite(nats) else -np.inf
