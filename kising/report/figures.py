"""Figures of a sweep, drawn from its summary table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kising.report.summary import AXES, BLOCKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# J green, K red, L blue as in the paper, in shades that stay apart for colour-blind eyes; shapes tell them
# apart without colour.
COLOURS = {"J": "#009e73", "K": "#d55e00", "L": "#0072b2"}
MARKERS = {"J": "o", "K": "s", "L": "^"}
MOST_PANELS = 6


def error_against_length(summary: pd.DataFrame) -> Figure | None:
    """RMSE of J, K and L against the length of the recording, a panel for each combination of the other parameters.

    Points are means over runs that did not diverge, bars one standard deviation, the dashed line falls as 1/√T.
    None where no two points differ in length alone.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    scored = summary[summary["rmse_J_mean"].notna()]
    others = [n for n in AXES if n != "data.length" and scored[n].nunique() > 1]
    groups = [(v, g) for v, g in _grouped(scored, others) if g["data.length"].nunique() > 1]
    if not groups:
        return None
    groups = groups[:MOST_PANELS]
    figure = Figure(figsize=(1.2 + 3.4 * len(groups), 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(groups), squeeze=False, sharey=True)[0]
    for panel, (values, group) in zip(panels, groups, strict=True):
        group = group.sort_values("data.length")
        lengths = group["data.length"].to_numpy(dtype=float)
        for block in BLOCKS:
            mean = group[f"rmse_{block}_mean"].to_numpy(dtype=float)
            spread = np.nan_to_num(group[f"rmse_{block}_sd"].to_numpy(dtype=float))
            # On a logarithmic axis a bar must not reach zero.
            below = np.minimum(spread, 0.9 * mean)
            panel.errorbar(
                lengths, mean, yerr=[below, spread], label=block, capsize=3,
                color=COLOURS[block], marker=MARKERS[block], markersize=5, linewidth=1.2,
            )  # fmt: skip
        first = group["rmse_J_mean"].iloc[0]
        panel.plot(lengths, first * np.sqrt(lengths[0] / lengths), "--", color="0.5", label=r"$1/\sqrt{T}$")
        panel.set(xscale="log", yscale="log", xlabel="length of the recording T (steps)")
        panel.set_title(
            ", ".join(
                f"{name.rpartition('.')[2]} {value}" for name, value in zip(others, values, strict=True)
            ),
            fontsize=10,
        )
        panel.grid(visible=True, which="both", linewidth=0.3)
    panels[0].set_ylabel("RMSE (bond scales)")
    panels[0].legend(frameon=False)
    return figure


def _grouped(summary: pd.DataFrame, names: list[str]) -> list[tuple[tuple[object, ...], pd.DataFrame]]:
    if not names:
        return [((), summary)]
    return [(tuple(v), g) for v, g in summary.groupby(names, sort=False, dropna=False)]
