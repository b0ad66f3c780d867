"""The tables of a sweep as text: what `kising run` prints at its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kising.report.summary import AXES, BLOCKS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MOST_ROWS = 40


def show(console: Console, summary: pd.DataFrame, scaling: pd.DataFrame) -> None:
    """Print convergence, errors and slopes, with a column for every parameter that varies."""
    for title, table in tables(summary, scaling):
        console.print(title)
        console.print(table)
    if len(summary) > MOST_ROWS:
        console.print(f"... and {len(summary) - MOST_ROWS} points more: summary.parquet has them all.\n")


def tables(summary: pd.DataFrame, scaling: pd.DataFrame) -> Iterator[tuple[str, Table]]:
    """The tables that have something in them, each with its title."""
    varied = [name for name in AXES if name in summary and summary[name].nunique() > 1]
    shown = summary.head(MOST_ROWS)
    if shown[[f"converged_{x}" for x in BLOCKS]].notna().any(axis=None):
        yield _table(
            "Fraction of runs that converged, with 95% Wilson interval",
            [*_short(varied), "runs", "failed", "diverged", *BLOCKS],
            (
                [
                    *(_value(row[name]) for name in (*varied, "runs", "failed", "diverged")),
                    *(_fraction(row, f"converged_{x}") for x in BLOCKS),
                ]
                for _, row in shown.iterrows()
            ),
        )
        yield _table(
            "RMSE of the learned couplings, in units of the bond scale: mean ± standard error",
            [*_short(varied), *BLOCKS, "all zero"],
            (
                [
                    *(_value(row[name]) for name in varied),
                    *(_error(row, f"rmse_{x}") for x in BLOCKS),
                    _number(row["baseline_rmse"]),
                ]
                for _, row in shown.iterrows()
            ),
        )
    else:
        measures = {
            "bp_converged": "slices converged",
            "corrected": "pairs corrected",
            "hidden_overlap": "hidden overlap",
            "rmse_m": "RMSE m",
            "rmse_mu": "RMSE μ",
            "rmse_pair": "RMSE ⟨τσ⟩",
        }
        present = {name: words for name, words in measures.items() if shown[name].notna().any()}
        yield _table(
            "Averages at the true couplings: fractions, and differences from exact averages where asked for",
            [*_short(varied), "runs", "failed", *present.values()],
            (
                [
                    *(_value(row[name]) for name in varied),
                    _value(row["runs"]),
                    _value(row["failed"]),
                    *(_number(row[name]) for name in present),
                ]
                for _, row in shown.iterrows()
            ),
        )  # fmt: skip
    if len(scaling):
        grouped = [name for name in varied if name in scaling and name != "data.length"]
        yield _table(
            "How the error falls with data: slope of log RMSE on log T, with 95% interval (1/√T is -0.5)",
            [*_short(grouped), "", "slope", "interval", "T", "lengths", "realizations", "runs left out"],
            (
                [
                    *(_value(row[name]) for name in grouped),
                    str(row["block"]),
                    _number(row["slope"]),
                    f"{_number(row['slope_low'])} .. {_number(row['slope_high'])}",
                    f"{_value(row['shortest'])} .. {_value(row['longest'])}",
                    *(_value(row[name]) for name in ("points", "realizations", "left_out")),
                ]
                for _, row in scaling.head(3 * MOST_ROWS).iterrows()
            ),
        )


def _table(title: str, columns: list[str], rows: Iterator[list[str]]) -> tuple[str, Table]:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return title, table


def _short(names: list[str]) -> list[str]:
    """Parameters without their section, where that leaves no two alike."""
    last = [name.rpartition(".")[2] for name in names]
    return [short if last.count(short) == 1 else name for name, short in zip(names, last, strict=True)]


def _value(value: Any) -> str:
    if pd.isna(value):
        return "-"
    if isinstance(value, float | np.floating):
        return f"{value:g}"
    return str(value)


def _number(value: Any) -> str:
    return "-" if pd.isna(value) else f"{value:.3g}" if abs(value) < 1e-3 else f"{value:.3f}"


def _fraction(row: pd.Series, name: str) -> str:
    if pd.isna(row[name]):
        return "-"
    return f"{row[name]:.2f} ({row[f'{name}_low']:.2f}-{row[f'{name}_high']:.2f})"


def _error(row: pd.Series, name: str) -> str:
    if pd.isna(row[f"{name}_mean"]):
        return "-"
    sem = row[f"{name}_sem"]
    return f"{row[f'{name}_mean']:.3f}" + ("" if pd.isna(sem) else f" ± {sem:.3f}")
