from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kising import draw_couplings
from kising.errors import CheckpointError
from kising.learning.checkpoint import load, save
from kising.learning.state import first_state


def test_damaged_states_are_refused() -> None:
    data = save(first_state(draw_couplings(8, 2, seed=1)))
    for broken in (b"", data[:50], data[:-30], b"x" * 100):
        with pytest.raises(CheckpointError, match="not a saved state"):
            load(broken)


@pytest.mark.parametrize("other", [{"held": (0, 0)}, {"trace": np.empty((0, 3))}])
def test_states_of_another_version_are_refused(other) -> None:
    state = first_state(draw_couplings(8, 2, seed=1))
    assert load(save(state)) == state
    with pytest.raises(CheckpointError, match="written by another version"):
        load(save(replace(state, **other)))
