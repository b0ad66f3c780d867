"""What the lanes of a tile hold: the rows of the tile's `state`, int64, (3, lanes)."""

import numpy as np
import numpy.typing as npt

# The slice in a lane, -1 where there is none; how many iterations it has had; 1 if they were enough.
SLOT, ITERATION, SETTLED = 0, 1, 2


def empty_lanes(lanes: int) -> npt.NDArray[np.int64]:
    """The state of lanes that hold no slice."""
    state = np.zeros((3, lanes), np.int64)
    state[SLOT] = -1
    return state
