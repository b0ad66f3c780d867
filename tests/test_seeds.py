from __future__ import annotations

import numpy as np
import pytest

from kising.errors import InputError
from kising.learning.starts import chain_seed, seeds_of
from kising.seeds import Seed, as_numbers, random_stream

SEEDS = {
    "a number": 3,
    "a large number": 2**70 + 1,
    "several": (1, 2**40),
    "a list": [5, 0],
    "a sequence": np.random.SeedSequence(7),
    "a large sequence": np.random.SeedSequence(2**200),
    "of several": np.random.SeedSequence((1, 2**33)),
    "a child": np.random.SeedSequence(7).spawn(3)[2],
    "a child of a large one": np.random.SeedSequence(2**150, spawn_key=(2**33, 4)),
}


def drawn(seed: Seed) -> list[float]:
    return random_stream(seed).random(5).tolist()


@pytest.mark.parametrize("name", SEEDS)
def test_seeds_as_numbers_draw_the_same(name: str) -> None:
    seed = SEEDS[name]
    numbers = as_numbers(seed)
    assert isinstance(numbers, int | tuple)
    assert all(type(number) is int for number in np.atleast_1d(np.array(numbers, dtype=object)))
    assert drawn(numbers) == drawn(seed)
    assert drawn(chain_seed(numbers)) == drawn(chain_seed(seed))
    assert [drawn(x) for x in seeds_of(numbers, 3)] == [drawn(x) for x in seeds_of(seed, 3)]


def test_numbers_of_numpy_are_numbers() -> None:
    assert (as_numbers(np.int64(4)), type(as_numbers(np.int64(4)))) == (4, int)
    assert as_numbers(np.array([4, 2**40])) == (4, 0, 256)


@pytest.mark.parametrize("seed", [None, -1, "x", 1.5])
def test_what_is_not_a_seed_is_refused(seed: object) -> None:
    with pytest.raises((InputError, ValueError, TypeError)):
        as_numbers(seed)
