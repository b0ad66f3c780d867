"""The tables of a sweep as text: what `kising run` prints at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd

from kising.blocks import BONDS
from kising.report.summary import AXES
from kising.sweep.store.column_types import Column
from kising.sweep.store.columns import COLUMNS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MOST_ROWS = 40


class _PointTable(NamedTuple):
    """A table with one row per point. Its columns are those that declare it as their `console` table."""

    name: str
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
        ("runs", "failed", "diverged"),
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
        "Log-likelihood of what was held out, nats per slice: mean ± standard error over folds",
        (),
    ),
    _PointTable(
        "averages",
        "infer",
        "Averages at the true couplings: fractions, and differences from exact averages where asked for",
        ("runs", "failed"),
    ),
)


def show(console: Console, summary: pd.DataFrame, scaling: pd.DataFrame) -> None:
    """Print convergence, errors and slopes, with a column for every parameter that varies."""
    for title, table in tables(summary, scaling):
        console.print(title)
        console.print(table)
    if len(summary) > MOST_ROWS:
        console.print(f"... and {len(summary) - MOST_ROWS} more points: summary.parquet has them all.\n")


def tables(summary: pd.DataFrame, scaling: pd.DataFrame) -> Iterator[tuple[str, Table]]:
    """The tables that have something in them, each with its title."""
    varied = [name for name in AXES if summary[name].nunique() > 1]
    tasks = set(summary["task"])
    for table in _POINT_TABLES:
        columns = [
            column for column in COLUMNS if column.console == table.name and _is_known(summary, column)
        ]
        if table.task in tasks and (columns or table.counts):
            yield _points(table, summary.head(MOST_ROWS), varied, columns)
    if len(scaling):
        yield _slopes(scaling, [name for name in varied if name != "data.length"])


def _is_known(summary: pd.DataFrame, column: Column) -> bool:
    """Whether any point has a value in the column."""
    return any(summary[found.name].notna().any() for found in column.summary_columns())


def _points(
    table: _PointTable, shown: pd.DataFrame, varied: Sequence[str], columns: Sequence[Column]
) -> tuple[str, Table]:
    return _table(
        table.title,
        [*_short(varied), *table.counts, *(column.heading for column in columns)],
        (
            [
                *(_value(row[name]) for name in (*varied, *table.counts)),
                *(_summary(row, column) for column in columns),
            ]
            for _, row in shown.iterrows()
        ),
    )


def _slopes(scaling: pd.DataFrame, varied: Sequence[str]) -> tuple[str, Table]:
    return _table(
        "How the error falls with data: slope of log RMSE on log T, with 95% interval (1/√T is -0.5)",
        [*_short(varied), "", "slope", "interval", "T", "lengths", "realizations", "runs left out"],
        (
            [
                *(_value(row[name]) for name in varied),
                str(row["block"]),
                _number(row["slope"]),
                f"{_number(row['slope_low'])} .. {_number(row['slope_high'])}",
                f"{_value(row['shortest'])} .. {_value(row['longest'])}",
                *(_value(row[name]) for name in ("points", "realizations", "left_out")),
            ]
            for _, row in scaling.head(len(BONDS) * MOST_ROWS).iterrows()
        ),
    )


def _table(title: str, headings: list[str], rows: Iterator[list[str]]) -> tuple[str, Table]:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in headings:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return title, table


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
            return _number(values[0])
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
