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
    store: Store,
    missing: NDArray[np.uint64],
    sources: Iterable[SweepDirectory],
    *,
    stale: bool,
    say: Callable[[str], object],
) -> None:
    """Commit the runs that are `missing` and finished in one of the sources, and report how many there were; `stale`
    ones, made by other numerics, only where they are asked for.
    """
    for source in sources:
        found = _finished(source, missing, say)
        others = found.numerics != NUMERICS
        taken = found if stale else found.only(~others)
        if taken.ids.size:
            store.take_over(taken.rows)
            missing = np.setdiff1d(missing, taken.ids)
        say(f"{source.path}: {plural(int(taken.ids.size), 'finished run')} taken over{_note(others, stale)}")


def _finished(source: SweepDirectory, wanted: NDArray[np.uint64], say: Callable[[str], object]) -> Finished:
    if source.is_published:
        return finished_in(read_runs_table(source.runs_file), wanted)
    store = Store.open(source, writable=False)
    scan = store.scan()
    for part in scan.damaged:
        say(f"{source.path}: a damaged part is left out, its runs are run here: {part.name}: {part.reason}")
    for name, rows in scan.inventory.vanished.items():
        say(f"{source.path}: a part has vanished, its runs are run here: {name}, with {plural(rows, 'row')}")
    return finished_in(store.table(wanted), wanted)


def _note(others: NDArray[np.bool_], stale: bool) -> str:
    count = int(others.sum())
    if not count:
        return ""
    made = f"made by other numerics than version {NUMERICS}"
    return (
        f", {count} of them {made}" if stale else f"; {count} more {made}: add --stale keep to take them too"
    )
