"""When learning crawls: steps hardly shrink, and couplings hardly move.

The averages of belief propagation have an error, and what they climb is not a likelihood. Along directions that a
recording hardly determines, such as the rows of L of hidden spins with weak bonds, this error can be larger than what
is left of the gradient. Steps then stay just above `tolerance` for hundreds of iterations, while couplings wander about
within their errors. Such iterations are avoided: once per WINDOW of iterations learning ends as `stalled` if

    the couplings of no block have moved, from the beginning of the window to its end, by more than STILL bond scales
    in the root mean square, and
    the smallest step of this window, compared with the smallest of the window before, shrinks too slowly to pass
    `tolerance` within the iterations that are left
"""

from collections.abc import Sequence

import numpy as np

from kising.model import Array

WINDOW = 30
STILL = 0.03


def is_still(moved: Sequence[Array]) -> bool:
    """Whether no block has moved far; moves are in bond scales."""
    return all(np.sqrt(np.mean(dx**2)) < STILL for dx in moved if dx.size)


def is_out_of_reach(sizes: Array, tolerance: float, left: int) -> bool:
    """Whether steps, by the trend over two windows, stay above the tolerance for all the iterations that are left;
    `sizes` are those of all iterations so far.
    """
    before, lately = np.min(sizes[-2 * WINDOW : -WINDOW]), np.min(sizes[-WINDOW:])
    if lately >= before:
        return bool(lately >= tolerance)
    windows = np.log(lately / tolerance) / np.log(before / lately)
    return bool(WINDOW * windows > left)
