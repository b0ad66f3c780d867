"""Learning from a long recording in rounds: one iteration on all slices, then a few on part of them.

The gradient of all slices is that of the part plus that of the rest. Where couplings differ little, the rest changes
little, and almost as the part does. So a round goes through all slices once, at X₀, and then climbs

    g(X) ≈ g_part(X) + [ g(X₀) - g_part(X₀) ],                          the bracket fixed until the next round

The fixed point of rounds is that of all slices, g(X) = 0, whatever the part: only how fast it is reached depends on the
part. Along directions that the part hardly determines a round leads too far or not far enough; acceleration over whole
rounds makes up for that.

Once a step on all slices is below the tolerance, the couplings hardly move any more, and the bracket is as good as new.
Iterations on the part then count for the verdict too: going through all slices again would change nothing.

Before the first round, iterations go through the part alone, until their steps are as small as the part's own
distance from the end. Where two rounds have hardly made the step smaller, or one has made it much larger, the part says
too little: learning returns to where the step was smallest, and goes through all slices in every iteration from there
on. This is not so where the step is already near the tolerance, and the iterations on the part do not get anywhere
either: then learning crawls as it would on all slices, and ends as `stalled` (`steps.crawling`).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kising.estimators.gradient import Gradient
from kising.estimators.slices import Slices
from kising.learning.effort import EARLY_ITERATIONS, ROUND
from kising.learning.layout import flatten, slopes
from kising.learning.state import Rounds, no_history
from kising.learning.steps.crawling import NEARLY_THERE, shrinks_too_slowly
from kising.model import Array, BondScales, Couplings

# Of a step on all slices: iterations on part of them end when theirs are below this share of it.
FAR_ENOUGH = 0.1
# In bond scales: steps on part of the slices that are below this before the first round say no more about all of them.
NEAR_AT_FIRST = 2e-3
# Rounds are given up where a step on all slices is larger than this share of the one two rounds before, or than so many
# times the smallest.
SLOW, MISLED = 0.7, 2.0


def before_rounds(couplings: Couplings, scales: BondScales) -> Rounds:
    """The state before the first iteration."""
    here = flatten(couplings, scales)
    nothing = Couplings(*(np.zeros_like(x) for x in couplings))
    return Rounds(
        rest=nothing,
        left=EARLY_ITERATIONS,
        arrived=True,
        given_up=-1,
        sizes=np.empty(0),
        iterations=np.empty(0, np.int64),
        start=here,
        best=here,
        history=no_history(here.size),
    )


def of_all(
    gradient_of: Callable[[Slices], Gradient], slices: Slices, part: int
) -> tuple[Gradient, Couplings]:
    """The gradient of all slices, and what those beyond the part add to that of the part."""
    first, others = gradient_of(slices.first(part)), gradient_of(slices.beyond(part))
    share = part / len(slices)
    both: list[tuple[Any, Any]] = list(zip(first, others, strict=True))
    everything = Gradient(*(share * x + (1 - share) * y for x, y in both))
    added = (x - y for x, y in zip(slopes(everything), slopes(first), strict=True))
    return everything, Couplings(*added)


def with_rest(gradient: Gradient, rest: Couplings) -> Gradient:
    """The gradient of the part, with what the rest added."""
    return gradient._replace(**{name: getattr(gradient, name) + x for name, x in rest._asdict().items()})


def round_begun(rounds: Rounds, here: Array, size: float, tolerance: float, iteration: int) -> Rounds:
    """After an iteration on all slices whose largest step was `size`."""
    sizes = np.append(rounds.sizes, size)
    least = np.min(sizes)
    slow = len(sizes) > 2 and size > SLOW * sizes[-3] and not _is_creeping(rounds, size, tolerance)
    return rounds._replace(
        sizes=sizes,
        iterations=np.append(rounds.iterations, iteration),
        start=here,
        best=here if size == least else rounds.best,
        left=ROUND,
        given_up=iteration + 1 if size >= tolerance and (slow or size > MISLED * least) else -1,
    )


def part_used(rounds: Rounds, size: float, tolerance: float) -> Rounds:
    """After an iteration on part of the slices whose largest step was `size`."""
    goal = FAR_ENOUGH * rounds.sizes[-1] if rounds.sizes.size else NEAR_AT_FIRST
    arrived = bool(size < goal)
    ends = arrived and not rest_is_fresh(rounds, tolerance)
    return rounds._replace(left=0 if ends else rounds.left - 1, arrived=arrived)


def rest_is_fresh(rounds: Rounds, tolerance: float) -> bool:
    """Whether the gradient of the rest is as good as new: the step on all slices that began the round was below the
    tolerance, so the couplings have hardly moved since.
    """
    return bool(rounds.sizes.size and rounds.sizes[-1] < tolerance)


def rounds_crawl(rounds: Rounds, size: float, tolerance: float, iteration: int, limit: int) -> bool:
    """Whether, by the last two rounds, steps stay above the tolerance until the limit of iterations; `size` is that of
    the iteration on all slices that ends the second.
    """
    if len(rounds.sizes) < 2 or not _is_creeping(rounds, size, tolerance):
        return False
    sizes = np.append(rounds.sizes, size)
    passed = iteration - int(rounds.iterations[-2])
    return shrinks_too_slowly(np.min(sizes[:-2]), np.min(sizes[-2:]), passed, tolerance, limit - iteration)


def _is_creeping(rounds: Rounds, size: float, tolerance: float) -> bool:
    """Whether steps are small and the part is not what keeps them from becoming smaller."""
    return size < NEARLY_THERE * tolerance and not rounds.arrived
