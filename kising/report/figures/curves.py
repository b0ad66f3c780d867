"""Figures of a result against a parameter: errors, convergence, overlaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np
import pandas as pd

from kising.blocks import BONDS
from kising.report.figures.drawing import FigureSpec, Panel
from kising.report.figures.style import (
    COLOURS,
    GUIDE_COLOUR,
    LINE_STYLES,
    MARKERS,
    OTHER_COLOURS,
    OTHER_MARKERS,
    axis_label,
    axis_slug,
)
from kising.report.figures.views import (
    FRACTION,
    MOST_OVERLAID,
    Series,
    View,
    joined,
    numeric_axes,
    overlays,
    varied,
    views,
    with_network,
)
from kising.report.summary import bonds_of, fraction, listed, scaling

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AVERAGES: Final = {"rmse_m": "m", "rmse_mu": "μ", "rmse_pair": "⟨τσ⟩"}
#: Averages of products of spins cannot be off by more than this.
LARGEST_ERROR: Final = 1.0
#: Longest label, in characters, of which a legend has two side by side.
LONGEST_IN_TWO: Final = 26


class _Curve(NamedTuple):
    """Which column a line shows, and how it looks."""

    column: str
    label: str
    colour: str
    marker: str


_BLOCK_ERRORS: Final = [_Curve(f"rmse_{x}", x, COLOURS[x], MARKERS[x]) for x in BONDS]
_BLOCK_FLAGS: Final = [_Curve(f"converged_{x}", x, COLOURS[x], MARKERS[x]) for x in BONDS]
_OVERLAP: Final = [_Curve("hidden_overlap", "", OTHER_COLOURS[0], OTHER_MARKERS[0])]
_LOST: Final = [_Curve("lost", "", OTHER_COLOURS[0], OTHER_MARKERS[0])]
#: What decides which blocks are learned.
_MODELS: Final = ("learner.hidden_couplings", "learner.bias")
_ESTEP_CONVERGED: Final = [_Curve("settled", "", OTHER_COLOURS[0], OTHER_MARKERS[0])]
_AVERAGE_ERRORS: Final = [
    _Curve(name, symbol, OTHER_COLOURS[i], OTHER_MARKERS[i])
    for i, (name, symbol) in enumerate(_AVERAGES.items())
]


def curves(runs: pd.DataFrame) -> Iterator[FigureSpec]:
    """Every figure that the sweep has data for, whatever it varies."""
    runs = with_network(runs[runs["status"] == "done"])
    for x in numeric_axes(runs):
        learned, inferred = runs[runs["task"] == "learn"], runs[runs["task"] == "infer"]
        if len(learned):
            yield from _of_learning(learned, x)
        if len(inferred):
            yield from _of_inference(inferred, x)


def _of_learning(runs: pd.DataFrame, x: str) -> Iterator[FigureSpec]:
    undiverged = runs[runs["outcome"] != "diverged"]
    blocks = listed(bonds_of(runs))
    guide = " The dashed grey line falls as 1/√T; slopes are of log RMSE on log T, with 95% intervals."
    yield FigureSpec(
        f"error-against-{axis_slug(x)}",
        f"Error of the learned couplings against the {axis_label(x)}",
        f"RMSE of {blocks} in units of the standard deviation of a non-zero bond: means over realizations, bars "
        f"are one standard deviation. {len(runs) - len(undiverged)} of {len(runs)} runs diverged and are left out. The "
        "dotted line is the estimate that is zero everywhere." + (guide if x == "data.length" else ""),
        [Panel(v.title, _errors(v, x, _BLOCK_ERRORS, "RMSE (bond scales)")) for v in views(undiverged, x)],
    )
    yield from _of_many_learners(undiverged, x)
    yield from _of_models(undiverged, x)
    yield FigureSpec(
        f"convergence-against-{axis_slug(x)}",
        f"Runs that converged against the {axis_label(x)}",
        f"Fraction of runs whose {blocks} had settled when learning ended, each block by itself; bars are 95% "
        "Wilson intervals. Diverged runs count as not converged.",
        [
            Panel(v.title, _fractions(v, x, _BLOCK_FLAGS, "fraction of runs converged"))
            for v in views(runs, x)
        ],
    )


def _of_many_learners(runs: pd.DataFrame, x: str) -> Iterator[FigureSpec]:
    """All learners in one panel per block, where they are too many for the panels that hold all blocks."""
    crowded = [view for view in overlays(runs, x) if len(view.series) > MOST_OVERLAID]
    if not crowded:
        return
    # A learner looks the same in all panels.
    order = list(dict.fromkeys(series.label for view in crowded for series in view.series))
    blocks = bonds_of(runs)
    curve = {block: _Curve(f"rmse_{block}", "", COLOURS[block], MARKERS[block]) for block in blocks}
    yield FigureSpec(
        f"learners-against-{axis_slug(x)}",
        f"Learners on the same data, against the {axis_label(x)}",
        f"The same errors, with one panel for each of {listed(blocks)} and one line for each learner.",
        [
            Panel(
                joined(view.title, block),
                _errors(view, x, [curve[block]], f"RMSE of {block} (bond scales)", order),
            )
            for view in crowded
            for block in blocks
            if runs[f"rmse_{block}"].notna().any()
        ],
    )


def _of_models(runs: pd.DataFrame, x: str) -> Iterator[FigureSpec]:
    """How much likelihood learners lose that leave blocks out, where they differ in that."""
    if all(runs[key].nunique() < 2 for key in _MODELS):
        return
    data = ["realization", *(key for key in varied(runs) if not key.startswith("learner."))]
    best = runs.groupby(data, dropna=False)["log_likelihood"].transform("max")
    lost = runs.assign(lost=(best - runs["log_likelihood"]).astype(float))
    panels = list(overlays(lost, x))
    order = list(dict.fromkeys(series.label for view in panels for series in view.series))
    yield FigureSpec(
        f"likelihood-against-{axis_slug(x)}",
        f"Likelihood that is lost by leaving blocks out, against the {axis_label(x)}",
        "Log-likelihood of the recording under the learned couplings, below that of the best learner of the same "
        "recording: means over realizations, bars are one standard deviation. It is that of the data learned from: the "
        "learner with the most couplings gains about half their number, divided by T, from noise.",
        [
            Panel(view.title, _means(view, x, _LOST, "nats per slice below the best", order))
            for view in panels
        ],
    )


def _of_inference(runs: pd.DataFrame, x: str) -> Iterator[FigureSpec]:
    runs = runs.assign(settled=runs["outcome"] == "converged")
    yield FigureSpec(
        f"overlap-against-{axis_slug(x)}",
        f"Hidden spins guessed against the {axis_label(x)}",
        "Mean of hidden spin times the sign of its average at the true couplings: 1 where every guess is right, 0 by "
        "chance. Bars are one standard deviation over realizations.",
        [
            Panel(v.title, _means(v, x, _OVERLAP, "overlap of guessed and true hidden spins"))
            for v in views(runs, x)
        ],
    )
    yield FigureSpec(
        f"settled-against-{axis_slug(x)}",
        f"E-steps that settled against the {axis_label(x)}",
        "Fraction of realizations in which the E-step settled in every slice of time; bars are 95% Wilson intervals.",
        [
            Panel(v.title, _fractions(v, x, _ESTEP_CONVERGED, "fraction of runs settled"))
            for v in views(runs, x)
        ],
    )
    if runs["rmse_pair"].notna().any():
        sound = runs[sound_averages(runs)]
        yield FigureSpec(
            f"averages-against-{axis_slug(x)}",
            f"Error of the averages against the {axis_label(x)}",
            "Root mean square difference of the averages m, μ and ⟨τσ⟩ from exact ones, at the true couplings: means "
            f"over realizations, bars are one standard deviation. {len(runs) - len(sound)} of {len(runs)} runs are set "
            "apart: their E-step did not settle, or an average was beyond what spins can give.",
            [Panel(v.title, _errors(v, x, _AVERAGE_ERRORS, "RMSE against exact")) for v in views(sound, x)],
        )


def sound_averages(runs: pd.DataFrame) -> pd.Series:
    """Whether the averages of a run can be trusted: its E-step settled and no error is larger than possible."""
    errors = runs["rmse_pair"].astype(float)
    return (runs["outcome"] == "converged") & np.isfinite(errors) & (errors <= LARGEST_ERROR)


def _errors(
    view: View, x: str, shown: list[_Curve], label: str, order: Sequence[str] = ()
) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for curve, series, style in _lines(view, shown, order):
            frame = series.runs.groupby(x)[curve.column].agg(["mean", "std"]).dropna(subset=["mean"])
            frame = frame.astype(float)
            spread = np.nan_to_num(frame["std"].to_numpy())
            mean = frame["mean"].to_numpy()
            # On a logarithmic axis a bar must not reach zero.
            bars = [np.minimum(spread, 0.9 * mean), spread]
            axes.errorbar(
                frame.index.to_numpy(dtype=float), mean, yerr=bars,
                label=_slope_label(curve, series, x), **style,
            )  # fmt: skip
        if x == "data.length":
            _guide(axes, view, shown[0].column)
        _baseline(axes, view)
        axes.set(yscale="log", ylabel=label)
        _finish(axes, x)

    return draw


def _means(
    view: View, x: str, shown: list[_Curve], label: str, order: Sequence[str] = ()
) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for curve, series, style in _lines(view, shown, order):
            frame = series.runs.groupby(x)[curve.column].agg(["mean", "std"]).astype(float)
            axes.errorbar(
                frame.index.to_numpy(dtype=float), frame["mean"], yerr=np.nan_to_num(frame["std"]),
                label=_label(curve, series), **style,
            )  # fmt: skip
        axes.set(ylabel=label)
        _finish(axes, x)

    return draw


def _fractions(view: View, x: str, shown: list[_Curve], label: str) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for curve, series, style in _lines(view, shown):
            rows = [
                (float(cast(float, value)), *fraction(part[curve.column]))
                for value, part in series.runs.groupby(x)
            ]
            place, share, low, high = (np.array(column) for column in zip(*rows, strict=True))
            bars = [np.maximum(share - low, 0), np.maximum(high - share, 0)]
            axes.errorbar(place, share, yerr=bars, label=_label(curve, series), **style)
        axes.set(ylabel=label, ylim=(-0.05, 1.05))
        _finish(axes, x)

    return draw


def _lines(
    view: View, shown: list[_Curve], order: Sequence[str] = ()
) -> Iterator[tuple[_Curve, Series, Mapping[str, Any]]]:
    """Every line of a panel: blocks by colour and shape, learners by filling and dashes; learners that have an order by
    colour and shape.
    """
    for number, series in enumerate(view.series):
        place = order.index(series.label) if order else None
        for curve in shown:
            if series.runs[curve.column].notna().any():
                colour = curve.colour if place is None else OTHER_COLOURS[place % len(OTHER_COLOURS)]
                marker = curve.marker if place is None else OTHER_MARKERS[place % len(OTHER_MARKERS)]
                face = colour if number == 0 else "white"
                yield curve, series, {
                    "color": colour, "marker": marker, "markerfacecolor": face,
                    "linestyle": LINE_STYLES[number % len(LINE_STYLES)], "markersize": 5, "linewidth": 1.2,
                    "capsize": 3,
                }  # fmt: skip


def _label(curve: _Curve, series: Series) -> str:
    return joined(curve.label, series.label)


def _slope_label(curve: _Curve, series: Series, x: str) -> str:
    label = _label(curve, series)
    block = curve.column.removeprefix("rmse_")
    if x != "data.length" or block not in BONDS:
        return label
    slopes = scaling(series.runs)
    own = slopes[slopes["block"] == block]
    if len(own) != 1 or pd.isna(own["slope"].iloc[0]):
        return label
    row = own.iloc[0]
    span = "" if pd.isna(row["slope_low"]) else f" ({row['slope_low']:.2f}..{row['slope_high']:.2f})"
    return f"{label}: slope {row['slope']:.2f}{span}"


def _guide(axes: Axes, view: View, column: str) -> None:
    first = view.series[0].runs
    means = first.groupby("data.length")[column].mean().dropna().astype(float)
    if len(means) > 1:
        lengths = means.index.to_numpy(dtype=float)
        axes.plot(
            lengths,
            means.iloc[0] * np.sqrt(lengths[0] / lengths),
            "--",
            color=GUIDE_COLOUR,
            label=r"slope $-1/2$",
        )


def _baseline(axes: Axes, view: View) -> None:
    runs = view.series[0].runs
    values = runs[runs["model.strength"] > 0]["baseline_rmse"].dropna().unique()
    if len(values) == 1:
        axes.axhline(float(values[0]), color=GUIDE_COLOUR, linestyle=":", linewidth=1, label="all zero")


def _finish(axes: Axes, x: str) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    low, high = axes.dataLim.intervalx
    if x != FRACTION and 0 < low < np.inf and high / low >= 10:  # infinite where nothing was drawn
        axes.set_xscale("log")
        if high / low < 100:
            # One or two powers of ten are too few ticks, and labels on all the ticks between them too many.
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(axis_label(x))
    axes.grid(visible=True, which="major", linewidth=0.3)
    if any(axes.get_legend_handles_labels()[1]):
        # Below the diagram, where it covers no data.
        longest = max(map(len, axes.get_legend_handles_labels()[1]))
        columns = 2 if longest <= LONGEST_IN_TWO else 1
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=columns)
