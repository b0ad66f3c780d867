"""Counter-based random numbers."""

from __future__ import annotations

import numpy as np
import pytest

from kising.kernels.counter import key_of, philox, uniform
from kising.kernels.jit import kernel


@kernel
def words(key: int, a: int, b: int, c: int, d: int) -> tuple:
    return philox(np.uint64(key), np.uint64(a), np.uint64(b), np.uint64(c), np.uint64(d))


@kernel
def many(key: int, n: int) -> np.ndarray:
    values = np.empty((n, 4))
    for t in range(n):
        found = philox(np.uint64(key), np.uint64(t), np.uint64(0), np.uint64(0), np.uint64(0))
        for k in range(4):
            values[t, k] = uniform(found[k])
    return values


@pytest.mark.parametrize(
    ("fill", "answer"),
    [
        (0x00000000, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (0xFFFFFFFF, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ],
)
def test_known_answers(fill: int, answer: tuple) -> None:
    """Those published by the authors of Philox-4x32-10: all bits clear, and all bits set."""
    key = np.uint64(fill) << np.uint64(32) | np.uint64(fill)
    assert words(key, fill, fill, fill, fill) == answer


def test_a_bit_of_the_key_or_the_counter_changes_everything() -> None:
    base = words(7, 1, 2, 3, 4)
    for other in (words(6, 1, 2, 3, 4), words(7, 0, 2, 3, 4), words(7, 1, 2, 3, 5)):
        flipped = sum(bin(int(x) ^ int(y)).count("1") for x, y in zip(base, other, strict=True))
        assert 40 <= flipped <= 88


def test_uniform_numbers_are_uniform_and_independent() -> None:
    values = many(3, 100_000).reshape(-1)
    assert values.min() > 0
    assert values.max() < 1
    n = values.size
    assert abs(values.mean() - 0.5) < 5 * np.sqrt(1 / 12 / n)
    counts = np.histogram(values, bins=64, range=(0, 1))[0]
    assert np.sum((counts - n / 64) ** 2 / (n / 64)) < 63 + 5 * np.sqrt(2 * 63)
    centred = values - 0.5
    for lag in (1, 2, 4):
        assert abs(np.mean(centred[lag:] * centred[:-lag])) < 5 / 12 / np.sqrt(n)


def test_a_seed_has_one_key() -> None:
    assert key_of(5) == key_of(5) != key_of(6)
