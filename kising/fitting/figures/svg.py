"""Figures as SVG inside a page. Lines and letters take the colour of the page's text, so they suit light and dark."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable
from html import escape
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

from kising.blocks import BLOCKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Stands for the colour of the page's text; no other colour of a figure is like it.
INK: Final = "#010203"
#: By block; told apart by colour-blind readers too, on white and on black.
COLOURS: Final = dict(
    zip(
        BLOCKS,
        cycle(("#009e73", "#d55e00", "#2a87c8", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#a6761d")),
    )
)
POSITIVE, NEGATIVE = "#d55e00", "#2a87c8"
#: From negative to positive; zero is white.
COLOUR_MAP: Final = "RdBu_r"
WIDTH: Final = 4.4
"""inches"""

Draw = Callable[["Axes"], None]


def svg(draw: Draw, text: str, *, height: float = 3.4, width: float = WIDTH) -> str:
    """Draw on one pair of axes; `text` describes the figure to those who cannot see it."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(_settings(text)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # names may be in any script
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure.subplots())
        sink = io.BytesIO()
        figure.savefig(sink, format="svg", transparent=True, metadata={"Date": None})
    return inline(sink.getvalue().decode(), text)


def inline(document: str, text: str) -> str:
    """The <svg> element of a document, without a fixed size."""
    element = document[document.index("<svg") :]
    head, rest = element.split(">", 1)
    head = re.sub(r' (?:width|height)="[^"]*"', "", head)
    rest = re.sub(r"<metadata>.*?</metadata>", "", rest, flags=re.DOTALL)
    label = escape(text, quote=True)
    return f'{head} role="img" aria-label="{label}">{rest}'.replace(INK, "currentColor").strip()


def _settings(salt: str) -> Any:
    ink = dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
    )
    return {
        **ink,
        # Names inside a figure are made from its contents and this: no two figures of a page share one.
        "svg.hashsalt": salt,
        "font.size": 10,
        "axes.titlesize": 10,
        "legend.fontsize": 8.5,
        "legend.frameon": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }


def tick_names(names: Iterable[str], most: int = 24, longest: int = 10) -> list[str] | None:
    """Names short enough to stand along an axis; None where there are too many. Hidden spins have numbers."""
    listed = [name.removeprefix("hidden ") for name in names]
    if len(listed) > most:
        return None
    return [drawable(name, longest) for name in listed]


def drawable(name: str, longest: int = 12) -> str:
    """A name as it can stand in a figure: short, on one line, and not taken for a formula."""
    text = "".join(letter if letter.isprintable() else " " for letter in name)
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return text.replace("$", r"\$")
