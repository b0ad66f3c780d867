"""The artifacts of a sweep as tables: couplings and traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from kising.learning.trace_columns import TRACE_COLUMNS
from kising.sweep.store.artifacts import RunArtifacts, unpack_couplings, unpack_trace
from kising.sweep.store.column_types import Column
from kising.sweep.store.columns import COUPLINGS, TRACES
from kising.sweep.store.index import id_text


def couplings_of(artifacts: Sequence[RunArtifacts], runs: pd.DataFrame) -> pd.DataFrame:
    """One row per coupling of every run whose couplings were kept, columns as in COUPLINGS."""
    known = runs.set_index("run_id")
    frames = []
    for found in artifacts:
        if found.couplings is None:
            continue
        run: dict[Any, Any] = known.loc[id_text(found.run_id)].to_dict()
        truth, start, learned = unpack_couplings(found.couplings, run["model.visible"], run["model.hidden"])
        for block, true in truth.items():
            rows, columns = np.indices(true.shape if true.ndim == 2 else (*true.shape, 1))
            frames.append(
                pd.DataFrame(
                    {
                        "run_id": id_text(found.run_id),
                        "point_id": run["point_id"],
                        "realization": run["realization"],
                        "block": block,
                        "row": rows.ravel(),
                        "column": columns.ravel(),
                        "true": true.ravel(),
                        "start": start[block].ravel(),
                        "learned": learned[block].ravel(),
                    }
                )
            )
    return _joined(frames, COUPLINGS)


def traces_of(artifacts: Sequence[RunArtifacts], runs: pd.DataFrame) -> pd.DataFrame:
    """One row per EM iteration of every run whose trace was kept, columns as in TRACES."""
    known = runs.set_index("run_id")
    frames = []
    for found in artifacts:
        if found.trace is None:
            continue
        run = known.loc[id_text(found.run_id)]
        frame = pd.DataFrame(unpack_trace(found.trace), columns=list(TRACE_COLUMNS))
        for place, name in enumerate(("point_id", "realization")):
            frame.insert(place, name, run[name])
        frame.insert(0, "run_id", id_text(found.run_id))
        frames.append(frame)
    return _joined(frames, TRACES)


def _joined(frames: list[pd.DataFrame], columns: Sequence[Column]) -> pd.DataFrame:
    names = [column.name for column in columns]
    whole = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=names)
    dtypes: Any = {column.name: column.dtype for column in columns}
    return whole[names].astype(dtypes)
