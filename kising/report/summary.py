"""The two tables that answer the questions: how often learning converged, and how the error falls with data.

Diverged runs are set apart, as the paper does: they count against convergence, and their RMSE, which says
only where they were stopped, does not enter means and slopes. Each table says how many runs it left out.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from kising.sweep.store.columns import PARAMETERS

BLOCKS = ("J", "K", "L")
CONFIDENCE = 0.95
AXES = [column.name for column in PARAMETERS]
ERRORS = tuple(f"{what}_{x}" for what in ("error", "covered") for x in BLOCKS)
MEASURES = ("bp_converged", "corrected", "log_likelihood", "hidden_overlap", "rmse_m", "rmse_mu", "rmse_pair")


def summarise(runs: pd.DataFrame) -> pd.DataFrame:
    """A row a point, in the order of the plan.

    runs, failed, diverged: counts. converged_X: fraction of the done runs whose block X had settled,
    converged_X_low and _high its Wilson interval at 95%. rmse_X_mean, _sd, _sem: over done runs that did not
    diverge; rmse_pruned_X likewise, after pruning, and error_X and covered_X, where these were asked for. The
    other columns are means over done runs.
    """
    rows = []
    for point_id, group in runs.groupby("point_id", sort=False):
        done = group[group["status"] == "done"]
        kept = done[done["outcome"] != "diverged"]
        row: dict[str, object] = {"point_id": point_id}
        row |= {name: group[name].iloc[0] for name in AXES}
        row |= {"runs": len(group), "failed": len(group) - len(done), "diverged": len(done) - len(kept)}
        for block in BLOCKS:
            row |= _fraction(f"converged_{block}", done[f"converged_{block}"])
        row["baseline_rmse"] = _mean(done["baseline_rmse"])
        for block in BLOCKS:
            row |= _spread(f"rmse_{block}", kept[f"rmse_{block}"])
        for block in BLOCKS:
            row |= _spread(f"rmse_pruned_{block}", kept[f"rmse_pruned_{block}"])
        row |= {name: _mean(kept[name]) for name in ERRORS}
        row["iterations"] = _mean(done["iterations"])
        row |= {name: _mean(done[name]) for name in MEASURES}
        row["seconds"] = _mean(done["seconds"])
        rows.append(row)
    return pd.DataFrame(rows)


def scaling(runs: pd.DataFrame) -> pd.DataFrame:
    """The slope of log RMSE on log T: a row for each group of points that differ in data.length only, and
    each of J, K, L.

    The slope is fitted for every realization over its own lengths, which share one network; `slope` is the
    mean of these and slope_low..slope_high its 95% t interval over realizations. With one realization the
    interval is the fit's own. `left_out` counts runs that failed or diverged.
    """
    columns = [*(name for name in AXES if name != "data.length"), "block", "slope", "slope_low", "slope_high",
               "points", "realizations", "shortest", "longest", "left_out"]  # fmt: skip
    fixed = [name for name in AXES if name != "data.length"]
    rows = []
    learned = runs[(runs["task"] == "learn") & (runs["model.strength"] > 0)]
    # Null is no value of its own: rows from before a key was there are of the same sweep as those since.
    telling = [name for name in fixed if learned[name].nunique() > 1]
    for _, group in learned.groupby(telling, sort=False, dropna=False) if telling else [((), learned)]:
        if group["data.length"].nunique() < 2:
            continue
        kept = group[(group["status"] == "done") & (group["outcome"] != "diverged")]
        for block in BLOCKS:
            usable = kept[np.isfinite(kept[f"rmse_{block}"].astype(float)) & (kept[f"rmse_{block}"] > 0)]
            slope, low, high, count = _slope(usable, f"rmse_{block}")
            lengths = usable["data.length"]
            rows.append(
                {name: _known(group[name]) for name in fixed}
                | {"block": block, "slope": slope, "slope_low": low, "slope_high": high}
                | {"points": lengths.nunique(), "realizations": count}
                | {"shortest": lengths.min(), "longest": lengths.max(), "left_out": len(group) - len(usable)}
            )
    return pd.DataFrame(rows, columns=columns)


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


def fraction(flags: pd.Series) -> tuple[float, float, float]:
    """The fraction of flags that are true, and the ends of its Wilson interval; NaN where there are none."""
    known = flags.dropna()
    if known.empty:
        return np.nan, np.nan, np.nan
    successes = int(known.sum())
    interval = stats.binomtest(successes, len(known)).proportion_ci(CONFIDENCE, method="wilson")
    return successes / len(known), interval.low, interval.high


def _fraction(name: str, flags: pd.Series) -> dict[str, float]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), fraction(flags), strict=True))


def _known(values: pd.Series) -> object:
    """The one value that a column of a group has, besides null."""
    known = values.dropna()
    return known.iloc[0] if len(known) else values.iloc[0]


def _spread(name: str, values: pd.Series) -> dict[str, float]:
    known = values.dropna().astype(float)
    sd = known.std(ddof=1) if len(known) > 1 else np.nan
    return {f"{name}_mean": _mean(known), f"{name}_sd": sd, f"{name}_sem": sd / np.sqrt(max(len(known), 1))}


def _mean(values: pd.Series) -> float:
    known = values.dropna().astype(float)
    return float(known.mean()) if len(known) else np.nan
