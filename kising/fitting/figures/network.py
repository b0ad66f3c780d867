"""The network of a small fit: spins on a circle, significant couplings as arrows between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kising.fitting.figures.svg import INK, NEGATIVE, POSITIVE, drawable, svg
from kising.learning.fitted.edges import labels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from kising.learning.fit import Fit

LARGEST: Final = 40
"""visible spins"""
SIGNIFICANT: Final = 0.05
MOST_ARROWS: Final = 120
_WITHOUT_ERRORS: Final = 40
"""arrows where nothing is known of significance"""
_INNER: Final = 0.45
"""radius of the circle of hidden spins; that of visible ones is 1"""


def network_figure(found: Fit, edges: pd.DataFrame) -> tuple[str, str] | None:
    """The drawing and its caption; None for large networks."""
    if found.couplings.K.shape[0] > LARGEST:
        return None
    arrows, caption = _arrows(found, edges)
    return svg(
        lambda axes: _draw(axes, found, arrows), "Network of significant couplings", height=5.0, width=6.0
    ), caption


def _arrows(found: Fit, edges: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    between = edges[
        edges["block"].isin(("J", "K", "L"))
        & ~((edges["block"] == "J") & (edges["source"] == edges["target"]))
    ]
    order = between["value"].abs().sort_values(ascending=False, kind="stable").index
    colours = "Orange arrows raise their target, blue ones lower it; width is size; squares are hidden spins."
    if found.standard_error is None:
        return between.loc[order[:_WITHOUT_ERRORS]], (
            f"The {min(_WITHOUT_ERRORS, len(order))} largest couplings. Without standard errors it is not known which "
            f"of them differ from zero. {colours}"
        )
    ordered = between.loc[order]
    real = ordered[ordered["q"] < SIGNIFICANT]
    count = f"{len(real)} of {len(between)} couplings between different spins have q < {SIGNIFICANT}"
    if len(real) > MOST_ARROWS:
        return real.iloc[:MOST_ARROWS], f"{count}; the {MOST_ARROWS} largest are drawn. {colours}"
    return real, f"{count}. {colours}"


def _places(found: Fit) -> dict[str, tuple[float, float]]:
    nv, nh = found.couplings.K.shape
    places = {}
    for kind, count, radius in (("visible", nv, 1.0), ("hidden", nh, _INNER if nh > 1 else 0.0)):
        for k, name in enumerate(labels(kind, count, found.names)):
            angle = np.pi / 2 - 2 * np.pi * k / count
            places[name] = (radius * float(np.cos(angle)), radius * float(np.sin(angle)))
    return places


def _draw(axes: Axes, found: Fit, arrows: pd.DataFrame) -> None:
    places = _places(found)
    largest = float(arrows["value"].abs().max()) if len(arrows) else 1.0
    nodes = len(places)
    size = float(np.clip(2400 / nodes, 60, 420))
    for row in arrows.iloc[::-1].itertuples():
        strength = abs(float(row.value)) / largest  # type: ignore[arg-type]
        axes.annotate(
            "",
            xy=places[str(row.target)],
            xytext=places[str(row.source)],
            arrowprops={
                "arrowstyle": "-|>,head_length=0.45,head_width=0.22",
                "connectionstyle": "arc3,rad=0.12",
                "color": POSITIVE if float(row.value) > 0 else NEGATIVE,  # type: ignore[arg-type]
                "linewidth": 0.4 + 2.4 * strength,
                "alpha": 0.35 + 0.65 * strength,
                "shrinkA": np.sqrt(size) / 2,
                "shrinkB": np.sqrt(size) / 2,
            },
        )
    hidden = set(labels("hidden", found.hidden, None))
    inside = size > 150 and all(len(name) <= 2 for name in places if name not in hidden)
    for name, (x, y) in places.items():
        square = name in hidden
        axes.scatter(
            x,
            y,
            s=size,
            marker="s" if square else "o",
            facecolor="none",
            edgecolor=INK,
            linewidth=1,
            zorder=3,
        )
        text = name.removeprefix("hidden ") if square else name
        reach = 1.0 if inside or square else 1.0 + 0.06 + np.sqrt(size) / 300
        axes.text(
            x * reach, y * reach, drawable(text), fontsize=8, va="center",
            ha="center" if inside or square or abs(x) < 0.2 else "left" if x > 0 else "right", zorder=4,
        )  # fmt: skip
    axes.set_xlim(-1.4, 1.4)
    axes.set_ylim(-1.15, 1.15)
    axes.set_aspect("equal")
    axes.set_axis_off()
