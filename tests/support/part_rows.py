"""Rows of made-up runs, as a store commits them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kising.sweep.store.index import id_text
from kising.sweep.store.run_store import Store

Row = dict[str, Any]


def number(i: int) -> int:
    return i * 0x9E3779B97F4A7C15 % 2**64


def make_row(i: int, **changes: object) -> Row:
    row: Row = {
        "run_id": id_text(number(i)),
        "point_id": id_text(number(i // 3 + 10**6)),
        "task": "learn",
        "seed": 7,
        "model.visible": 20,
        "model.hidden": 2,
        "model.bonds": "gaussian",
        "model.strength": 1.0,
        "model.connectivity": 0.1,
        "data.length": 1000 + i,
        "learner.estimator": "bp",
        "learner.correlations": "corrected",
        "learner.hold": 3,
        "score.exact": False,
        "realization": i % 3,
        "status": "done",
        "outcome": "converged",
        "converged_J": True,
        "rmse_J": 1 / (i + 1),
        "iterations": i,
        "seconds": 0.5,
        "cpu_seconds": 0.25,
        "host": "here",
        "numerics": 1,
        "version": "0.1.0",
    }
    return {**row, **changes}


def failed_row(i: int, error: str = "ValueError: no", **changes: object) -> Row:
    nothing = dict.fromkeys(("outcome", "converged_J", "rmse_J", "iterations"))
    return make_row(i, status="failed", error=error, **nothing, **changes)


def order_of(indices: Iterable[int]) -> NDArray[np.uint64]:
    return np.array([number(i) for i in indices], dtype=np.uint64)


def ids_in(store: Store) -> set[int]:
    return {int(i) for i in store.scan().ids}


def numbers(indices: Iterable[int]) -> set[int]:
    return {number(i) for i in indices}
