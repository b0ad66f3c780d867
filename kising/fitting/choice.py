"""How many hidden spins: held-out scores of several numbers, and the one-standard-error rule.

Every number Nh is fitted to the training data of every fold and scored on the rest, by two scores in nats per slice:
the joint log-likelihood of all spins, and the forecast of each spin by itself (docs/maths.md, "The larger model"). The
best number has the largest mean joint score. Chosen is the smallest number whose mean difference from the best, paired
over folds, is at most the standard error of that difference.

Scores are written down as they are found. The same command goes on after those that it finds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from kising.atomic import atomic_write
from kising.estimators.slices import Slices
from kising.learning import selection
from kising.learning.folds import Fold
from kising.recordings import Segments
from kising.sweep.drive.progress import duration

if TYPE_CHECKING:
    from kising.learning import selection
from kising.learning.fit import Fit

Array = npt.NDArray[np.float64]
FOLDS: Final = 5


@dataclass(frozen=True)
class Score:
    """A fit on data that it has not seen; NaN where learning diverged."""

    joint: float
    """mean of log P(s(t+1) | s(t), s(t-1)), nats per slice"""
    forecast: float
    """mean of Σ_i log P(s_i(t+1) | s(t), s(t-1)), nats per slice"""
    converged: bool


@dataclass(frozen=True)
class Candidate:
    """A number of hidden spins with the scores of all folds."""

    hidden: int
    scores: tuple[Score, ...]

    @property
    def joint(self) -> Array:
        """The joint score of every fold."""
        return np.array([score.joint for score in self.scores])

    @property
    def forecast(self) -> Array:
        """The forecast score of every fold."""
        return np.array([score.forecast for score in self.scores])


@dataclass(frozen=True)
class Choice:
    """The number of hidden spins that was chosen, and why."""

    hidden: int
    why: str
    candidates: tuple[Candidate, ...]
    """in the order of their hidden spins; the baseline 0 is always among them"""
    independent: tuple[float, ...]
    """per fold, the score of spins that ignore each other and the past: the rate of each in the training data"""
    left_out: tuple[str, ...] = ()
    """spins without part in the scores: they never change in the training data of some fold"""

    def lines(self) -> Iterator[str]:
        """The table, and why."""
        yield (
            f"held-out log-likelihood, nats per slice, mean ± standard error of {len(self.independent)} folds"
        )
        yield f"{'hidden spins':>14}{'joint':>24}{'forecast':>24}{'converged':>12}"
        for one in self.candidates:
            done = f"{sum(score.converged for score in one.scores)}/{len(one.scores)}"
            mark = " <- chosen" if one.hidden == self.hidden else ""
            yield f"{one.hidden:>14}{_pm(one.joint):>24}{_pm(one.forecast):>24}{done:>12}{mark}"
        alone = np.array(self.independent)
        yield f"{'independent':>14}{_pm(alone):>24}{_pm(alone):>24}{'-':>12}"
        if self.left_out:
            yield f"without {', '.join(self.left_out[:5])}{' ...' * (len(self.left_out) > 5)}: constant in some fold"
        yield self.why

    def as_json(self) -> dict[str, Any]:
        """For fit.json."""
        return {
            "hidden": self.hidden,
            "why": self.why,
            "folds": len(self.independent),
            "scores": [
                {
                    "hidden": one.hidden,
                    "joint": [_number(x) for x in one.joint],
                    "forecast": [_number(x) for x in one.forecast],
                    "converged": [score.converged for score in one.scores],
                }
                for one in self.candidates
            ],
            "independent": list(self.independent),
            "left_out": list(self.left_out),
        }


def mean_and_error(values: Array) -> tuple[float, float]:
    """The mean over folds and its standard error."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def _pm(values: Array) -> str:
    mean, error = mean_and_error(values)
    return f"{mean:.5f} ± {error:.5f}" if np.isfinite(mean) else "diverged"


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def decide(candidates: Sequence[Candidate], asked: Sequence[int]) -> tuple[int, str]:
    """The number of hidden spins among those asked for, and the reason: by the rule of `learning.selection`."""
    rows = [
        {"model.hidden": one.hidden, "realization": fold, "held_out": float(joint)}
        for one in candidates
        if one.hidden in asked
        for fold, joint in enumerate(one.joint)
    ]
    if not any(np.isfinite(one.joint).all() for one in candidates if one.hidden in asked):
        least = min(asked)
        return least, f"Nh = {least}: learning diverged in some fold of every number."
    found = selection.choose_hidden(rows)
    return found.hidden, found.reason


