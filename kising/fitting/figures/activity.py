"""A stretch of the recording as a raster, with the hidden states below it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from kising.fitting.figures.svg import COLOUR_MAP, drawable, svg, tick_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kising.learning.fit import Fit
    from kising.model import Array, Spins
    from kising.recordings import Segments

STEPS: Final = 200
SPINS: Final = 60


def activity_figure(found: Fit, segments: Segments) -> tuple[str, str]:
    """The beginning of the longest segment: its figure and its caption."""
    longest = int(np.argmax(segments.lengths))
    part = _window(segments, longest)
    spins = part.spins[0]
    shown = spins[:, :SPINS]
    hidden = np.zeros((len(spins) - 2, 0))
    if found.hidden and found.outcome != "diverged":
        hidden = np.asarray(found.hidden_states(part))
    rows = shown.shape[1] + 1 + hidden.shape[1]
    height = float(np.clip(1.0 + 0.13 * rows, 2.4, 9.0))
    figure = svg(
        lambda axes: _draw(axes, shown, hidden, segments.names),
        "Raster of the visible spins, hidden states below",
        height=height,
        width=9.0,
    )
    where = "" if len(segments.spins) == 1 else f" of segment {longest}, the longest"
    fewer = f", {SPINS} of {spins.shape[1]} spins" if spins.shape[1] > SPINS else ""
    missing = "" if shown.all() else ", grey is missing"
    caption = f"The first {len(spins)} steps{where}{fewer}; black is +1{missing}."
    if hidden.shape[1]:
        # With M or missing entries, steps depend on each other.
        alone = spins.all() and not found.couplings.M.any()
        given = "the visible ones at the steps before, at and after" if alone else "the whole stretch shown"
        caption += (
            f" Below, the mean of each hidden spin given {given}: red is +1, blue is -1, white is unknown. Signs and "
            "order of hidden spins are arbitrary."
        )
    return figure, caption


def _window(segments: Segments, k: int) -> Segments:
    covariates = segments.covariates
    return replace(
        segments,
        spins=(np.ascontiguousarray(segments.spins[k][:STEPS]),),
        covariates=None if covariates is None else (np.ascontiguousarray(covariates[k][:STEPS]),),
        origins=(segments.origins[k],),
    )


def _draw(axes: Axes, spins: Spins, hidden: Array, names: tuple[str, ...]) -> None:
    steps, nv = spins.shape
    nh = hidden.shape[1]
    axes.imshow(
        spins.T,
        cmap="binary",
        vmin=-1,
        vmax=1,
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, steps - 0.5, nv, 0),
    )
    ticks, texts = [], []
    listed = tick_names(names, most=SPINS)
    if listed is not None and nv <= 24:
        ticks, texts = [i + 0.5 for i in range(nv)], listed[:nv]
    elif nv:
        ticks, texts = [0.5, nv - 0.5], [drawable(names[0]), drawable(names[nv - 1])]
    if nh:
        # A gap of one row between visible and hidden spins.
        axes.imshow(
            hidden.T, cmap=COLOUR_MAP, vmin=-1, vmax=1, aspect="auto", interpolation="nearest",
            extent=(0.5, steps - 1.5, nv + 1 + nh, nv + 1),
        )  # fmt: skip
        ticks += [nv + 1.5 + a for a in range(nh)]
        texts += [f"hidden {a}" for a in range(nh)]
    axes.set_yticks(ticks, texts, fontsize=8)
    axes.set_ylim(nv + (1 + nh if nh else 0), 0)
    axes.set_xlim(-0.5, steps - 0.5)
    axes.set_xlabel("time step")
