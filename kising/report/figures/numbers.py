"""The numbers of a figure: what its marks and bars show, and what its CSV file holds.

Means have bars of one standard error, fractions their 95% Wilson intervals: as in the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, cast

import numpy as np
import pandas as pd

from kising.report.figures.views import Series, View
from kising.report.summary import fraction

Statistic = Literal["mean", "fraction"]
BARS: Final = {
    "mean": "means over realizations, bars are one standard error; marks with the same x are drawn side by side",
    "fraction": "bars are 95% Wilson intervals; marks with the same x are drawn side by side",
}
COLUMNS: Final = ("value", "low", "high", "runs")


class Curve(NamedTuple):
    """Which column a line shows, and how it looks."""

    column: str
    label: str
    colour: str
    marker: str


class Line(NamedTuple):
    """One line of a panel."""

    curve: Curve
    series: Series
    number: int
    """of the series in its panel"""
    points: pd.DataFrame
    """one row per place on the axis: x, value, low, high, runs"""


def lines_of(view: View, x: str, curves: Sequence[Curve], statistic: Statistic) -> list[Line]:
    """The lines of a panel that have data."""
    found = []
    for number, series in enumerate(view.series):
        for curve in curves:
            points = measured(series.runs, x, curve.column, statistic)
            if len(points):
                found.append(Line(curve, series, number, points))
    return found


def measured(runs: pd.DataFrame, x: str, column: str, statistic: Statistic) -> pd.DataFrame:
    """The mean of a column, or the fraction of its flags, at every place on the axis; places without data are left
    out.
    """
    rows = []
    for place, group in runs.groupby(x):
        known = group[column].dropna()
        if known.empty:
            continue
        if statistic == "fraction":
            value, low, high = fraction(known)
        else:
            numbers = known.to_numpy(dtype=float)
            value = float(numbers.mean())
            error = float(numbers.std(ddof=1) / np.sqrt(numbers.size)) if numbers.size > 1 else 0.0
            low, high = value - error, value + error
        if np.isfinite(value):
            rows.append((float(cast(float, place)), value, low, high, len(known)))
    return pd.DataFrame(rows, columns=["x", *COLUMNS])


def table_of(panels: Iterable[tuple[str, Sequence[Line]]], x: str) -> pd.DataFrame:
    """The numbers of a figure as one table, panel by panel and line by line."""
    frames = []
    for title, lines in panels:
        for line in lines:
            frame = line.points.rename(columns={"x": x})
            frame.insert(0, "quantity", line.curve.column)
            frame.insert(0, "line", line.series.label)
            frame.insert(0, "panel", title)
            frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
