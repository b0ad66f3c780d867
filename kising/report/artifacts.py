"""What a sweep kept of learning, as tables: couplings and traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from kising.sweep.store.artifacts import TRACE_COLUMNS, Kept, unpack_couplings, unpack_trace
from kising.sweep.store.columns import id_text


def couplings_of(kept: Sequence[Kept], runs: pd.DataFrame) -> pd.DataFrame:
    """A row a coupling of every run whose couplings were kept.

    run_id, point_id, realization; block J, K or L, with row and column in it; true, start, learned.
    """
    known = runs.set_index("run_id")
    frames = []
    for one in kept:
        if one.couplings is None:
            continue
        run: dict[Any, Any] = known.loc[id_text(one.run_id)].to_dict()
        truth, start, learned = unpack_couplings(one.couplings, run["model.visible"], run["model.hidden"])
        for block, true in truth.items():
            rows, columns = np.indices(true.shape)
            frames.append(
                pd.DataFrame(
                    {
                        "run_id": id_text(one.run_id),
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
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def traces_of(kept: Sequence[Kept], runs: pd.DataFrame) -> pd.DataFrame:
    """A row an EM iteration of every run whose trace was kept: run_id, point_id, realization, TRACE_COLUMNS."""
    known = runs.set_index("run_id")
    frames = []
    for one in kept:
        if one.trace is None:
            continue
        run = known.loc[id_text(one.run_id)]
        frame = pd.DataFrame(unpack_trace(one.trace), columns=list(TRACE_COLUMNS)).astype(
            {"iteration": np.int64}
        )
        for place, name in enumerate(("point_id", "realization")):
            frame.insert(place, name, run[name])
        frame.insert(0, "run_id", id_text(one.run_id))
        frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
