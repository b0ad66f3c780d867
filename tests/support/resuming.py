"""Learning that was stopped and resumed, compared with learning that was not."""

from __future__ import annotations

from itertools import islice

import numpy as np

from kising.learning.checkpoint import load, save
from kising.learning.session import Session


def assert_continues(session: Session, *, stop: int) -> None:
    """Saved after `stop` iterations and read back, learning ends in the same bits."""
    whole = session.run()
    *_, state = islice(session.states(session.begin()), stop)
    assert state.iteration == stop
    read = load(save(state))
    assert read == state
    resumed = session.run(read)
    assert resumed.outcome == whole.outcome
    np.testing.assert_array_equal(resumed.trace, whole.trace)
    for x, y in zip(resumed.couplings, whole.couplings, strict=True):
        np.testing.assert_array_equal(x, y)
