"""Panels of lines with bars: marks side by side, axes that all panels of a figure share."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kising.blocks import BONDS
from kising.report.figures.numbers import Line
from kising.report.figures.style import (
    GUIDE_COLOUR,
    LINE_STYLES,
    OTHER_COLOURS,
    OTHER_MARKERS,
    axis_label,
)
from kising.report.figures.views import FRACTION, View, joined
from kising.report.summary import scaling

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Places = NDArray[np.float64]
#: Distance of two marks at the same place, in units of the width of the axis, and the most that they spread over.
STEP: Final = 0.03
SPREAD: Final = 0.16
#: Characters of a line of a label.
LONGEST_LABEL: Final = 44
#: Longest label, in characters, of which a legend has two side by side.
LONGEST_IN_TWO: Final = 26


class Axis(NamedTuple):
    """The x axis of all panels of a figure."""

    key: str
    low: float
    high: float
    places: int = 2
    """how many values it has"""

    @classmethod
    def of(cls, runs: pd.DataFrame, key: str) -> Axis:
        """The axis that holds all these runs."""
        values = runs[key].dropna().to_numpy(dtype=float)
        if not values.size:
            return cls(key, 1.0, 1.0)
        return cls(key, float(values.min()), float(values.max()), len(np.unique(values)))

    @property
    def logarithmic(self) -> bool:
        """Whether it spans a factor of ten."""
        return self.key != FRACTION and self.low > 0 and self.high / self.low >= 10

    def beside(self, places: Places, number: int, count: int) -> Places:
        """Places moved a little, so that the marks of `count` lines stand side by side."""
        spread = min(SPREAD, 0.6 / max(self.places - 1, 1))
        step = min(STEP, spread / max(count - 1, 1)) * (number - (count - 1) / 2)
        width = self.high - self.low
        moved: Places = places * (self.high / self.low) ** step if self.logarithmic else places + step * width
        return moved


def draw_lines(
    view: View,
    lines: Sequence[Line],
    axis: Axis,
    label: str,
    *,
    scale: Literal["log", "linear", "fraction"],
    order: Sequence[str] = (),
) -> Callable[[Axes], None]:
    """What draws a panel. `order`: of learners that have a colour each, instead of the blocks."""

    # Once, not in every file that the panel is drawn for: slopes take a while. Long labels would squeeze the diagram.
    labels = [textwrap.fill(_label(line, axis.key), LONGEST_LABEL) for line in lines]

    def draw(axes: Axes) -> None:
        for number, line in enumerate(lines):
            points = line.points
            value = points["value"].to_numpy(dtype=float)
            low = points["low"].to_numpy(dtype=float)
            if scale == "log":  # on which a bar must not reach zero
                low = np.maximum(low, 0.1 * value)
            bars = [np.maximum(value - low, 0), np.maximum(points["high"].to_numpy(dtype=float) - value, 0)]
            axes.errorbar(
                axis.beside(points["x"].to_numpy(dtype=float), number, len(lines)), value, yerr=bars,
                label=labels[number], **_look(line, order),
            )  # fmt: skip
        if scale == "log":
            _guides(axes, view, lines, axis)
            axes.set_yscale("log")
        elif scale == "fraction":
            axes.set_ylim(-0.05, 1.05)
        axes.set_ylabel(label)
        _finish(axes, axis)

    return draw


def _look(line: Line, order: Sequence[str]) -> dict[str, Any]:
    """Blocks by colour and shape, learners by filling and dashes; learners that have an order by colour and shape."""
    place = order.index(line.series.label) if order else None
    colour = line.curve.colour if place is None else OTHER_COLOURS[place % len(OTHER_COLOURS)]
    marker = line.curve.marker if place is None else OTHER_MARKERS[place % len(OTHER_MARKERS)]
    number = line.number if place is None else place
    return {
        "color": colour, "marker": marker, "markerfacecolor": colour if number == 0 else "white",
        "linestyle": LINE_STYLES[number % len(LINE_STYLES)], "markersize": 5, "linewidth": 1.2, "capsize": 2.5,
    }  # fmt: skip


def _label(line: Line, x: str) -> str:
    label = joined(line.curve.label, line.series.label)
    block = line.curve.column.removeprefix("rmse_")
    if x != "data.length" or block not in BONDS:
        return label
    slopes = scaling(line.series.runs)
    own = slopes[slopes["block"] == block]
    if len(own) != 1 or pd.isna(own["slope"].iloc[0]):
        return label
    row = own.iloc[0]
    span = "" if pd.isna(row["slope_low"]) else f" ({row['slope_low']:.2f}..{row['slope_high']:.2f})"
    return f"{label}: slope {row['slope']:.2f}{span}"


def _guides(axes: Axes, view: View, lines: Sequence[Line], axis: Axis) -> None:
    if axis.key == "data.length" and lines and len(lines[0].points) > 1:
        first = lines[0].points
        lengths = first["x"].to_numpy(dtype=float)
        axes.plot(
            lengths,
            first["value"].iloc[0] * np.sqrt(lengths[0] / lengths),
            "--",
            color=GUIDE_COLOUR,
            label=r"slope $-1/2$",
        )
    runs = view.series[0].runs
    values = runs[runs["model.strength"] > 0]["baseline_rmse"].dropna().unique()
    if len(values) == 1:
        axes.axhline(float(values[0]), color=GUIDE_COLOUR, linestyle=":", linewidth=1, label="all zero")


def _finish(axes: Axes, axis: Axis) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    if axis.logarithmic:
        axes.set_xscale("log")
        if axis.high / axis.low < 100:
            # One or two powers of ten are too few ticks, and labels on all the ticks between them too many.
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(axis_label(axis.key))
    axes.grid(visible=True, which="major", linewidth=0.3)
    if any(axes.get_legend_handles_labels()[1]):
        # Below the diagram, where it covers no data.
        longest = max(map(len, axes.get_legend_handles_labels()[1]))
        columns = 2 if longest <= LONGEST_IN_TWO else 1
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=columns)
