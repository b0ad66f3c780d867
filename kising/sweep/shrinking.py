"""Which finished runs an edited sweep would leave out of the tables of its directory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kising.errors import SpecError
from kising.sweep.plan import Plan
from kising.sweep.spec import read_spec
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.index import Scan
from kising.sweep.store.parquet import run_ids_in


def orphans(plan: Plan, scan: Scan) -> NDArray[np.uint64]:
    """The ids of finished runs that are not in the plan."""
    return scan.ids[plan.order(scan.ids) < 0] if len(scan.ids) else scan.ids


def runs_dropped(plan: Plan, scan: Scan, directory: SweepDirectory) -> int:
    """Count the finished runs that are in the tables now and would not be in those of the plan.

    Runs that an earlier session left out on purpose stay in the parts and are not counted again. A run is in the
    tables if the last sweep.yaml or runs.parquet has it: the former may have been edited, and a driver that was killed
    has not written the latter.
    """
    gone = orphans(plan, scan)
    if not gone.size:
        return 0
    try:
        before = Plan.of(read_spec(directory.sweep_file)).order(gone) >= 0
    except SpecError:
        return int(gone.size)
    return int((before | np.isin(gone, run_ids_in(directory.runs_file))).sum())
