from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import small_network

from kising.learning.layout import flatten, unflatten
from kising.learning.scores import nominal_scales
from kising.learning.state import no_history
from kising.learning.steps.acceleration import (
    FAR_OUT,
    MEMORY,
    MOST_BEYOND,
    MOST_STEPS,
    accelerate,
    within_reach,
)
from kising.model import Couplings


def test_acceleration_solves_a_linear_fixed_point_in_few_steps() -> None:
    """On f(x) = A (x* - x), Anderson acceleration with enough memory is a Krylov method: exact after rank(A)
    + 1 steps.
    """
    rng = np.random.default_rng(0)
    like, _ = small_network(1, visible=3, hidden=2)
    scales = nominal_scales(3, 2)
    n = sum(x.size for x in like)
    target = 0.1 * rng.standard_normal(n)
    rates = rng.choice([0.05, 0.2, 0.6], n)
    x, history = unflatten(np.zeros(n), like, scales), no_history(n)
    for _ in range(MEMORY + 1):
        step = unflatten(rates * (target - flatten(x, scales)), like, scales)
        x, history = accelerate(x, step, history, scales, patience=0)
    # Plain steps would be left with (1 - 0.05)^6 = 0.74 of the error.
    assert np.linalg.norm(flatten(x, scales) - target) < 1e-3 * np.linalg.norm(target)


def test_memory_is_bounded_and_dropped_when_steps_grow() -> None:
    like, _ = small_network(1, visible=3, hidden=2)
    scales = nominal_scales(3, 2)
    n = sum(x.size for x in like)
    x, history = like, no_history(n)
    rng = np.random.default_rng(1)
    for _ in range(20):
        x, history = accelerate(
            x, unflatten(0.1 * rng.standard_normal(n), like, scales), history, scales, patience=0
        )
        assert len(history.steps) <= MEMORY + 1
    before = x
    big = unflatten(rng.standard_normal(n), like, scales)
    x, history = accelerate(x, big, history, scales, patience=0)
    assert len(history.steps) == 1
    expected = within_reach(before, big, scales)
    assert all(np.array_equal(a, b) for a, b in zip(x, expected, strict=True))


@pytest.mark.parametrize("begin", [0.0, FAR_OUT])
def test_no_coupling_is_thrown_far_out_by_more_than_some_of_its_steps(begin: float) -> None:
    like, _ = small_network(1, visible=3, hidden=2)
    scales = nominal_scales(3, 2)
    n = sum(x.size for x in like)
    x, history = unflatten(np.full(n, begin), like, scales), no_history(n)
    # Steps that hardly shrink: where they would vanish is a hundred of them away.
    rates = np.full(n, 0.02)
    for k in range(2):
        step = unflatten(rates * (0.99**k), like, scales)
        before, (x, history) = x, accelerate(x, step, history, scales, patience=0)
    moved = flatten(x, scales) - flatten(before, scales)
    limit = MOST_STEPS * flatten(step, scales) + MOST_BEYOND
    if begin:
        np.testing.assert_allclose(moved, limit)
    else:
        # Limited by the reach of their block alone, of one bond scale.
        np.testing.assert_allclose(moved, 1.0)


def test_no_block_moves_beyond_its_reach() -> None:
    couplings, _ = small_network(1, visible=3, hidden=2)
    scales = nominal_scales(3, 2)
    huge = Couplings(*(1e6 * np.ones_like(x) for x in couplings))
    moved = within_reach(couplings, huge, scales)
    for x, y, sd in zip(couplings, moved, scales, strict=True):
        assert y.shape == x.shape
        if not x.size:
            continue
        reach = max(np.sqrt(np.mean(x**2)), sd)
        assert np.sqrt(np.mean((y - x) ** 2)) == pytest.approx(reach)


def test_acceleration_waits_until_steps_have_shrunk() -> None:
    like, _ = small_network(1, visible=3, hidden=2)
    scales = nominal_scales(3, 2)
    n = sum(x.size for x in like)
    x, history = like, no_history(n)
    sizes = [1.0, 0.9, 0.8, 0.7, 0.95, 0.9, 0.85, 0.8]
    remembered = []
    for size in sizes:
        step = unflatten(np.full(n, 0.01 * size), like, scales)
        x, history = accelerate(x, step, history, scales, patience=3)
        remembered.append(len(history.steps))
    # Steps shrink three times in a row up to the fourth and, after growing at the fifth, again up to the
    # eighth.
    assert remembered == [1, 1, 1, 2, 1, 1, 1, 2]