def independent_score(fold: Fold) -> float:
    """The held-out score of spins with a rate each."""
    after = Slices.of(fold.training.spins).after > 0
    rate = (after.sum(axis=0) + 0.5) / (len(after) + 1.0)
    seen = Slices.of(fold.held_out.spins).after > 0
    return float(np.mean(np.where(seen, np.log(rate), np.log1p(-rate)).sum(axis=1)))


def score_fit(fitted: Fit, held_out: Segments, threads: int) -> Score:
    """The scores of a fit on data that it has not seen."""
    if fitted.outcome == "diverged":
        return Score(np.nan, np.nan, converged=False)
    joint = fitted.log_likelihood(held_out, threads=threads)
    return Score(
        joint,
        fitted.forecast_log_likelihood(held_out, threads=threads),
        converged=fitted.outcome == "converged",
    )


class Scores:
    """Scores found so far, in a file; those of other data or options are ignored."""

    def __init__(self, path: Path, identity: str, report: Callable[[str], None]) -> None:
        self._path, self._identity = path, identity
        self._found: dict[str, Any] = {}
        try:
            read = json.loads(path.read_bytes())
            if read["identity"] == identity:
                self._found = {str(key): dict(value) for key, value in read["scores"].items()}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            report(f"{path.name} cannot be read: scores are computed anew")

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def get(self, key: str) -> Score | None:
        """The score of a fit, None where it is not known."""
        found: Mapping[str, Any] = self._found.get(key, {})
        try:
            joint, forecast = (np.nan if found[x] is None else float(found[x]) for x in ("joint", "forecast"))
            return Score(joint, forecast, converged=bool(found["converged"]))
        except (KeyError, TypeError, ValueError):
            return None

    def put(self, key: str, score: Score) -> None:
        """Write a score down."""
        numbers = {"joint": _number(score.joint), "forecast": _number(score.forecast)}
        self._found[key] = {**numbers, "converged": score.converged}
        text = json.dumps({"identity": self._identity, "scores": self._found}, indent=1)
        atomic_write(self._path, text.encode())


def choose_hidden(
    asked: Sequence[int],
    folds: Sequence[Fold],
    learn: Callable[[Segments, int, str], Fit],
    scores: Scores,
    *,
    threads: int,
    left_out: tuple[str, ...] = (),
) -> Choice:
    """Choose among the numbers asked for. `learn` fits a number of hidden spins; its last argument is a title."""
    numbers = sorted({0, *asked})
    pairs = [(k, hidden) for k in range(len(folds)) for hidden in numbers]
    missing = [pair for pair in pairs if f"hidden {pair[1]} fold {pair[0]}" not in scores]
    began = time.monotonic()
    for done, (k, hidden) in enumerate(missing):
        left = (time.monotonic() - began) * (len(missing) / done - 1) if done else 0.0
        whole = f", all in about {duration(left)}" if done else ""
        title = f"fit {done + 1} of {len(missing)}{whole}: Nh = {hidden}, fold {k + 1} of {len(folds)}"
        fitted = learn(folds[k].training, hidden, title)
        scores.put(f"hidden {hidden} fold {k}", score_fit(fitted, folds[k].held_out, threads))
    found = {
        hidden: tuple(score for k in range(len(folds)) if (score := scores.get(f"hidden {hidden} fold {k}")))
        for hidden in numbers
    }
    candidates = tuple(Candidate(hidden, each) for hidden, each in found.items())
    hidden, why = decide(candidates, asked)
    return Choice(hidden, why, candidates, tuple(map(independent_score, folds)), left_out)
