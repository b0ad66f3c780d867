"""What a sweep keeps of learning besides its rows: couplings and traces, as bytes in a column each.

Both are little-endian float64 in C order, so the same learning gives the same bytes. Couplings are those of the
truth, of the start and as learned (hidden units matched to the truth where the start was random), each as J, K,
L; a trace is a row an iteration, columns as in TRACE_COLUMNS.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from kising.options import Keep
    from kising.sweep.plan import Plan

LARGEST_KEPT: Final = 256_000_000
"""Bytes that a sweep may keep: parts that hold them are read whole."""

BLOCKS: Final = ("J", "K", "L")

#: A test holds these equal to kising.learning.em.TRACE_COLUMNS, which is not imported here: it would load the
#: compiler of the kernels.
TRACE_COLUMNS: Final = (
    "iteration",
    *(f"step_{x}" for x in BLOCKS),
    *(f"rmse_{x}" for x in BLOCKS),
    *("bp_converged", "corrected", "abs_m", "abs_mu", "abs_pair", "log_likelihood", "estep_iterations"),
    *(f"noise_{x}" for x in BLOCKS),
)

_NUMBER: Final = np.dtype("<f8")


class Kept(NamedTuple):
    """What is kept of one run; None where it was not asked for."""

    run_id: int
    couplings: bytes | None
    trace: bytes | None


class Holder(Protocol):
    """Something that says of which runs something is kept."""

    def kept(self, order: NDArray[np.uint64]) -> Iterable[Kept]:
        """What is kept of these runs."""


def pack(arrays: Iterable[NDArray[np.float64]]) -> bytes:
    """Return arrays, one after the other, as bytes."""
    return b"".join(np.ascontiguousarray(array, dtype=_NUMBER).tobytes() for array in arrays)


def unpack_couplings(data: bytes, visible: int, hidden: int) -> list[dict[str, NDArray[np.float64]]]:
    """Return the couplings of truth, start and result, each as arrays by block."""
    shapes = {"J": (visible, visible), "K": (visible, hidden), "L": (hidden, visible)}
    numbers, found, place = np.frombuffer(data, dtype=_NUMBER), [], 0
    for _ in range(3):
        blocks = {}
        for name, shape in shapes.items():
            size = shape[0] * shape[1]
            blocks[name] = numbers[place : place + size].reshape(shape)
            place += size
        found.append(blocks)
    return found


def unpack_trace(data: bytes) -> NDArray[np.float64]:
    """Return a trace, a row an iteration."""
    return np.frombuffer(data, dtype=_NUMBER).reshape(-1, len(TRACE_COLUMNS))


def bytes_a_run(keep: Keep, visible: int, hidden: int, iterations: int) -> int:
    """Return the most bytes that are kept of a run."""
    couplings = 3 * visible * (visible + 2 * hidden) if keep.couplings else 0
    trace = iterations * len(TRACE_COLUMNS) if keep.trace else 0
    return _NUMBER.itemsize * (couplings + trace)


def lacking(plan: Plan, holder: Holder) -> NDArray[np.bool_]:
    """Return which runs of a plan have nothing kept that now is asked for, as a mask."""
    keep = plan.spec.keep
    if not keep.asks:
        return np.zeros(plan.n_runs, dtype=bool)
    wanted = np.arange(plan.n_runs) % plan.spec.realizations < keep.realizations
    whole = np.fromiter(
        (
            one.run_id
            for one in holder.kept(plan.ids[wanted])
            if (one.couplings or not keep.couplings) and (one.trace or not keep.trace)
        ),
        dtype=np.uint64,
    )
    return wanted & ~np.isin(plan.ids, whole)
