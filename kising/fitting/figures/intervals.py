"""The strongest couplings between spins, each with its 95% interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kising.blocks import BONDS
from kising.fitting.figures.matrices import INTERVAL
from kising.fitting.figures.svg import COLOURS, INK, drawable, svg

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

STRONGEST: Final = 40
_PER_FIGURE: Final = 20


def strongest(edges: pd.DataFrame, count: int = STRONGEST) -> pd.DataFrame:
    """Couplings between spins that stand out most: by |z| where errors are known, otherwise by size."""
    bonds = edges[edges["block"].isin(BONDS)]
    known = bonds["z"].notna().any()
    rank = bonds["z" if known else "value"].abs()
    # Beyond some thirty standard errors p and q are the same, zero; size then says more than z.
    return bonds.loc[rank.sort_values(ascending=False, kind="stable").index[:count]]


def interval_figures(rows: pd.DataFrame) -> list[str]:
    """Twenty couplings to a figure, with a common scale."""
    if rows.empty:
        return []
    half = np.where(np.isfinite(rows["error"]), INTERVAL * rows["error"], 0.0)
    reach = 1.05 * float((rows["value"].abs() + half).max()) or 1.0
    parts = [rows.iloc[k : k + _PER_FIGURE] for k in range(0, len(rows), _PER_FIGURE)]
    tallest = max(map(len, parts))
    return [_figure(part, reach, 0.9 + 0.21 * tallest, k, tallest) for k, part in enumerate(parts)]


def label(row: object) -> str:
    """A coupling in few characters."""
    target, source = (_short(str(getattr(row, name))) for name in ("target", "source"))
    return f"{source} → {target}"


def _short(name: str) -> str:
    return name if len(name) <= 12 else name[:11] + "…"


def _figure(rows: pd.DataFrame, reach: float, height: float, number: int, tallest: int) -> str:
    def draw(axes: Axes) -> None:
        for place, row in enumerate(rows.itertuples()):
            colour = COLOURS[str(row.block)]
            value, wide = float(row.value), INTERVAL * float(row.error)  # type: ignore[arg-type]
            if np.isfinite(wide):
                axes.plot([value - wide, value + wide], [place, place], color=colour, linewidth=2)
            axes.plot(value, place, "o", color=colour, markersize=4)
        axes.axvline(0, color=INK, linewidth=0.6)
        axes.set_yticks(
            range(len(rows)),
            [f"{row.block}  {drawable(label(row), 28)}" for row in rows.itertuples()],
            fontsize=8,
        )
        axes.set_ylim(tallest - 0.4, -0.6)
        axes.set_xlim(-reach, reach)
        axes.set_xlabel("coupling" + ", with 95% interval" * bool(np.isfinite(rows["error"]).any()))
        axes.grid(axis="x", color="#999999", alpha=0.3, linewidth=0.5)

    first = number * _PER_FIGURE + 1
    return svg(
        draw, f"Couplings {first} to {first + len(rows) - 1} by strength, with intervals", height=height
    )
