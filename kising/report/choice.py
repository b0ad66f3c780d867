"""The choice of the number of hidden spins as text: a table of held-out scores beside the baselines, and the reason."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kising.errors import InputError
from kising.learning.selection import (
    HIDDEN,
    MEMORYLESS,
    OWN,
    VISIBLE_ONLY,
    Choice,
    Folds,
    choose_hidden,
    mean_and_error,
)

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS: Final = ("joint", "forecast", "memoryless joint", "memoryless forecast")
_WIDTH: Final = 22


def choice_among(runs: pd.DataFrame) -> Iterator[str]:
    """The choice from the runs of a sweep; nothing where the sweep does not compare numbers of hidden spins."""
    if not _compares(runs):
        return
    try:
        choice = choose_hidden(runs)
    except InputError as error:
        yield f"The number of hidden spins cannot be chosen: {error}."
        return
    yield from choice_lines(choice)


def chosen_among(runs: pd.DataFrame) -> str | None:
    """The choice from the runs of a sweep in a sentence or two; None where there is none."""
    if not _compares(runs):
        return None
    try:
        return choose_hidden(runs).reason
    except InputError:
        return None


def _compares(runs: pd.DataFrame) -> bool:
    """Whether the runs compare numbers of hidden spins of a recording."""
    return "data.file" in runs and bool(runs["data.file"].notna().any()) and runs[HIDDEN].nunique() > 1


def choice_lines(choice: Choice) -> Iterator[str]:
    """A title, the table and the reason."""
    yield f"Held-out log-likelihood, nats per slice: mean ± standard error of {choice.folds} folds"
    yield f"{'hidden spins':>12}" + "".join(f"{name:>{_WIDTH}}" for name in _COLUMNS) + f"{'converged':>11}"
    if all(one.hidden for one in choice.candidates):
        yield f"{'none':>12}" + _cells(choice.baseline, VISIBLE_ONLY)
    for one in choice.candidates:
        settings = "".join(f", {key.rpartition('.')[2]} {value}" for key, value in one.settings.items())
        mark = " <- chosen" * (one.hidden == choice.hidden)
        done = f"{one.converged}/{choice.folds}"
        yield f"{one.hidden:>12}" + _cells(one.scores, (*OWN, *MEMORYLESS)) + f"{done:>11}{settings}{mark}"
    yield choice.reason


def plus_minus(values: Folds) -> str:
    """Mean ± standard error over folds; a dash where a fold has no score."""
    mean, error = mean_and_error(values)
    return f"{mean:.5f} ± {error:.5f}" if math.isfinite(mean) else "-"


def _cells(scores: Mapping[str, Folds], columns: Sequence[str]) -> str:
    return "".join(f"{plus_minus(scores[column]):>{_WIDTH}}" for column in columns)
