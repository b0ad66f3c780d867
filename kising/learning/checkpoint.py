"""A state of learning as bytes, and back: plain arrays in an npz archive, nothing that could run code when
read.
"""

import io
import zipfile

import numpy as np

from kising.learning.em import TRACE_COLUMNS, EMState
from kising.learning.steps import History
from kising.model import Couplings


class CheckpointError(ValueError):
    """Bytes that are not a saved state."""


def save(state: EMState) -> bytes:
    """The whole state, every bit of it."""
    buffer = io.BytesIO()
    np.savez(
        buffer,
        J=state.couplings.J,
        K=state.couplings.K,
        L=state.couplings.L,
        points=state.history.points,
        steps=state.history.steps,
        size=np.array(state.history.size),
        shrinking=np.array(state.history.shrinking),
        velocity=state.history.velocity,
        held=np.array(state.held, dtype=np.int64),
        trace=state.trace,
        outcome=np.array(state.outcome),
    )
    return buffer.getvalue()


def load(data: bytes) -> EMState:
    """The state that was saved; a CheckpointError where the bytes are damaged or not a state."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
        held = tuple(int(h) for h in found["held"])
        if len(held) != 3 or found["trace"].shape[1] != len(TRACE_COLUMNS):
            raise CheckpointError(
                "the saved state has another shape: it was written by another version of kising"
            )
        return EMState(
            couplings=Couplings(found["J"], found["K"], found["L"]),
            history=History(
                found["points"],
                found["steps"],
                float(found["size"]),
                int(found["shrinking"]),
                found["velocity"],
            ),
            held=held,
            trace=found["trace"],
            outcome=str(found["outcome"]),
        )
    except (zipfile.BadZipFile, KeyError, ValueError, OSError, EOFError, IndexError) as error:
        raise CheckpointError(f"not a saved state of learning: {error}") from error
