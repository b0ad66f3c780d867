"""Figures as files and as parts of a page: a figure consists of panels, each of which can stand alone."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from kising.report.figures.style import PANEL_INCHES
from kising.sweep.store.atomic import AtomicFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS: Final = 24
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
    """Panels that belong together, and what stands above and below them."""

    name: str
    title: str
    caption: str
    panels: list[Panel]


def write_figure(spec: FigureSpec, folder: Path) -> list[Path]:
    """Write a figure as SVG and PNG, and return the files."""
    shown = spec.panels[:MOST_PANELS]
    files = []
    with _drawn(shown, min(_COLUMNS, len(shown))) as figure:
        for kind in ("svg", "png"):
            with AtomicFile(folder) as file:
                _save(figure, kind, file.handle)
                files.append(file.publish(f"{spec.name}.{kind}"))
    return files


def data_url(panel: Panel) -> str:
    """Return a panel as an SVG image in a data URL."""
    sink = io.BytesIO()
    with _drawn([panel], 1) as figure:
        _save(figure, "svg", sink)
    return "data:image/svg+xml;base64," + base64.b64encode(sink.getvalue()).decode()


@contextmanager
def _drawn(panels: list[Panel], columns: int) -> Iterator[Figure]:
    """Draw panels as one figure. Save it inside the block: the settings hold only there."""
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
            place.set_title(panel.title)
        for place in axes[len(panels) :]:
            place.set_visible(False)
        # Laid out once: repeating it for every file takes as long as all the rest.
        figure.canvas.draw()
        figure.set_layout_engine("none")
        yield figure


def _save(figure: Figure, kind: str, sink: IO[bytes]) -> None:
    # Only SVG files would carry their date.
    metadata = {"Date": None} if kind == "svg" else None
    figure.savefig(sink, format=kind, dpi=_DPI, metadata=metadata)
