"""Made-up runs for tests of reports, with every column of runs.parquet."""

from __future__ import annotations

import pandas as pd

from kising.sweep.store.columns import COLUMNS


def make_runs(rows: list[dict]) -> pd.DataFrame:
    """Rows with every column of runs.parquet; columns not given are null."""
    defaults = {
        "task": "learn", "model.strength": 1.0, "status": "done", "outcome": "converged",
        "converged_J": True, "converged_K": True, "converged_L": True,
    }  # fmt: skip
    frame = pd.DataFrame([{c.name: None for c in COLUMNS} | defaults | row for row in rows])
    for column in COLUMNS:
        kind = {"float": "float64", "int": "Int64", "bool": "boolean", "string": "string"}[column.kind]
        frame[column.name] = frame[column.name].astype(kind)
    return frame
