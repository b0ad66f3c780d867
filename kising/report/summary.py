"""The two main tables: how often learning converged, and how the error falls with data.

Diverged runs are treated separately, as in the paper: they count as not converged, and their RMSE, which only shows
where they were stopped, does not enter means and slopes. Each table counts the runs that it leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from kising.blocks import BLOCKS, BONDS, REQUIRED
from kising.options import LEAVES
from kising.sweep.store.column_types import Column
from kising.sweep.store.columns import COLUMNS, PARAMETERS, SCALING_COLUMNS, SUMMARY_COLUMNS

CONFIDENCE = 0.95
AXES = [column.name for column in PARAMETERS]
#: Parameters for which null is a value like others, such as the default limit on iterations. Elsewhere it says that a
#: parameter has no effect, follows from the others, or did not exist when the row was made.
NULL_IS_A_VALUE = frozenset(key for key, leaf in LEAVES.items() if leaf.kind.nullable)


def varied(rows: pd.DataFrame) -> list[str]:
    """The parameters that take several values."""
    return [
        name for name in AXES if name in rows and rows[name].nunique(dropna=name not in NULL_IS_A_VALUE) > 1
    ]


def summarise(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per point, in the order of the plan: its parameters, counts of runs, and a summary of every column that
    declares one (kising.sweep.store.columns).
    """
    rows = []
    for point_id, group in runs.groupby("point_id", sort=False):
        done = group[group["status"] == "done"]
        undiverged = done[done["outcome"] != "diverged"]
        row: dict[str, object] = {"point_id": point_id}
        row |= {name: group[name].iloc[0] for name in AXES}
        row |= {"runs": len(group), "failed": len(group) - len(done), "diverged": len(done) - len(undiverged)}
        row["stalled"] = int((done["outcome"] == "stalled").sum())
        for column in COLUMNS:
            if column.summary is not None:
                counted = done if column.summary.diverged else undiverged
                names = (summary.name for summary in column.summary_columns())
                row |= zip(names, _STATISTICS[column.summary.statistic](counted[column.name]), strict=True)
        if row["model.strength"] == 0:
            # All couplings are zero: that estimate is the truth, and there is no bond to compare it with.
            row["baseline_rmse"] = None
        rows.append(row)
    return frame_of(rows, SUMMARY_COLUMNS)


def core_hours(runs: pd.DataFrame) -> float:
    """What the runs cost together. Rows from before CPU time was measured count with their duration."""
    return float(runs["cpu_seconds"].fillna(runs["seconds"]).astype(float).sum()) / 3600


def scaling(runs: pd.DataFrame) -> pd.DataFrame:
    """The slope of log RMSE on log T: one row per block, for each group of points that differ in data.length only.

    The slope is fitted for every realization over its own lengths, which share one network; `slope` is the
    mean of these and slope_low..slope_high its 95% t interval over realizations. With one realization the
    interval is the fit's own. `left_out` counts runs that failed or diverged.
    """
    fixed = [name for name in AXES if name != "data.length"]
    rows = []
    learned = runs[(runs["task"] == "learn") & (runs["model.strength"] > 0)]
    distinguishing = [name for name in varied(learned) if name != "data.length"]
    groups = learned.groupby(distinguishing, sort=False, dropna=False) if distinguishing else [((), learned)]
    for _, group in groups:
        if group["data.length"].nunique() < 2:
            continue
        undiverged = group[(group["status"] == "done") & (group["outcome"] != "diverged")]
        for block in BLOCKS:
            if block not in REQUIRED and not _is_learned(group, block):
                continue
            errors = undiverged[f"rmse_{block}"].astype(float)
            usable = undiverged[np.isfinite(errors) & (errors > 0)]
            slope, low, high, count = _slope(usable, f"rmse_{block}")
            lengths = usable["data.length"]
            rows.append(
                {name: _known(group[name]) for name in fixed}
                | {"block": block, "slope": slope, "slope_low": low, "slope_high": high}
                | {"points": lengths.nunique(), "realizations": count}
                | {"shortest": lengths.min(), "longest": lengths.max(), "left_out": len(group) - len(usable)}
            )
    return frame_of(rows, SCALING_COLUMNS)


def bonds_of(runs: pd.DataFrame) -> list[str]:
    """The blocks that couple spins, but for those that no run has learned and that a network may be without."""
    return [name for name in BONDS if name in REQUIRED or _is_learned(runs, name)]


def listed(names: Sequence[str]) -> str:
    """Names as a list in a sentence."""
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _is_learned(runs: pd.DataFrame, block: str) -> bool:
    return bool(runs[[f"converged_{block}", f"rmse_{block}"]].notna().any(axis=None))


def frame_of(rows: Sequence[Mapping[str, Any]], columns: Iterable[Column]) -> pd.DataFrame:
    """A data frame whose types are those of the columns, whatever the values, and also where there are no rows."""
    series = {}
    for column in columns:
        values = [row[column.name] for row in rows]
        dtype: Any = column.dtype
        series[column.name] = pd.Series([None if pd.isna(value) else value for value in values], dtype=dtype)
    return pd.DataFrame(series)


def _slope(runs: pd.DataFrame, column: str) -> tuple[float, float, float, int]:
    """The slope, the ends of its interval, and the number of realizations behind it; NaN where there is none."""
    fits = []
    for _, one in runs.groupby("realization"):
        if one["data.length"].nunique() >= 2:
            x, y = np.log(one["data.length"].astype(float)), np.log(one[column].astype(float))
            fits.append(stats.linregress(x, y))
    if not fits:
        return np.nan, np.nan, np.nan, 0
    slopes = np.array([fit.slope for fit in fits])
    half = np.nan
    if len(fits) > 1:
        half = stats.t.ppf((1 + CONFIDENCE) / 2, len(fits) - 1) * stats.sem(slopes)
    elif runs["data.length"].nunique() > 2:
        half = stats.t.ppf((1 + CONFIDENCE) / 2, runs["data.length"].nunique() - 2) * fits[0].stderr
    mean = float(slopes.mean())
    return mean, mean - half, mean + half, len(fits)


def _known(values: pd.Series) -> object:
    """The one value that a column of a group has, besides null."""
    known = values.dropna()
    return known.iloc[0] if len(known) else values.iloc[0]


def fraction(flags: pd.Series) -> tuple[float, float, float]:
    """The fraction of flags that are true, and the ends of its Wilson interval; NaN where there are none."""
    known = flags.dropna()
    if known.empty:
        return np.nan, np.nan, np.nan
    successes = int(known.sum())
    interval = stats.binomtest(successes, len(known)).proportion_ci(CONFIDENCE, method="wilson")
    return successes / len(known), interval.low, interval.high


def _spread(values: pd.Series) -> tuple[float, float, float]:
    """Mean, standard deviation and standard error of the mean; NaN where there are none."""
    known = values.dropna().astype(float)
    sd = known.std(ddof=1) if len(known) > 1 else np.nan
    return *_mean(known), sd, sd / np.sqrt(max(len(known), 1))


def _mean(values: pd.Series) -> tuple[float]:
    known = values.dropna().astype(float)
    return (float(known.mean()) if len(known) else np.nan,)


_STATISTICS = {"mean": _mean, "spread": _spread, "fraction": fraction}
"""How each statistic of a declaration is computed, its numbers in the order of STATISTICS."""
