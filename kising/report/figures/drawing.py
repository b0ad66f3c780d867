"""Figures as files and as parts of a page: a figure consists of panels, each of which can be shown alone."""

from __future__ import annotations

import base64
import io
import math
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal, NamedTuple

from kising.report.figures.style import LEGEND_INCHES, PANEL_INCHES
from kising.sweep.store.atomic import AtomicFile, atomic_write

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

MOST_PANELS: Final = 24
#: Characters of a line of a panel's title.
LONGEST_TITLE: Final = 48
_COLUMNS: Final = 4
_DPI: Final = 150
#: The same numbers give the same file: it contains no dates and no random names.
_SETTINGS: Final[Any] = {
    "svg.hashsalt": "kising",
    "font.size": 10,
    "legend.fontsize": 8.5,
    "axes.titlesize": 10,
}


class Panel(NamedTuple):
    """One diagram: its title, and the function that draws it."""

    title: str
    draw: Callable[[Axes], None]


class FigureSpec(NamedTuple):
    """Panels that belong together, with the title above and the caption below them."""

    name: str
    title: str
    caption: str
    panels: list[Panel]
    data: pd.DataFrame
    """the numbers that are drawn: its CSV file"""
    shared: bool = True
    """whether all panels have the same axes"""


class Limits(NamedTuple):
    """The ends of the axes that panels share."""

    x: tuple[float, float]
    y: tuple[float, float]


def write_figure(spec: FigureSpec, folder: Path) -> tuple[list[Path], Limits | None]:
    """Write a figure as SVG and PNG and its numbers as CSV. Return the files, and the axes that its panels share."""
    shown = spec.panels[:MOST_PANELS]
    files = []
    with _drawn(shown, min(_COLUMNS, len(shown)), "shared" if spec.shared else None) as (figure, limits):
        for kind in ("svg", "png"):
            with AtomicFile(folder) as file:
                _save(figure, kind, file.handle)
                files.append(file.publish(f"{spec.name}.{kind}"))
    return [*files, atomic_write(folder / f"{spec.name}.csv", csv_of(spec).encode())], limits


def csv_of(spec: FigureSpec) -> str:
    """The numbers of a figure as the text of a CSV file."""
    return str(spec.data.to_csv(index=False, lineterminator="\n"))


def limits_of(spec: FigureSpec) -> Limits | None:
    """The axes that the panels of a figure share, without a file of it."""
    from matplotlib.figure import Figure

    if not spec.shared:
        return None
    figure = Figure()
    axes = [figure.add_subplot() for _ in spec.panels[:MOST_PANELS]]
    for panel, place in zip(spec.panels, axes, strict=False):
        panel.draw(place)
    return _union([place.get_xlim() for place in axes], [place.get_ylim() for place in axes])


def data_url(panel: Panel, limits: Limits | None = None) -> str:
    """Return a panel as an SVG image in a data URL."""
    sink = io.BytesIO()
    with _drawn([panel], 1, limits) as (figure, _):
        _save(figure, "svg", sink)
    return "data:image/svg+xml;base64," + base64.b64encode(sink.getvalue()).decode()


@contextmanager
def _drawn(
    panels: list[Panel], columns: int, limits: Limits | Literal["shared"] | None
) -> Iterator[tuple[Figure, Limits | None]]:
    """Draw panels as one figure, with these axes, or with those that hold the data of all. Save it inside the block:
    the settings hold only there.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = math.ceil(len(panels) / columns)
    with rc_context(_SETTINGS):
        figure = Figure(figsize=(columns * PANEL_INCHES[0], rows * PANEL_INCHES[1]), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for panel, place in zip(panels, axes, strict=False):
            panel.draw(place)
            # Without breaks between a parameter and its value.
            place.set_title(textwrap.fill(panel.title.replace(" = ", "\u00a0=\u00a0"), LONGEST_TITLE))
        used = axes[: len(panels)]
        if limits == "shared":
            limits = _union([place.get_xlim() for place in used], [place.get_ylim() for place in used])
        if limits is not None:
            for place in used:
                place.set(xlim=limits.x, ylim=limits.y)
        for place in axes[len(panels) :]:
            place.set_visible(False)
        legends = [place.get_legend() for place in axes]
        entries = max((_rows_of(legend) for legend in legends if legend is not None), default=0)
        figure.set_size_inches(columns * PANEL_INCHES[0], rows * (PANEL_INCHES[1] + LEGEND_INCHES * entries))
        # Laid out once: repeating it for every file takes as long as all the rest.
        figure.canvas.draw()
        figure.set_layout_engine("none")
        yield figure, limits


def _union(x: list[tuple[float, float]], y: list[tuple[float, float]]) -> Limits:
    (x_low, x_high), (y_low, y_high) = (
        (min(low for low, _ in ends), max(high for _, high in ends)) for ends in (x, y)
    )
    return Limits((x_low, x_high), (y_low, y_high))


def _rows_of(legend: Legend) -> int:
    """Rows of a legend that stands below its diagram."""
    outside = legend.get_bbox_to_anchor().y0 < legend.axes.bbox.y0
    columns: int = getattr(legend, "_ncols", 1)
    lines = sum(1 + text.get_text().count("\n") for text in legend.get_texts())
    return math.ceil(lines / columns) if outside else 0


def _save(figure: Figure, kind: str, sink: IO[bytes]) -> None:
    # Only SVG files would carry their date.
    metadata = {"Date": None} if kind == "svg" else None
    figure.savefig(sink, format=kind, dpi=_DPI, metadata=metadata)
