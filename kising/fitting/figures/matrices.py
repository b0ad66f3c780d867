"""Couplings as heat maps, and biases as bars with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kising.blocks import Block
from kising.fitting.figures.svg import COLOUR_MAP, COLOURS, INK, svg, tick_names
from kising.learning.fitted.edges import labels, present_blocks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kising.learning.fit import Fit

MEANING: Final = {
    "J": "visible to visible",
    "K": "hidden to visible",
    "L": "visible to hidden",
    "h": "biases of visible spins",
    "b": "biases of hidden spins",
    "F": "inputs to visible spins",
    "G": "inputs to hidden spins",
    "M": "hidden to hidden",
}
#: Half the width of a 95% interval, in standard errors.
INTERVAL: Final = 1.96


def coupling_figures(found: Fit) -> list[str]:
    """One figure per block of the model."""
    return [
        _bars(found, block) if block.columns == "one" else _heat(found, block)
        for block in present_blocks(found.couplings)
    ]


def _heat(found: Fit, block: Block) -> str:
    values = getattr(found.couplings, block.name)
    rows, columns = values.shape
    targets = tick_names(labels(block.rows, rows, found.names, found.input_names))
    sources = tick_names(labels(block.columns, columns, found.names, found.input_names))
    # Outliers would leave the rest white.
    largest = float(np.quantile(np.abs(values), 0.99)) or 1.0

    def draw(axes: Axes) -> None:
        image = axes.imshow(
            values, cmap=COLOUR_MAP, vmin=-largest, vmax=largest, aspect="auto", interpolation="nearest"
        )
        axes.set_title(f"{block.name}: {MEANING[block.name]}")
        axes.set_xlabel(f"from {block.columns}")
        axes.set_ylabel(f"to {block.rows}")
        for axis, names in ((axes.xaxis, sources), (axes.yaxis, targets)):
            if names is not None:
                axis.set_ticks(range(len(names)), names, fontsize=8)
        if sources is not None and max(map(len, sources)) > 3:
            axes.tick_params(axis="x", rotation=90)
        if rows * columns <= 400:
            axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
            axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
            axes.grid(which="minor", color="#999999", linewidth=0.3)
            axes.tick_params(which="minor", length=0)
        axes.figure.colorbar(image, ax=axes, shrink=0.9, extend="both")

    return svg(draw, f"Heat map of {block.name}, {MEANING[block.name]}", height=3.6)


def _bars(found: Fit, block: Block) -> str:
    values = getattr(found.couplings, block.name)
    names = tick_names(labels(block.rows, len(values), found.names))
    error = None
    if found.standard_error is not None:
        wide = INTERVAL * getattr(found.standard_error, block.name)
        error = np.where(np.isfinite(wide), wide, 0.0)

    def draw(axes: Axes) -> None:
        places = np.arange(len(values))
        axes.bar(places, values, color=COLOURS[block.name], width=0.8)
        if error is not None:
            axes.errorbar(places, values, error, fmt="none", ecolor=INK, linewidth=0.8)
        axes.axhline(0, color=INK, linewidth=0.6)
        axes.set_xlim(-1, len(values))
        axes.set_title(f"{block.name}: {MEANING[block.name]}")
        axes.set_xlabel(f"{block.rows} spin")
        axes.set_ylabel("bias" + ", with 95% intervals" * (error is not None))
        if names is not None:
            axes.set_xticks(places, names, fontsize=8)
            if max(map(len, names)) > 3:
                axes.tick_params(axis="x", rotation=90)

    return svg(draw, f"Bars of {block.name}, {MEANING[block.name]}", height=3.6)
