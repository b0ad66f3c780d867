"""How many hidden spins: chosen from held-out log-likelihoods by the one-standard-error rule.

The best number is the one with the highest mean over folds. The smallest number whose mean is at most one standard
error below it is chosen. The standard error is that of the paired difference, because folds differ more from each other
than numbers of hidden spins do, and all numbers are scored on the same folds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from kising.errors import InputError
from kising.options import LEAVES

if TYPE_CHECKING:
    import pandas as pd

HIDDEN = "model.hidden"
#: Columns of rows with scores of the fold, in nats per slice: of the network, and of its control without memory.
OWN = ("held_out", "forecast")
MEMORYLESS = ("held_out_memoryless", "forecast_memoryless")
#: Those of the baseline without hidden spins.
VISIBLE_ONLY = ("held_out_visible_only", "forecast_visible_only")

Folds = tuple[float, ...]
"""a score of every fold; NaN where a fold has none"""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One number of hidden spins."""

    hidden: int
    held_out: float
    """mean over folds, nats per slice"""
    behind: float
    """how far below the best, nats per slice: mean over folds"""
    error: float
    """standard error of `behind`; 0 for the best"""
    point_id: str | None
    """the point whose rows these are: where several points have this number, the best of them"""
    settings: Mapping[str, Any]
    """what distinguishes this point from others: its values of the other options that vary"""
    scores: Mapping[str, Folds]
    """by column, those of `OWN`, `MEMORYLESS` and `VISIBLE_ONLY`"""
    converged: int
    """folds in which learning converged"""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What was chosen, and why."""

    hidden: int
    """the number chosen"""
    best: int
    """the number with the highest mean"""
    folds: int
    candidates: tuple[Candidate, ...]
    """from the smallest number to the largest"""
    left_out: tuple[int, ...]
    """numbers of which not every fold has a finite score"""
    reason: str
    """one or two sentences"""

    @property
    def baseline(self) -> Mapping[str, Folds]:
        """The scores of the baseline without hidden spins, by column."""
        return {column: self.chosen.scores[column] for column in VISIBLE_ONLY}

    @property
    def chosen(self) -> Candidate:
        """The candidate that was chosen."""
        return next(x for x in self.candidates if x.hidden == self.hidden)


def choose_hidden(rows: pd.DataFrame | Iterable[Mapping[str, Any]]) -> Choice:
    """Choose from the rows of a sweep over `model.hidden`: one row per number and fold.

    Rows have `model.hidden`, `realization` (the fold) and `held_out`; `status` and `point_id` are used if present. If
    several points have the same number (because the prior is an axis, for example), the best of them represents it.
    """
    listed: Iterable[Mapping[Any, Any]] = rows.to_dict("records") if hasattr(rows, "to_dict") else rows
    points = _by_point(listed)
    numbers = {point: int(next(iter(own.values()))[HIDDEN]) for point, own in points.items()}
    folds = sorted({fold for own in points.values() for fold in own})
    complete = {
        point: scores
        for point, own in points.items()
        if own.keys() == set(folds)
        and np.isfinite(scores := np.array([_score(own[fold], "held_out") for fold in folds])).all()
    }
    if not complete:
        raise InputError(
            "no number of hidden spins has a finite held-out score in every fold: nothing to choose from; a prior "
            "(prior 3, say) keeps learning from diverging"
        )
    if len(folds) < 2:
        raise InputError("the one-standard-error rule needs at least two folds")
    leaders: dict[int, str] = {}
    for point, values in complete.items():
        leader = leaders.setdefault(numbers[point], point)
        if values.mean() > complete[leader].mean():
            leaders[numbers[point]] = point
    # Among equal means, the smaller number is the best.
    best = max(sorted(leaders), key=lambda hidden: complete[leaders[hidden]].mean())
    varied = _varied(points)
    candidates = tuple(
        _candidate(
            hidden,
            leaders[hidden],
            complete[leaders[best]] - complete[leaders[hidden]],
            [points[leaders[hidden]][fold] for fold in folds],
            varied,
        )
        for hidden in sorted(leaders)
    )
    chosen = next(x for x in candidates if x.behind <= x.error)
    left_out = tuple(sorted(set(numbers.values()) - leaders.keys()))
    return Choice(
        hidden=chosen.hidden,
        best=best,
        folds=len(folds),
        candidates=candidates,
        left_out=left_out,
        reason=_reason(chosen, best, candidates, left_out, len(folds)),
    )


def selection_spec(
    file: str | PathLike[str],
    hidden: Sequence[int],
    *,
    seed: int,
    folds: int = 5,
    learner: Mapping[str, Any] | None = None,
    name: str = "choose-hidden",
) -> dict[str, Any]:
    """The sweep that `choose_hidden` chooses from, as `kising.run_sweep` takes it: a recording, and numbers to try.

    `learner` has the keys of a sweep file. Paths are relative to the current directory.
    """
    return {
        "name": name,
        "description": f"How many hidden spins: {', '.join(map(str, hidden))}",
        "seed": seed,
        "model": {},
        "data": {"file": str(file), "folds": folds},
        "learner": dict(learner or {}),
        "axes": {HIDDEN: list(hidden)},
    }


def mean_and_error(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """The mean over folds and its standard error; NaN where a fold has no score."""
    x = np.asarray(values, dtype=float)
    return float(x.mean()), float(x.std(ddof=1) / math.sqrt(len(x)))


def _by_point(rows: Iterable[Mapping[Any, Any]]) -> dict[str, dict[int, Mapping[Any, Any]]]:
    """The row of every fold of every point."""
    points: dict[str, dict[int, Mapping[Any, Any]]] = {}
    for row in rows:
        missing = [key for key in (HIDDEN, "realization", "held_out") if key not in row]
        if missing:
            raise InputError(f"rows: they have no {missing[0]!r}; give the runs of a sweep with data.file")
        hidden, fold = int(row[HIDDEN]), int(row["realization"])
        own = points.setdefault(str(row.get("point_id") or f"{hidden} hidden spins"), {})
        if fold in own:
            raise InputError(
                f"rows: fold {fold} with {hidden} hidden spins is there twice; give each run once"
            )
        own[fold] = row
    return points


def _score(row: Mapping[Any, Any], column: str) -> float:
    value = row.get(column)
    return math.nan if row.get("status", "done") != "done" or value is None else float(value)


def _varied(points: Mapping[str, Mapping[int, Mapping[Any, Any]]]) -> list[str]:
    """The options of learning that differ between points."""
    firsts = [next(iter(own.values())) for own in points.values()]
    keys = [key for key in LEAVES if key.startswith("learner.")]
    return [key for key in keys if len({str(row.get(key)) for row in firsts}) > 1]


def _candidate(
    hidden: int, point: str, behind: np.ndarray, rows: Sequence[Mapping[Any, Any]], varied: Sequence[str]
) -> Candidate:
    scores = {
        column: tuple(_score(row, column) for row in rows) for column in (*OWN, *MEMORYLESS, *VISIBLE_ONLY)
    }
    below, error = mean_and_error(behind)
    return Candidate(
        hidden=hidden,
        held_out=mean_and_error(scores["held_out"])[0],
        behind=below,
        error=error,
        point_id=None if point.endswith(" hidden spins") else point,
        settings={key: rows[0].get(key) for key in varied},
        scores=scores,
        converged=sum(row.get("outcome") == "converged" for row in rows),
    )


def _reason(
    chosen: Candidate, best: int, candidates: Sequence[Candidate], left_out: Sequence[int], folds: int
) -> str:
    top = next(x for x in candidates if x.hidden == best)
    spins = "1 hidden spin" if chosen.hidden == 1 else f"{chosen.hidden} hidden spins"
    score = f"{top.held_out:.4f} nats per slice over {folds} folds"
    smaller = [x for x in candidates if x.hidden < best]
    if chosen is not top:
        why = (
            f"Chosen: {spins}, the fewest within one standard error of the best. Their held-out log-likelihood is "
            f"{_gap(chosen)} nats per slice below that of {best} ({score})"
        )
    else:
        why = f"Chosen: {spins}, with the highest held-out log-likelihood ({score})"
        if smaller:
            near = max(smaller, key=lambda x: x.held_out)
            why += f". No smaller number comes within one standard error: {near.hidden} is {_gap(near)} below"
    if left_out:
        why += f". Left out, because a fold failed or diverged: {', '.join(map(str, left_out))}"
    return why + "."


def _gap(candidate: Candidate) -> str:
    return f"{candidate.behind:.4f} ± {candidate.error:.4f}"
