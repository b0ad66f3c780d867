"""The summary and scaling tables as text, for the console and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from kising.blocks import BONDS
from kising.report.summary import varied
from kising.sweep.store.column_types import Column
from kising.sweep.store.columns import COLUMNS


class TextTable(NamedTuple):
    """A table as text."""

    title: str
    headings: list[str]
    rows: list[list[str]]
    keys: int = 0
    """how many of the columns, from the first one, are parameters"""

    def without_constants(self) -> tuple[TextTable, dict[str, str]]:
        """The table without the columns that are the same in all of several rows, and what these have."""
        if len(self.rows) < 2:
            return self, {}
        columns = list(zip(*self.rows, strict=True))
        constant = {i for i, column in enumerate(columns) if self.headings[i] and len(set(column)) == 1}
        kept = [i for i in range(len(columns)) if i not in constant]
        if all(i < self.keys for i in kept):
            kept = []  # nothing was measured that differs
        rows = [[row[i] for i in kept] for row in self.rows]
        same = {self.headings[i]: columns[i][0] for i in sorted(constant)}
        keys = sum(i < self.keys for i in kept)
        return TextTable(self.title, [self.headings[i] for i in kept], rows, keys), same


class _PointTable(NamedTuple):
    """A table with one row per point. Its columns are those that declare it as their `console` table."""

    name: str | None
    """None: columns that the console does not show"""
    task: str
    """of the sweeps that have it"""
    title: str
    counts: tuple[str, ...]
    """numbers of runs that stand before its columns"""


_POINT_TABLES: Final = (
    _PointTable(
        "convergence",
        "learn",
        "Fraction of runs that converged, with 95% Wilson interval",
        ("runs", "failed", "diverged", "stalled"),
    ),
    _PointTable(
        "stalled",
        "learn",
        "Runs that stalled: step, drift or Monte-Carlo error, as a multiple of its limit (mean)",
        (),
    ),
    _PointTable(
        "errors",
        "learn",
        "RMSE of the learned couplings, in units of the bond scale: mean ± standard error",
        (),
    ),
    _PointTable(
        "held out",
        "learn",
        "Held-out log-likelihood, nats per slice: mean ± standard error over folds",
        (),
    ),
    _PointTable(
        "averages",
        "infer",
        "Averages at the true couplings: fractions, and differences from exact averages where asked for",
        ("runs", "failed"),
    ),
)
_MORE: Final = _PointTable(None, "", "More about the points: means", ())


def text_tables(
    summary: pd.DataFrame, scaling: pd.DataFrame, most_rows: int, *, more: bool = False
) -> Iterator[TextTable]:
    """The tables that have something in them, with a column for every parameter that varies. `more`: also what the
    console does not show.
    """
    keys = varied(summary)
    tasks = set(summary["task"])
    for table in _POINT_TABLES:
        if table.task in tasks:
            yield from _point_tables(table, summary, keys, most_rows)
    if len(scaling):
        yield _slopes(scaling, [name for name in keys if name != "data.length"], most_rows)
    if more:
        yield from _point_tables(_MORE, summary, keys, most_rows)


def _point_tables(
    table: _PointTable, summary: pd.DataFrame, keys: Sequence[str], most_rows: int
) -> Iterator[TextTable]:
    columns = [
        column
        for column in COLUMNS
        if column.heading and column.console == table.name and _is_known(summary, column)
    ]
    if columns or table.counts:
        yield _points(table, summary.head(most_rows), keys, columns)


def _is_known(summary: pd.DataFrame, column: Column) -> bool:
    """Whether any point has a value in the column."""
    return any(summary[found.name].notna().any() for found in column.summary_columns())


def _points(
    table: _PointTable, shown: pd.DataFrame, keys: Sequence[str], columns: Sequence[Column]
) -> TextTable:
    return TextTable(
        table.title,
        [*_short(keys), *table.counts, *(column.heading for column in columns)],
        [
            [
                *(_value(row[name]) for name in (*keys, *table.counts)),
                *(_summary(row, column) for column in columns),
            ]
            for _, row in shown.iterrows()
        ],
        len(keys),
    )


def _slopes(scaling: pd.DataFrame, keys: Sequence[str], most_rows: int) -> TextTable:
    return TextTable(
        "How the error falls with data: slope of log RMSE on log T, with 95% interval (1/√T is -0.5)",
        [*_short(keys), "", "slope", "interval", "T", "lengths", "realizations", "runs left out"],
        [
            [
                *(_value(row[name]) for name in keys),
                str(row["block"]),
                _number(row["slope"]),
                f"{_number(row['slope_low'])} .. {_number(row['slope_high'])}",
                f"{_value(row['shortest'])} .. {_value(row['longest'])}",
                *(_value(row[name]) for name in ("points", "realizations", "left_out")),
            ]
            for _, row in scaling.head(len(BONDS) * most_rows).iterrows()
        ],
        len(keys) + 1,
    )


def _short(names: Sequence[str]) -> list[str]:
    """Parameters without their section, unless two would then be alike."""
    last = [name.rpartition(".")[2] for name in names]
    return [short if last.count(short) == 1 else name for name, short in zip(names, last, strict=True)]


def _summary(row: pd.Series, column: Column) -> str:
    """What a point has in a column: a mean, mean ± standard error, or a fraction with its interval."""
    assert column.summary is not None
    values = [row[found.name] for found in column.summary_columns()]
    if pd.isna(values[0]):
        return "-"
    match column.summary.statistic:
        case "mean":
            return f"{values[0]:.4g}" if column.kind == "int" else _number(values[0])
        case "spread":
            mean, _, sem = values
            return f"{mean:.3f}" + ("" if pd.isna(sem) else f" ± {sem:.3f}")
        case "fraction":
            share, low, high = values
            return f"{share:.2f} ({low:.2f}-{high:.2f})"


def _value(value: Any) -> str:
    if pd.isna(value):
        return "-"
    if isinstance(value, float | np.floating):
        return f"{value:g}"
    return str(value)


def _number(value: Any) -> str:
    return "-" if pd.isna(value) else f"{value:.3g}" if abs(value) < 1e-3 else f"{value:.3f}"
