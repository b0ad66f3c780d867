"""Optional artifacts of learning: couplings and traces, stored as bytes in one column each.

Both are little-endian float64 in C order, so the same learning gives the same bytes. Couplings are those of the
truth, of the start and as learned (hidden units matched to the truth where the start was random), each block by
block; a trace has one row per EM iteration, columns as in TRACE_COLUMNS.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kising.blocks import BLOCKS, REQUIRED, TABLE, n_couplings, shapes
from kising.learning.trace_columns import TRACE_COLUMNS

if TYPE_CHECKING:
    from kising.options import Keep
    from kising.sweep.plan import Plan

LARGEST_KEPT: Final = 256_000_000
"""Largest size of a sweep's artifacts, in bytes: parts that hold them are read whole."""

_SETS: Final = 3  # of couplings: truth, start, learned
_NUMBER: Final = np.dtype("<f8")


# The blocks that artifacts have, newest first: networks had no M at first, and no fields before that.
_GENERATIONS: Final = (BLOCKS, tuple(name for name in BLOCKS if name != "M"), REQUIRED)


class RunArtifacts(NamedTuple):
    """The artifacts of one run; None where they were not asked for."""

    run_id: int
    couplings: bytes | None
    trace: bytes | None


class ArtifactSource(Protocol):
    """Whatever can look up the artifacts of runs."""

    def artifacts(self, order: NDArray[np.uint64]) -> Iterable[RunArtifacts]:
        """The artifacts of these runs; runs without any are left out."""


def pack(arrays: Iterable[NDArray[np.float64]]) -> bytes:
    """Return arrays, one after the other, as bytes."""
    return b"".join(np.ascontiguousarray(array, dtype=_NUMBER).tobytes() for array in arrays)


def unpack_couplings(data: bytes, visible: int, hidden: int) -> list[dict[str, NDArray[np.float64]]]:
    """Return the couplings of truth, start and result, each as arrays by block. Those written before networks had
    biases, or M, lack them.
    """
    numbers, sets, place = np.frombuffer(data, dtype=_NUMBER), [], 0
    wanted = shapes(visible, hidden)
    sizes = {name: int(np.prod(shape)) for name, shape in wanted.items()}
    names = next(
        (x for x in _GENERATIONS if _SETS * sum(sizes[name] for name in x) == numbers.size), REQUIRED
    )
    for _ in range(_SETS):
        blocks = {}
        for name, shape in wanted.items():
            if name not in names:
                continue
            size = sizes[name]
            blocks[name] = numbers[place : place + size].reshape(shape)
            place += size
        sets.append(blocks)
    return sets


def unpack_trace(data: bytes) -> NDArray[np.float64]:
    """Return a trace, one row per iteration. One written before networks had M, or fields, has fewer columns; those it
    lacks are NaN.
    """
    numbers = np.frombuffer(data, dtype=_NUMBER)
    for blocks in _GENERATIONS:
        lacking = tuple(f"_{block.name}" for block in TABLE if block.name not in blocks)
        names = tuple(name for name in TRACE_COLUMNS if not name.endswith(lacking))
        if numbers.size % len(names) == 0:
            rows = numbers.reshape(-1, len(names))
            if np.array_equal(rows[:, 0], np.arange(len(rows))):  # the first column counts iterations
                break
    found = np.full((len(rows), len(TRACE_COLUMNS)), np.nan)
    found[:, [TRACE_COLUMNS.index(name) for name in names]] = rows
    return found


def bytes_per_run(keep: Keep, visible: int, hidden: int, iterations: int) -> int:
    """Return the largest size of one run's artifacts, in bytes."""
    couplings = (
        _SETS * n_couplings(visible, hidden, bias=True, hidden_couplings=True) if keep.couplings else 0
    )
    trace = iterations * len(TRACE_COLUMNS) if keep.trace else 0
    return _NUMBER.itemsize * (couplings + trace)


def lacking_artifacts(plan: Plan, source: ArtifactSource) -> NDArray[np.bool_]:
    """Return a mask of the plan's runs: those that lack an artifact which the sweep file asks for."""
    keep = plan.spec.keep
    if not keep.asks:
        return np.zeros(plan.n_runs, dtype=bool)
    wanted = np.arange(plan.n_runs) % plan.spec.realizations < keep.realizations
    complete = np.fromiter(
        (
            found.run_id
            for found in source.artifacts(plan.ids[wanted])
            if (found.couplings or not keep.couplings) and (found.trace or not keep.trace)
        ),
        dtype=np.uint64,
    )
    return wanted & ~np.isin(plan.ids, complete)
