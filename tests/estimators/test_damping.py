"""The damping of iterations."""

from __future__ import annotations

import numpy as np
import pytest

from kising.estimators.damping import damping_at

ADAPTIVE = -1.0


@pytest.mark.parametrize("cap", [1, 2, 7, 16, 100, 333, 1000])
def test_adaptive_damping_grows_in_three_stages(cap: int) -> None:
    """None for the first sixteenth of the iterations, 0.5 up to half of them, 0.8 for the rest."""
    found = [damping_at(iteration, ADAPTIVE, cap) for iteration in range(cap)]
    expected = [
        0.0 if iteration / cap < 1 / 16 else 0.5 if iteration / cap < 1 / 2 else 0.8
        for iteration in range(cap)
    ]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("damping", [0.0, 0.3, 0.95])
def test_constant_damping_is_constant(damping: float) -> None:
    assert {damping_at(iteration, damping, 50) for iteration in range(50)} == {damping}
