"""Made-up runs for tests of reports, with every column of runs.parquet."""

from __future__ import annotations

import pandas as pd

from kising.blocks import BONDS
from kising.sweep.store.columns import COLUMNS


def make_runs(rows: list[dict]) -> pd.DataFrame:
    """Rows with every column of runs.parquet; columns that are not given are null, or 0 or empty if never null. Biases,
    inputs and M count as not learned.
    """
    defaults = {
        "task": "learn", "model.strength": 1.0, "status": "done", "outcome": "converged",
        **{f"converged_{x}": True for x in BONDS if x != "M"},
    }  # fmt: skip
    neutral = {c.name: {"int": 0, "string": ""}.get(c.kind) for c in COLUMNS if not c.nullable}
    frame = pd.DataFrame([{c.name: None for c in COLUMNS} | neutral | defaults | row for row in rows])
    return frame.astype({column.name: column.dtype for column in COLUMNS})
