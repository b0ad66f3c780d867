"""Seeds: nothing is random without an explicit one."""

from collections.abc import Sequence

import numpy as np

from kising.errors import InputError

Seed = int | Sequence[int] | np.random.SeedSequence


def random_stream(seed: Seed) -> np.random.Generator:
    """The generator of an explicit seed. Its algorithm is named, so that a new default of NumPy changes nothing."""
    if seed is None:
        raise InputError("seed: give a number; nothing in kising is random without an explicit seed")
    return np.random.Generator(np.random.PCG64(seed))
