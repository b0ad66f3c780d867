"""Finished runs of other sweeps, taken over instead of being run again.

A run is defined by its id: the same id in another directory means the same numbers. So a sweep can start from what its
preset, a smaller version of it, or published tables already have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from kising.messages import plural
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.parquet import Finished, finished_in, read_runs_table
from kising.sweep.store.run_store import Store
from kising.version import NUMERICS


def take_over(
    store: Store, missing: NDArray[np.uint64], sources: Iterable[SweepDirectory], say: Callable[[str], object]
) -> None:
    """Commit the runs that are `missing` and finished in one of the sources, and report how many there were."""
    for source in sources:
        found = _finished(source, missing)
        if found.ids.size:
            store.take_over(found.rows)
            missing = np.setdiff1d(missing, found.ids)
        say(f"{source.path}: {plural(int(found.ids.size), 'finished run')} taken over{_left(found)}")


def _finished(source: SweepDirectory, wanted: NDArray[np.uint64]) -> Finished:
    if source.is_published:
        rows = read_runs_table(source.runs_file)
    else:
        rows = Store.open(source, writable=False).table(wanted)
    return finished_in(rows, wanted, NUMERICS)


def _left(found: Finished) -> str:
    if not found.stale:
        return ""
    verb = "was" if found.stale == 1 else "were"
    return f"; {found.stale} more {verb} made by other numerics, this is version {NUMERICS}"
