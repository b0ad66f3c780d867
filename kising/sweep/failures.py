"""Failed runs: which they are, and why they failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kising.options import LEAVES
from kising.sweep.labels import label_row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kising.sweep.store.run_store import Store


class Failure(NamedTuple):
    """A failed run."""

    run_id: str
    error: str
    values: Mapping[str, object]
    """its parameters and realization"""

    def label(self, keys: Sequence[str]) -> str:
        """Its parameters `keys` in words."""
        return label_row(self.values, keys)


def failure_of(row: Mapping[Any, Any]) -> Failure:
    """The failure described by a row."""
    values = {key: row.get(key) for key in ("task", "seed", *LEAVES, "realization")}
    return Failure(str(row["run_id"]), str(row["error"]), values)


def failures_in(store: Store, ids: NDArray[np.uint64]) -> list[Failure]:
    """The failed runs with these ids, from the parts."""
    if not ids.size:
        return []
    return [failure_of(row) for row in store.read_runs(ids).to_dict("records")]
