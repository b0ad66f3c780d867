"""Figures that are filled, but not rendered, which takes a second per page."""

from __future__ import annotations

from typing import IO

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def save_nothing(figure: Figure, sink: IO[bytes], **options: object) -> None:
    """In the place of `Figure.savefig`."""
    sink.write(b"<svg></svg>")


def draw_nothing(canvas: FigureCanvasAgg) -> None:
    """In the place of `FigureCanvasAgg.draw`."""
