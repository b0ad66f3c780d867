"""The tables of a sweep on a terminal: what `kising run` prints at its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from kising.report.point_tables import text_tables

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
        console.print(f"... and {len(summary) - MOST_ROWS} more points: summary.parquet has them all.\n")


def tables(summary: pd.DataFrame, scaling: pd.DataFrame) -> Iterator[tuple[str, Table]]:
    """The tables that have something in them, each with its title."""
    from rich import box
    from rich.table import Table

    for title, headings, rows, _ in text_tables(summary, scaling, MOST_ROWS):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in headings:
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        yield title, table
