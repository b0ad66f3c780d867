"""Counter-based random numbers: Philox, a cipher that turns a counter and a key into noise.

A number depends on where it is used (iteration, slice, unit) and on a seed, and on nothing else: not on how many
were drawn before, by which thread, or in which process. This is Philox-4x32 with ten rounds (Salmon, Moraes, Dror
and Shaw, 2011).
"""

import numpy as np

from kising.kernels.jit import inlined
from kising.seeds import Seed, random_stream

ROUNDS = 10
FIRST_FACTOR, SECOND_FACTOR = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
FIRST_STEP, SECOND_STEP = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
TWO_TO_MINUS_32 = 2.0**-32

Words = tuple[np.uint64, np.uint64, np.uint64, np.uint64]


def key_of(seed: Seed) -> np.uint64:
    """The key of a seed, drawn from its random stream."""
    return np.uint64(random_stream(seed).integers(0, 2**64, dtype=np.uint64))


@inlined
def philox(key: np.uint64, a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64) -> Words:
    """Four random words of 32 bits for a counter of four words."""
    low, high = key & LOW, key >> HALF
    for _ in range(ROUNDS):
        first, second = a * FIRST_FACTOR, c * SECOND_FACTOR
        a, b, c, d = (second >> HALF) ^ b ^ low, second & LOW, (first >> HALF) ^ d ^ high, first & LOW
        low, high = (low + FIRST_STEP) & LOW, (high + SECOND_STEP) & LOW
    return a, b, c, d


@inlined
def uniform(word: np.uint64) -> float:
    """A uniform random number, strictly between 0 and 1."""
    return (float(word) + 0.5) * TWO_TO_MINUS_32
