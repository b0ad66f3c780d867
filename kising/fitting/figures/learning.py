"""The learning curve, and the scores of the fit on held-out data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kising.blocks import BLOCKS
from kising.fitting.figures.svg import COLOURS, INK, svg
from kising.learning.selection import mean_and_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kising.learning.fit import Fit
    from kising.learning.selection import Choice


def learning_figures(found: Fit) -> list[str]:
    """Log-likelihood and step sizes (of samplers also the Monte-Carlo error) by iteration."""
    figures = []
    if found.trace["log_likelihood"].notna().any():  # estimators that sample do not follow it
        figures.append(svg(lambda axes: _likelihood(axes, found), "Log-likelihood by iteration"))
    figures.append(
        svg(lambda axes: _by_block(axes, found, "step", "step, in bond scales"), "Steps by iteration")
    )
    if found.state.sampler is not None:
        text = "Monte-Carlo over statistical error"
        figures.append(
            svg(lambda axes: _by_block(axes, found, "noise", text), "Monte-Carlo error by iteration")
        )
    return figures


def _likelihood(axes: Axes, found: Fit) -> None:
    values = found.trace["log_likelihood"].to_numpy()
    axes.plot(found.trace["iteration"], values, color=COLOURS["L"], marker=".", linewidth=1.5)
    finite = values[np.isfinite(values)]
    # The first iterations are far off; the end is what matters.
    if len(finite) > 10:
        low, high = float(np.quantile(finite, 0.1)), float(finite.max())
        if high > low:
            axes.set_ylim(low - 0.3 * (high - low), high + 0.1 * (high - low))
    axes.set_xlabel("iteration")
    axes.set_ylabel("log-likelihood, nats per slice")


def _by_block(axes: Axes, found: Fit, column: str, text: str) -> None:
    for name in BLOCKS:
        values = found.trace[f"{column}_{name}"].to_numpy()
        if name in found.converged and np.isfinite(values).any() and (values[np.isfinite(values)] > 0).any():
            axes.semilogy(
                found.trace["iteration"],
                np.where(values > 0, values, np.nan),
                color=COLOURS[name],
                label=name,
            )
    sampled = found.state.sampler is not None
    if column == "noise" or not sampled:
        limit, word = (
            (found.learner.noise, "noise") if column == "noise" else (found.learner.tolerance, "tolerance")
        )
        axes.axhline(limit, color=INK, linestyle=":", linewidth=1, label=word)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(ncols=4)
    axes.set_xlabel("iteration")
    axes.set_ylabel(text)


def score_figures(choice: Choice) -> list[str]:
    """Held-out scores by the number of hidden spins, beside the baselines."""
    return [
        svg(
            lambda axes: _scores(axes, choice, "held_out", "joint"),
            "Held-out joint log-likelihood by hidden spins",
        ),
        svg(lambda axes: _scores(axes, choice, "forecast", "forecast"), "Held-out forecasts by hidden spins"),
    ]


def _scores(axes: Axes, choice: Choice, column: str, name: str) -> None:
    places = [one.hidden for one in choice.candidates]
    for key, label, colour in ((column, "network", "L"), (f"{column}_memoryless", "memoryless", "J")):
        pairs = [mean_and_error(one.scores[key]) for one in choice.candidates]
        means, errors = [x for x, _ in pairs], [e for _, e in pairs]
        if np.isfinite(means).any():
            axes.errorbar(places, means, errors, color=COLOURS[colour], marker="o", capsize=3, label=label)
    alone = mean_and_error(choice.baseline[f"{column}_visible_only"])[0]
    if np.isfinite(alone):
        axes.axhline(alone, color=INK, linestyle=":", linewidth=1, label="no hidden spins")
    chosen = mean_and_error(choice.chosen.scores[column])[0]
    if np.isfinite(chosen):
        axes.plot(
            choice.hidden, chosen, "o", markersize=12, fillstyle="none", color=COLOURS["K"], label="chosen"
        )
    axes.set_xticks(places)
    axes.set_xlabel("hidden spins")
    axes.set_ylabel(f"{name}, nats per slice")
    axes.set_title(f"held-out {name} log-likelihood")
    axes.margins(y=0.15)
    axes.legend()
