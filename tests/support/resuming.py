"""Learning that was stopped and resumed, compared with learning that was not."""

from __future__ import annotations

import numpy as np

from kising.learning.checkpoint import load, save
from kising.learning.em import EMState, Learning, Problem, advance


def assert_continues(start: EMState, problem: Problem, learning: Learning, *, stop: int) -> None:
    """Saved after `stop` iterations and read back, learning ends in the same bits."""
    whole = state = start
    while whole.outcome == "running":
        whole = advance(whole, problem, learning)
    for _ in range(stop):
        state = advance(state, problem, learning)
    state = load(save(state))
    while state.outcome == "running":
        state = advance(state, problem, learning)
    assert state.outcome == whole.outcome
    np.testing.assert_array_equal(state.trace, whole.trace)
    for x, y in zip(state.couplings, whole.couplings, strict=True):
        np.testing.assert_array_equal(x, y)
