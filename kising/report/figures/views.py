"""Which parameters of a sweep vary, and how a figure divides among them: one along its axis, some to panels.

Nothing is known here of any particular sweep. Sizes that vary together are seen as what they mean: the number of
spins where that changes, the visible fraction where it does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pandas as pd

from kising.report.figures.style import setting
from kising.report.summary import AXES

SIZE, FRACTION = "network.size", "network.fraction"
SIZES: Final = ("model.visible", "model.hidden")
_FIRST: Final = ("data.length", SIZE, FRACTION, "model.strength", "model.connectivity")
#: So many values make an axis of a figure; fewer only where nothing else varies.
ENOUGH: Final = 3
MOST_OVERLAID: Final = 2


class Series(NamedTuple):
    """The runs of one line (or of one for each of J, K, L), and what to call it."""

    label: str
    runs: pd.DataFrame


class View(NamedTuple):
    """One panel: what it holds fixed, and the series in it."""

    title: str
    series: list[Series]


def with_network(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with the number of spins and the fraction of visible ones."""
    visible, hidden = (runs[key].astype(float) for key in SIZES)
    return runs.assign(**{SIZE: visible + hidden, FRACTION: visible / (visible + hidden)})


def varied(runs: pd.DataFrame) -> list[str]:
    """The parameters that take several values. Null is none: what has no effect follows from the others."""
    return [key for key in AXES if key in runs and runs[key].nunique() > 1]


def numeric_axes(runs: pd.DataFrame) -> list[str]:
    """The parameters to draw something against: all numeric ones with enough values, or else the longest."""
    keys = varied(runs)
    counts: dict[str, int] = {}
    for key in (*_FIRST, *keys):
        if key in SIZES or key in counts or (key not in keys and key not in (SIZE, FRACTION)):
            continue
        if pd.api.types.is_numeric_dtype(runs[key]) and not pd.api.types.is_bool_dtype(runs[key]):
            counts[key] = int(runs[key].dropna().nunique())
    # Sizes that vary are one axis: a fraction is one only where the number of spins stays.
    if counts.get(SIZE, 0) > 1:
        counts.pop(FRACTION, None)
    else:
        counts.pop(SIZE, None)
    several = {key: count for key, count in counts.items() if count > 1}
    chosen = [key for key, count in several.items() if count >= ENOUGH or key == "data.length"]
    return chosen or sorted(several, key=lambda key: -several[key])[:1]


def views(runs: pd.DataFrame, x: str) -> Iterator[View]:
    """The panels of a figure against `x`: networks and data apart, and ways of learning too where they are many."""
    for view in overlays(runs, x):
        if len(view.series) <= MOST_OVERLAID:
            yield view
        else:
            for label, part in view.series:
                yield View(join(view.title, label), [Series("", part)])


def overlays(runs: pd.DataFrame, x: str) -> Iterator[View]:
    """A panel for every network and kind of data, with all ways of learning in it."""
    keys = [key for key in varied(runs) if key != x and not (x in (SIZE, FRACTION) and key in SIZES)]
    learner = [key for key in keys if key.startswith("learner.")]
    world = [key for key in keys if key not in learner]
    for fixed, group in grouped(runs, world):
        methods = [Series(said(learner, values), part) for values, part in grouped(group, learner)]
        methods = [method for method in methods if method.runs[x].nunique() > 1]
        if methods:
            yield View(said(world, fixed), methods)


def grouped(runs: pd.DataFrame, keys: list[str]) -> list[tuple[tuple[Any, ...], pd.DataFrame]]:
    """The runs by the values of some parameters, in the order in which they come."""
    if not keys:
        return [((), runs)]
    return [(tuple(values), part) for values, part in runs.groupby(keys, sort=False, dropna=False)]


def said(keys: list[str], values: tuple[Any, ...]) -> str:
    """Parameters and their values in words; those that have no effect there are left out."""
    return ", ".join(
        setting(key, value) for key, value in zip(keys, values, strict=True) if not pd.isna(value)
    )


def groups(runs: pd.DataFrame, *without: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """The runs by everything that varies apart from some keys, each group with its name."""
    keys = [key for key in varied(runs) if key not in without]
    for values, part in grouped(runs, keys):
        yield said(keys, values), part


def join(*words: str) -> str:
    """Words that are not empty, with commas between them."""
    return ", ".join(filter(None, words))
