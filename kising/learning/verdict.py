"""When a block has converged, and when learning ends. All of it is decided here.

Every iteration computes a scale-free step, whichever step is then taken: it is the distance that EM would go next, so
the verdict does not depend on a learning rate. A block X

    has settled      when √(mean ΔX²)/sd_X of that step is below `tolerance`; steps that never vanish, because they are
                     noisy or because couplings are still being dropped, have rules of their own (`Step.settled`)
    has converged    when it has been settled for `hold` iterations in a row, of those that count: where all slices
                     have a say (`Step.counts`)
    has diverged     when its root mean square has passed LARGEST_GROWTH bond scales (of the ensemble, or of a dense
                     network of strength 1 where these are larger), or when anything in it is not finite

Learning ends `converged` when all blocks have converged, `diverged` when any has diverged, and `stalled` at
`max_iterations`, or before that where it crawls (`steps.crawling`). The flags of a run that stalled differ from block
to block: J may have settled while K and L have not.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kising.blocks import BLOCKS
from kising.learning.effort import iteration_limit
from kising.learning.layout import present
from kising.learning.scores import nominal_scales
from kising.learning.state import EMState, Problem
from kising.model import BondScales, Couplings
from kising.options import Learner

LARGEST_GROWTH = 20.0


class Verdict(NamedTuple):
    """What an iteration has decided."""

    held: tuple[int, ...]
    """for each block: number of iterations in a row for which it has been settled"""
    outcome: str
    """running | converged | stalled | diverged"""


def relative_sizes(step: Couplings | None, scales: BondScales) -> tuple[float, ...]:
    """√(mean ΔX²)/sd_X of every block; infinite where there is no step, zero for a block that is not learned."""
    if step is None:
        return tuple(np.inf for _ in BLOCKS)
    pairs = zip(step, scales, strict=True)
    return tuple(float(np.sqrt(np.mean(dx**2)) / sd) if dx.size else 0.0 for dx, sd in pairs)


def judge(
    state: EMState,
    step: Couplings | None,
    settled: Sequence[bool],
    problem: Problem,
    learner: Learner,
    *,
    crawls: bool = False,
    counts: bool = True,
) -> Verdict:
    """The verdict on the couplings of `state`; `step` is None where the gradient was not finite."""
    held = tuple(h + 1 if ok else 0 for h, ok in zip(state.held, settled, strict=True))
    held = held if counts else state.held
    if step is None or has_diverged(state.couplings, problem.scales):
        return Verdict(tuple(0 for _ in BLOCKS), "diverged")
    if min(held) >= learner.hold:
        return Verdict(held, "converged")
    limit = iteration_limit(learner, problem.hidden, gaps=problem.slices.has_gaps)
    return Verdict(held, "stalled" if crawls or state.iteration + 1 >= limit else "running")


def has_diverged(couplings: Couplings, scales: BondScales) -> bool:
    """Whether a block is too large, or not a number."""
    nominal = nominal_scales(*couplings.K.shape)
    return any(
        not np.sqrt(np.mean(x**2)) < LARGEST_GROWTH * max(sd, unit)
        for x, sd, unit in zip(couplings, scales, nominal, strict=True)
        if x.size
    )


def converged_blocks(state: EMState, learner: Learner) -> dict[str, bool]:
    """For each block that is learned: whether it had converged when learning ended."""
    learned = present(state.couplings)
    pairs = zip(BLOCKS, state.held, strict=True)
    return {name: held >= learner.hold for name, held in pairs if learned[name]}
