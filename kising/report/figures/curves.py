"""Figures of a result against a parameter: errors, convergence, overlaps, held-out scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

import numpy as np
import pandas as pd

from kising.blocks import BONDS
from kising.report.figures.drawing import FigureSpec, Panel
from kising.report.figures.lines import Axis, draw_lines
from kising.report.figures.numbers import BARS, Curve, Statistic, lines_of, table_of
from kising.report.figures.style import (
    COLOURS,
    MARKERS,
    OTHER_COLOURS,
    OTHER_MARKERS,
    axis_name,
    axis_slug,
)
from kising.report.figures.views import (
    MOST_OVERLAID,
    View,
    joined,
    numeric_axes,
    overlays,
    views,
    with_network,
)
from kising.report.summary import bonds_of, listed, varied

_AVERAGES: Final = {"rmse_m": "m", "rmse_mu": "μ", "rmse_pair": "⟨τσ⟩"}
_SCORES: Final = {
    "held_out": "this network",
    "held_out_visible_only": "without hidden spins",
    "held_out_memoryless": "without memory",
}
#: Averages of products of spins cannot be off by more than this.
LARGEST_ERROR: Final = 1.0

_BLOCK_ERRORS: Final = [Curve(f"rmse_{x}", x, COLOURS[x], MARKERS[x]) for x in BONDS]
_BLOCK_FLAGS: Final = [Curve(f"converged_{x}", x, COLOURS[x], MARKERS[x]) for x in BONDS]
_LOST: Final = [Curve("lost", "", OTHER_COLOURS[0], OTHER_MARKERS[0])]
#: What decides which blocks are learned.
_MODELS: Final = ("learner.hidden_couplings", "learner.bias")
_OVERLAP: Final = [Curve("hidden_overlap", "", OTHER_COLOURS[0], OTHER_MARKERS[0])]
_ESTEP_CONVERGED: Final = [Curve("settled", "", OTHER_COLOURS[0], OTHER_MARKERS[0])]


def _others(labels: dict[str, str]) -> list[Curve]:
    return [
        Curve(name, label, OTHER_COLOURS[i], OTHER_MARKERS[i])
        for i, (name, label) in enumerate(labels.items())
    ]


def curves(runs: pd.DataFrame) -> Iterator[FigureSpec]:
    """Every figure that the sweep has data for."""
    runs = with_network(runs[runs["status"] == "done"])
    for x in numeric_axes(runs):
        learned, inferred = runs[runs["task"] == "learn"], runs[runs["task"] == "infer"]
        if len(learned):
            yield from _of_learning(learned, x)
        if len(inferred):
            yield from _of_inference(inferred, x)


def _figure(
    name: str,
    title: str,
    caption: str,
    shown: Iterable[tuple[View, Sequence[Curve], str]],
    axis: Axis,
    statistic: Statistic,
    scale: Literal["log", "linear", "fraction"],
    order: Sequence[str] = (),
) -> FigureSpec:
    """A figure with one panel for every view that has data; for each its curves and the label of its y axis."""
    panels, numbers = [], []
    for view, curves_shown, label in shown:
        lines = lines_of(view, axis.key, curves_shown, statistic)
        if lines:
            draw = draw_lines(view, lines, axis, label, scale=scale, order=order)
            panels.append(Panel(view.title, draw))
            numbers.append((view.title, lines))
    return FigureSpec(
        f"{name}-against-{axis_slug(axis.key)}",
        f"{title} against the {axis_name(axis.key)}",
        caption,
        panels,
        table_of(numbers, axis.key),
    )


def _of_learning(runs: pd.DataFrame, x: str) -> Iterator[FigureSpec]:
    undiverged = runs[runs["outcome"] != "diverged"]
    blocks = listed(bonds_of(runs))
    axis = Axis.of(runs, x)
    gone = len(runs) - len(undiverged)
    left_out = f" {gone} of {len(runs)} runs diverged and are left out." if gone else ""
    guide = " The dashed grey line falls as 1/√T; slopes are of log RMSE on log T, with 95% intervals."
    yield _figure(
        "error",
        "Error of the learned couplings",
        f"RMSE of {blocks} in units of the standard deviation of a non-zero bond: {BARS['mean']}.{left_out} The "
        "dotted line is the estimate that is zero everywhere." + (guide if x == "data.length" else ""),
        ((view, _BLOCK_ERRORS, "RMSE (bond scales)") for view in views(undiverged, x)),
        axis,
        "mean",
        "log",
    )
    yield from _of_many_learners(undiverged, x, axis)
    yield from _of_models(undiverged, x, axis)
    yield _figure(
        "held-out",
        "Held-out scores",
        "Log-likelihood of the held-out fold, in nats per slice: "
        f"{BARS['mean'].replace('realizations', 'folds')}. Two baselines on the same folds: a network without hidden "
        f"spins, and one without memory.{left_out}",
        ((view, _others(_SCORES), "log-likelihood (nats per slice)") for view in views(undiverged, x)),
        axis,
        "mean",
        "linear",
    )
    yield _figure(
        "convergence",
        "Runs that converged",
        f"Fraction of runs whose {blocks} had converged when learning ended, each block by itself; "
        f"{BARS['fraction']}. Diverged runs count as not converged.",
        ((view, _BLOCK_FLAGS, "fraction of runs converged") for view in views(runs, x)),
        axis,
        "fraction",
        "fraction",
    )


def _of_many_learners(runs: pd.DataFrame, x: str, axis: Axis) -> Iterator[FigureSpec]:
    """All learners in one panel per block, where they are too many for the panels that hold all blocks."""
    crowded = [view for view in overlays(runs, x) if len(view.series) > MOST_OVERLAID]
    if not crowded:
        return
    # A learner looks the same in all panels.
    order = list(dict.fromkeys(series.label for view in crowded for series in view.series))
    blocks = bonds_of(runs)
    yield _figure(
        "learners",
        "Learners on the same data,",
        f"The same errors, with one panel for each of {listed(blocks)} and one line for each learner.",
        (
            (
                View(joined(view.title, block), view.series),
                [Curve(f"rmse_{block}", "", COLOURS[block], MARKERS[block])],
                f"RMSE of {block} (bond scales)",
            )
            for view in crowded
            for block in blocks
        ),
        axis,
        "mean",
        "log",
        order,
    )


def _of_models(runs: pd.DataFrame, x: str, axis: Axis) -> Iterator[FigureSpec]:
    """How much likelihood learners lose that leave blocks out, where they differ in that."""
    if all(runs[key].nunique() < 2 for key in _MODELS):
        return
    data = ["realization", *(key for key in varied(runs) if not key.startswith("learner."))]
    best = runs.groupby(data, dropna=False)["log_likelihood"].transform("max")
    lost = runs.assign(lost=(best - runs["log_likelihood"]).astype(float))
    panels = list(overlays(lost, x))
    yield _figure(
        "likelihood",
        "Likelihood lost by leaving blocks out,",
        "Log-likelihood of the recording under the learned couplings, below that of the best learner of the same "
        f"recording: {BARS['mean']}. It refers to the training data, where the learner with the most couplings gains "
        "about half their number, divided by T, from noise.",
        ((view, _LOST, "nats per slice below the best") for view in panels),
        axis,
        "mean",
        "linear",
        list(dict.fromkeys(series.label for view in panels for series in view.series)),
    )


def _of_inference(runs: pd.DataFrame, x: str) -> Iterator[FigureSpec]:
    runs = runs.assign(settled=runs["outcome"] == "converged")
    axis = Axis.of(runs, x)
    yield _figure(
        "overlap",
        "Inferred states of the hidden spins",
        "Mean of hidden spin times the sign of its average at the true couplings: 1 if all states are inferred "
        f"correctly, 0 by chance; {BARS['mean']}.",
        ((view, _OVERLAP, "overlap of inferred and true hidden spins") for view in views(runs, x)),
        axis,
        "mean",
        "linear",
    )
    yield _figure(
        "settled",
        "E-steps that converged",
        f"Fraction of realizations in which the E-step converged in every slice; {BARS['fraction']}.",
        ((view, _ESTEP_CONVERGED, "fraction of runs converged") for view in views(runs, x)),
        axis,
        "fraction",
        "fraction",
    )
    if runs["rmse_pair"].notna().any():
        sound = runs[sound_averages(runs)]
        yield _figure(
            "averages",
            "Error of the averages",
            "Root mean square difference of the averages m, μ and ⟨τσ⟩ from exact ones, at the true couplings: "
            f"{BARS['mean']}. {len(runs) - len(sound)} of {len(runs)} runs are left out: their E-step did not "
            "converge, or an average was outside the possible range.",
            ((view, _others(_AVERAGES), "RMSE against exact") for view in views(sound, x)),
            axis,
            "mean",
            "log",
        )


def sound_averages(runs: pd.DataFrame) -> pd.Series:
    """Whether the averages of a run can be trusted: its E-step converged and no error is larger than possible."""
    errors = runs["rmse_pair"].astype(float)
    return (runs["outcome"] == "converged") & np.isfinite(errors) & (errors <= LARGEST_ERROR)
