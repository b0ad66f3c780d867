"""Figures of single runs, from what was kept of them: learned against true couplings, and traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from kising.report.figures.drawing import Panel, Plate
from kising.report.figures.style import COLOURS, GUIDE
from kising.report.figures.views import said, varied
from kising.report.summary import BLOCKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS: Final = 4
_SIZES: Final = {"abs_m": ("|m|", "-"), "abs_mu": ("|μ|", "--"), "abs_pair": ("|⟨τσ⟩|", ":")}


def scatters(runs: pd.DataFrame, couplings: pd.DataFrame) -> Iterator[Plate]:
    """Learned against true couplings of the first realization kept, at the longest recordings."""
    if couplings.empty:
        return
    own = runs[runs["run_id"].isin(couplings["run_id"]) & (runs["outcome"] != "diverged")]
    own = own[own["realization"] == own["realization"].min()]
    own = own[own["data.length"] == own["data.length"].max()][:MOST_POINTS]
    panels = []
    for title, run in _titled(own, runs):
        of_run = couplings[couplings["run_id"] == run]
        for block in BLOCKS:
            name = ", ".join(filter(None, (f"{block}", title)))
            panels.append(Panel(name, _scatter(of_run[of_run["block"] == block], block)))
    if panels:
        yield Plate(
            "couplings",
            "Learned against true couplings",
            "One realization. Dots are learned couplings, grey crosses where learning started; the line is the truth.",
            panels,
        )


def traces(runs: pd.DataFrame, found: pd.DataFrame) -> Iterator[Plate]:
    """What happened iteration by iteration, in one realization: one that diverged in some way of learning, if any."""
    if found.empty:
        return
    own = runs[runs["run_id"].isin(found["run_id"])]
    diverged = own[own["outcome"] == "diverged"]["realization"]
    chosen = diverged.min() if len(diverged) else own["realization"].min()
    own = own[own["realization"] == chosen][: 3 * MOST_POINTS]
    panels = []
    for title, run in _titled(own, runs):
        outcome = own[own["run_id"] == run]["outcome"].iloc[0]
        name = f"{title}: {outcome}" if title else str(outcome)
        panels.append(Panel(name, _trace(found[found["run_id"] == run])))
    yield Plate(
        "traces",
        "Learning, iteration by iteration",
        f"Realization {chosen}: RMSE of J, K and L (bond scales) and mean sizes of the averages. The grey line marks "
        "the first iteration whose E-step did not settle in every slice.",
        panels,
    )


def _titled(own: pd.DataFrame, runs: pd.DataFrame) -> Iterator[tuple[str, str]]:
    keys = varied(runs)
    for row in own.to_dict("records"):
        yield said(keys, tuple(row[key] for key in keys)), row["run_id"]


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
        axes.plot(ends, ends, color=GUIDE, linewidth=0.8)
        axes.set(xlabel=f"true {block}", ylabel=f"learned {block}")
        axes.legend(frameon=True, framealpha=0.8, edgecolor="none")

    return draw


def _trace(trace: pd.DataFrame) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        iteration = trace["iteration"].to_numpy(dtype=float)
        for block in BLOCKS:
            axes.plot(iteration, trace[f"rmse_{block}"], color=COLOURS[block], label=f"RMSE {block}")
        for column, (symbol, style) in _SIZES.items():
            axes.plot(iteration, trace[column], style, color="black", linewidth=1.1, label=symbol)
        unsettled = iteration[trace["bp_converged"].to_numpy(dtype=float) < 1]
        if unsettled.size:
            axes.axvline(unsettled[0], color=GUIDE, linewidth=0.8)
        axes.set(yscale="log", xlabel="EM iteration", ylabel="RMSE, mean size")
        axes.grid(visible=True, which="major", linewidth=0.3)
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=3)

    return draw
