"""A recording reaches the workers of Ray, and rows are the same as without Ray."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from support.bits import assert_same_bits

from kising import draw_couplings, run_sweep, simulate
from kising.learning.selection import selection_spec
from kising.sweep.store.columns import DETERMINISTIC_COLUMNS


def test_rows_on_ray_are_those_of_this_process(tmp_path: Path) -> None:
    couplings = draw_couplings(6, 1, strength=1.5, bias=0.3, seed=1)
    # Larger than what Ray sends inside a message: it goes through the object store, read-only.
    spins = simulate(couplings, 20_000, seed=2).visible
    np.savez(tmp_path / "spins.npz", spins=spins)
    learner = {"estimator": "exact", "max_iterations": 4}
    spec = selection_spec(tmp_path / "spins.npz", [0, 1], seed=3, folds=2, learner=learner)
    here = run_sweep(spec, out=tmp_path / "here", in_process=True)
    there = run_sweep(spec, out=tmp_path / "there", cpus=2)
    assert (there.runs["status"] == "done").all(), there.runs["error"].tolist()
    columns = list(DETERMINISTIC_COLUMNS)
    assert_same_bits(there.runs[columns], here.runs[columns])
