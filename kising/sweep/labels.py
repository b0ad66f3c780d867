"""Labels of runs: what distinguishes a run from the other runs of its sweep, with the keys of the sweep file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kising.sweep.plan import Run
    from kising.sweep.spec import SweepSpec


def varied_keys(spec: SweepSpec) -> tuple[str, ...]:
    """The keys that the axes of a sweep vary."""
    return tuple(key for axis in spec.axes for key in axis.keys)


def label_row(row: Mapping[str, object], keys: Sequence[str]) -> str:
    """A row in words: `data.length=200, learner.estimator=bp, realization 3`. Keys without effect are left out."""
    values = {key: row.get(key) for key in keys}
    words = [f"{key}={_written(value)}" for key, value in values.items() if not _is_null(value)]
    return ", ".join([*words, f"realization {row['realization']}"])


def label_run(run: Run, keys: Sequence[str]) -> str:
    """A run in the same words."""
    return label_row({**run.point.values(), "realization": run.realization}, keys)


def _written(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_null(value: object) -> bool:
    # None, NaN and pandas' NA, without loading pandas.
    return value is None or value != value or type(value).__name__ == "NAType"
