"""Figures of single runs, from their artifacts: learned against true couplings, and traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from kising.blocks import BONDS
from kising.report.figures.drawing import FigureSpec, Panel
from kising.report.figures.style import COLOURS, GUIDE_COLOUR
from kising.report.figures.views import describe, joined
from kising.report.summary import bonds_of, listed, varied

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS: Final = 4
#: A learner with a larger error has diverged, and the size of its error means nothing.
LARGEST_SHOWN: Final = 10.0
_SIZES: Final = {"abs_m": ("|m|", "-"), "abs_mu": ("|μ|", "--"), "abs_pair": ("|⟨τσ⟩|", ":")}


def scatters(runs: pd.DataFrame, couplings: pd.DataFrame) -> Iterator[FigureSpec]:
    """Learned against true couplings of the first realization that has them, at the longest recordings."""
    if couplings.empty:
        return
    own = runs[runs["run_id"].isin(couplings["run_id"]) & (runs["outcome"] != "diverged")]
    own = own[own["realization"] == own["realization"].min()]
    own = own[own["data.length"] == own["data.length"].max()][:MOST_POINTS]
    panels = []
    for title, run in _titled(own, runs):
        of_run = couplings[couplings["run_id"] == run]
        for block in BONDS:
            own_block = of_run[of_run["block"] == block]
            if len(own_block):
                panels.append(Panel(joined(block, title), _scatter(own_block, block)))
    if panels:
        yield FigureSpec(
            "couplings",
            "Learned against true couplings",
            "One realization. Dots are learned couplings, grey crosses where learning started; the line is the truth.",
            panels,
            couplings[couplings["run_id"].isin(own["run_id"])],
            shared=False,
        )


def traces(runs: pd.DataFrame, trace_rows: pd.DataFrame) -> Iterator[FigureSpec]:
    """Learning iteration by iteration, in one realization: one that diverged for some learner, if any did."""
    if trace_rows.empty:
        return
    own = runs[runs["run_id"].isin(trace_rows["run_id"])]
    diverged = own[own["outcome"] == "diverged"]["realization"]
    chosen = diverged.min() if len(diverged) else own["realization"].min()
    own = own[own["realization"] == chosen][: 3 * MOST_POINTS]
    panels = []
    for title, run in _titled(own, runs):
        outcome = own[own["run_id"] == run]["outcome"].iloc[0]
        name = f"{title}: {outcome}" if title else str(outcome)
        panels.append(Panel(name, _trace(trace_rows[trace_rows["run_id"] == run])))
    yield FigureSpec(
        "traces",
        "Learning, iteration by iteration",
        f"Realization {chosen}: RMSE of {listed(bonds_of(own))} (bond scales) and mean sizes of the averages. The grey "
        "line marks the first iteration whose E-step did not converge in every slice. Errors beyond "
        f"{LARGEST_SHOWN:g} are drawn at {LARGEST_SHOWN:g}.",
        panels,
        trace_rows[trace_rows["run_id"].isin(own["run_id"])],
    )


def _titled(own: pd.DataFrame, runs: pd.DataFrame) -> Iterator[tuple[str, str]]:
    keys = varied(runs)
    for row in own.to_dict("records"):
        yield describe(keys, tuple(row[key] for key in keys)), row["run_id"]


def _scatter(couplings: pd.DataFrame, block: str) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        true, start, learned = (
            couplings[name].to_numpy(dtype=float) for name in ("true", "start", "learned")
        )
        axes.scatter(
            true, start, s=12, marker="x", color="0.6", linewidths=0.6, rasterized=True, label="start"
        )
        axes.scatter(
            true, learned, s=9, color=COLOURS[block], linewidths=0, rasterized=True, label=f"learned {block}"
        )
        ends = np.array([min(true.min(), learned.min()), max(true.max(), learned.max())])
        axes.plot(ends, ends, color=GUIDE_COLOUR, linewidth=0.8)
        axes.set(xlabel=f"true {block}", ylabel=f"learned {block}")
        axes.legend(frameon=True, framealpha=0.8, edgecolor="none")

    return draw


def _trace(trace: pd.DataFrame) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        iteration = trace["iteration"].to_numpy(dtype=float)
        for block in BONDS:
            if trace[f"rmse_{block}"].notna().any():
                shown = np.minimum(trace[f"rmse_{block}"].to_numpy(dtype=float), LARGEST_SHOWN)
                axes.plot(iteration, shown, color=COLOURS[block], label=f"RMSE {block}")
        for column, (symbol, style) in _SIZES.items():
            axes.plot(iteration, trace[column], style, color="black", linewidth=1.1, label=symbol)
        unsettled = iteration[trace["bp_converged"].to_numpy(dtype=float) < 1]
        if unsettled.size:
            axes.axvline(unsettled[0], color=GUIDE_COLOUR, linewidth=0.8)
        axes.set(yscale="log", xlabel="EM iteration", ylabel="RMSE, mean size")
        axes.grid(visible=True, which="major", linewidth=0.3)
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=3)

    return draw
