"""Seeds: all random numbers follow from explicit ones."""

from collections.abc import Sequence
from operator import index

import numpy as np

from kising.errors import InputError

Seed = int | Sequence[int] | np.random.SeedSequence


def random_stream(seed: Seed) -> np.random.Generator:
    """The generator of an explicit seed. Its algorithm is named, so that a new default of NumPy changes nothing."""
    if seed is None:
        raise InputError("seed: give a number; nothing in kising is random without an explicit seed")
    return np.random.Generator(np.random.PCG64(seed))


def as_numbers(seed: Seed) -> int | tuple[int, ...]:
    """A seed as plain numbers, which can be compared and written to a file. All that is drawn from it, and from seeds
    made of it, stays the same.
    """
    random_stream(seed)  # refuses what is not a seed
    if isinstance(seed, np.random.SeedSequence):
        words = _words(seed.entropy)
        # NumPy fills up with zeros before it appends the key of a child.
        return (*words, *[0] * (seed.pool_size - len(words)), *_words(seed.spawn_key))
    return tuple(_words(seed)) if isinstance(seed, Sequence | np.ndarray) else int(seed)


def _words(numbers: object) -> list[int]:
    """Numbers of any size as words of 32 bits, the lowest of a number first: what NumPy makes of them."""
    if isinstance(numbers, Sequence | np.ndarray):
        return [word for number in numbers for word in _words(number)]
    rest = index(numbers)  # type: ignore[arg-type]
    words = [rest & 0xFFFFFFFF]
    while rest := rest >> 32:
        words.append(rest & 0xFFFFFFFF)
    return words
