"""When learning crawls: steps hardly shrink, and couplings hardly move.

The averages of belief propagation have an error, and what they climb is not a likelihood. Along directions that a
recording hardly determines, such as the rows of L of hidden spins with weak bonds, this error can be larger than what
is left of the gradient. Steps then stay just above `tolerance` for hundreds of iterations, while couplings wander about
within their errors. Such iterations are avoided: every EVERY iterations learning ends as `stalled` if, for one of the
WINDOWS,

    the couplings of no block have moved, from the beginning of the window to its end, by more than STILL bond scales
    per iteration in the root mean square,
    the smallest step of the window, compared with the smallest of the window before, shrinks too slowly to pass
    `tolerance` within the iterations that are left, and
    it is at least as many tolerances as the window asks for: steps that are nearly there are watched for longer,
    because some of them arrive after a pause

In rounds (`steps.rounds`), the last two take the place of the window and all others that of the window before; steps
are those of iterations on all slices. Where rounds were given up, their smallest step stands for the window before.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kising.model import Array

EVERY = 5
STILL = 1e-3


class Window(NamedTuple):
    """Iterations that are looked back at."""

    length: int
    """a multiple of EVERY"""
    least: float
    """the smallest step that it is for, in units of `tolerance`"""


# In tolerances: steps below this are nearly there.
NEARLY_THERE = 10.0
WINDOWS = (Window(10, NEARLY_THERE), Window(15, 1.0))
REMEMBERED = max(window.length for window in WINDOWS) // EVERY
"""how many earlier couplings are kept, one per EVERY iterations"""


def is_still(moved: Sequence[Array], iterations: int) -> bool:
    """Whether no block has moved far in this number of iterations; moves are in bond scales."""
    return all(np.sqrt(np.mean(dx**2)) < STILL * iterations for dx in moved if dx.size)


def is_out_of_reach(sizes: Array, tolerance: float, left: int, window: Window) -> bool:
    """Whether steps, by the trend over two windows, stay above the tolerance for all the iterations that are left;
    `sizes` are those of all iterations so far.
    """
    n = window.length
    before, lately = np.min(sizes[-2 * n : -n]), np.min(sizes[-n:])
    watched = bool(lately >= window.least * tolerance)
    return watched and shrinks_too_slowly(before, lately, n, tolerance, left)


def shrinks_too_slowly(before: float, lately: float, iterations: int, tolerance: float, left: int) -> bool:
    """Whether steps that shrank from `before` to `lately` in this number of iterations will not pass the tolerance in
    those that are left.
    """
    if lately < tolerance:
        return False
    if lately >= before:
        return True
    times = np.log(lately / tolerance) / np.log(before / lately)
    return bool(iterations * times > left)
