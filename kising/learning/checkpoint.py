"""A state of learning as bytes, and back: plain arrays in an npz archive, nothing that can run code when it is read."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from kising.blocks import BLOCKS
from kising.errors import CheckpointError
from kising.estimators.gibbs.chains import Chains
from kising.learning.state import Anchor, EMState, History, Mixture, Rounds, Sampler
from kising.learning.trace_columns import TRACE_COLUMNS
from kising.model import Couplings


def save(state: EMState) -> bytes:
    """The whole state, every bit of it."""
    buffer = io.BytesIO()
    origin = {"estimator": state.estimator, "slices": state.slices}
    arrays: dict[str, Any] = {
        **_of_sampler(state.sampler),
        **_of_anchor(state.anchor),
        **_of_rounds(state.rounds),
        **state.couplings._asdict(),
        **state.history._asdict(),
        "held": np.array(state.held, dtype=np.int64),
        "trace": state.trace,
        "outcome": np.array(state.outcome),
        **{name: np.array(x) for name, x in origin.items() if x is not None},
    }
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _of_sampler(sampler: Sampler | None) -> dict[str, Any]:
    if sampler is None:
        return {}
    return {
        "key": np.array(sampler.key),
        # One bit per hidden spin: chains are the bulk of a state.
        "chains": np.packbits(sampler.chains > 0),
        "chains_shape": np.array(sampler.chains.shape),
        "averages": np.array(sampler.averages),
        "sampled_iterations": np.array(sampler.iterations),
        "batches": sampler.batches,
        "batch": np.array(sampler.batch),
        "zeros": sampler.zeros,
    }


def _of_anchor(anchor: Anchor | None) -> dict[str, Any]:
    if anchor is None:
        return {}
    return {
        **{f"anchor_{name}": x for name, x in anchor.couplings._asdict().items()},
        "anchor_chains": np.packbits(anchor.chains > 0),
        "anchor_shape": np.array(anchor.chains.shape),
        "anchor_rows": np.array(anchor.rows),
        "anchor_shares": np.array(anchor.mixture),
    }


def _anchor(found: Mapping[str, Any]) -> Anchor | None:
    if "anchor_rows" not in found:
        return None
    couplings = Couplings(*(found[f"anchor_{name}"] for name in BLOCKS))
    return Anchor(
        couplings,
        _spins(found["anchor_chains"], found["anchor_shape"]),
        bool(found["anchor_rows"]),
        Mixture(*map(float, found["anchor_shares"])),
    )


def _of_rounds(rounds: Rounds | None) -> dict[str, Any]:
    if rounds is None:
        return {}
    plain = rounds._asdict()
    nested = plain.pop("rest")._asdict() | plain.pop("history")._asdict()
    return {f"rounds_{name}": np.asarray(x) for name, x in (plain | nested).items()}


def _rounds(found: Mapping[str, Any]) -> Rounds | None:
    if "rounds_left" not in found:
        return None
    own = {name.removeprefix("rounds_"): x for name, x in found.items() if name.startswith("rounds_")}
    return Rounds(
        rest=Couplings(*(own[name] for name in BLOCKS)),
        left=int(own["left"]),
        arrived=bool(own["arrived"]),
        given_up=int(own["given_up"]),
        sizes=own["sizes"],
        iterations=own["iterations"],
        start=own["start"],
        best=own["best"],
        history=_history(own),
    )


def _history(found: Mapping[str, Any]) -> History:
    return History(
        found["points"],
        found["steps"],
        float(found["size"]),
        int(found["shrinking"]),
        found["velocity"],
        found["marks"],
    )


def _spins(packed: Any, shape: Any) -> Chains:
    n_slices, hidden = (int(n) for n in shape)
    bits = np.unpackbits(packed, count=n_slices * hidden).reshape(n_slices, hidden)
    return np.where(bits > 0, 1, -1).astype(np.int8)


def _sampler(found: Mapping[str, Any]) -> Sampler | None:
    if "key" not in found:
        return None
    return Sampler(
        key=np.uint64(found["key"]),
        chains=_spins(found["chains"], found["chains_shape"]),
        averages=bool(found["averages"]),
        iterations=int(found["sampled_iterations"]),
        batches=found["batches"],
        batch=int(found["batch"]),
        zeros=found["zeros"],
    )


def load(data: bytes) -> EMState:
    """The state that was saved; a CheckpointError where the bytes are damaged or not a state."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
        held = tuple(int(h) for h in found["held"])
        if len(held) != len(BLOCKS) or found["trace"].shape[1] != len(TRACE_COLUMNS):
            raise CheckpointError(
                "the saved state has another shape: it was written by another version of kising"
            )
        return EMState(
            couplings=Couplings(*(found[name] for name in BLOCKS)),
            history=_history(found),
            held=held,
            trace=found["trace"],
            outcome=str(found["outcome"]),
            sampler=_sampler(found),
            anchor=_anchor(found),
            rounds=_rounds(found),
            estimator=str(found["estimator"]) if "estimator" in found else None,
            slices=int(found["slices"]) if "slices" in found else None,
        )
    except CheckpointError:
        raise
    except Exception as error:  # damaged archives and arrays raise many undocumented exceptions
        raise CheckpointError(f"not a saved state of learning: {error}") from error
