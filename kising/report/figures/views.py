"""Which parameters of a sweep vary, and how a figure shows them: one along its axis, the others as panels and lines.

This holds for any sweep. Sizes that vary together are shown as what they mean: the number of spins if that changes,
else the visible fraction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from kising.report.figures.style import describe_setting
from kising.report.summary import NULL_IS_A_VALUE, varied

SIZE, FRACTION = "network.size", "network.fraction"
SIZES: Final = ("model.visible", "model.hidden")
_FIRST: Final = ("data.length", SIZE, FRACTION, "model.strength", "model.connectivity")
#: Number of values that make an axis of a figure; fewer only if nothing else varies.
ENOUGH: Final = 3
MOST_OVERLAID: Final = 2


class Series(NamedTuple):
    """The runs of one line (or of one line per block), and its label."""

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


def numeric_axes(runs: pd.DataFrame) -> list[str]:
    """The parameters to draw figures against: all numeric ones with enough values, or else the one with most."""
    keys = varied(runs)
    counts: dict[str, int] = {}
    for key in (*_FIRST, *keys):
        if key in SIZES or key in counts or (key not in keys and key not in (SIZE, FRACTION)):
            continue
        if pd.api.types.is_numeric_dtype(runs[key]) and not pd.api.types.is_bool_dtype(runs[key]):
            counts[key] = int(runs[key].dropna().nunique())
    # Sizes make one axis: the visible fraction only if the number of spins stays the same, and the number of hidden
    # spins of a recording, whose visible spins are given.
    only_hidden = SIZES[1] in keys and SIZES[0] not in keys and runs["data.file"].notna().all()
    if only_hidden:
        counts = {SIZES[1]: int(runs[SIZES[1]].nunique()), **counts}
        counts.pop(SIZE, None)
        counts.pop(FRACTION, None)
    elif counts.get(SIZE, 0) > 1:
        counts.pop(FRACTION, None)
    else:
        counts.pop(SIZE, None)
    several = {key: count for key, count in counts.items() if count > 1}
    chosen = [key for key, count in several.items() if count >= ENOUGH or key == "data.length"]
    return chosen or sorted(several, key=lambda key: -several[key])[:1]


def views(runs: pd.DataFrame, x: str) -> Iterator[View]:
    """The panels of a figure against `x`: one per network and kind of data, and per learner too if there are many."""
    for view in overlays(runs, x):
        if len(view.series) <= MOST_OVERLAID:
            yield view
        else:
            for label, part in view.series:
                yield View(joined(view.title, label), [Series("", part)])


def overlays(runs: pd.DataFrame, x: str) -> Iterator[View]:
    """One panel per network and kind of data, with all learners in it."""
    keys = [key for key in varied(runs) if key != x and not (x in (SIZE, FRACTION) and key in SIZES)]
    learner = [key for key in keys if key.startswith("learner.")]
    others = [key for key in keys if key not in learner]
    for fixed, group in grouped(runs, others):
        lines = [Series(describe(learner, values), part) for values, part in grouped(group, learner)]
        lines = [line for line in lines if line.runs[x].nunique() > 1]
        if lines:
            yield View(describe(others, fixed), lines)


def grouped(runs: pd.DataFrame, keys: list[str]) -> list[tuple[tuple[Any, ...], pd.DataFrame]]:
    """The runs grouped by the values of some parameters: numbers in their order, words in that of appearance."""
    if not keys:
        return [((), runs)]
    found = [(tuple(values), part) for values, part in runs.groupby(keys, sort=False, dropna=False)]
    places = [list(dict.fromkeys(_place(values[i]) for values, _ in found)) for i in range(len(keys))]
    return sorted(
        found, key=lambda group: [_rank(value, seen) for value, seen in zip(group[0], places, strict=True)]
    )


def _place(value: Any) -> Any:
    return None if pd.isna(value) else value


def _rank(value: Any, seen: list[Any]) -> float:
    """Where a value stands; those without effect (null) come first."""
    place = _place(value)
    if isinstance(place, bool) or not isinstance(place, int | float | np.number):
        return -np.inf if place is None else float(seen.index(place))
    return float(place)


def describe(keys: list[str], values: tuple[Any, ...]) -> str:
    """Parameters and their values as text; those without effect (null) are left out."""
    return ", ".join(
        describe_setting(key, "null" if pd.isna(value) else value)
        for key, value in zip(keys, values, strict=True)
        if key in NULL_IS_A_VALUE or not pd.isna(value)
    )


def groups(runs: pd.DataFrame, *without: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """The runs grouped by everything that varies apart from some keys, each group with its description."""
    keys = [key for key in varied(runs) if key not in without]
    for values, part in grouped(runs, keys):
        yield describe(keys, values), part


def joined(*texts: str) -> str:
    """The texts that are not empty, separated by commas."""
    return ", ".join(filter(None, texts))
