"""Blocks of time: what is sampled together, and what can be sampled at the same moment.

A block is drawn given the spins just before and just after it. Blocks that do not touch are then independent: first
those with even numbers are drawn, on any number of threads, then the odd ones. Borders between blocks lie elsewhere
in the next sweep, so that they hold nothing back. Blocks follow from the network and the recording alone, never from
threads.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

Bounds = npt.NDArray[np.int64]

# Numbers of a block that stay in the cache while its units are drawn one after the other.
NUMBERS = 32768
SHORTEST, LONGEST = 128, 2048


def block_steps(units: int) -> int:
    """Steps per block of a network with this many spins; a multiple of 16."""
    return int(np.clip(NUMBERS // units, SHORTEST, LONGEST)) // 16 * 16


def blocks_of(bounds: Bounds, steps: int, *, shifted: bool) -> tuple[Bounds, Bounds]:
    """The blocks of the segments from bounds[k] to bounds[k+1]: those with even and those with odd numbers. A row has
    the first step, the one after the last, and the same of the block's segment.
    """
    colours: tuple[list[tuple[int, int, int, int]], ...] = ([], [])
    for start, stop in pairwise(bounds.tolist()):
        edges = [start, *range(start + (steps // 2 if shifted else steps), stop, steps), stop]
        for k, (a, b) in enumerate(pairwise(edges)):
            colours[k % 2].append((a, b, start, stop))
    even, odd = (np.array(found, np.int64).reshape(-1, 4) for found in colours)
    return even, odd
