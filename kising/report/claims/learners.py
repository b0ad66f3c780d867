"""Claims that compare learners on the same networks and recordings: the paper's on TAP, and our own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from kising.report.claims.verdicts import BELOW_ZERO, Finding, Measured, Range, log_ratio, mean
from kising.report.figures.views import groups, joined, varied
from kising.report.summary import bonds_of

#: Errors that differ by no more than this fraction count as equal.
SAME: Final = 0.02


def estimator_claims(runs: pd.DataFrame) -> Iterator[Finding]:
    """Findings on pairs of estimators."""
    for where, block, measured, pairs in _pairs(runs, "bp", "tap"):
        yield Finding.expecting(
            BELOW_ZERO,
            figure="9",
            claim="Belief propagation gives smaller errors than TAP.",
            where=joined(where, block),
            quantity=_ratio_of("BP", "TAP", pairs),
            measured=measured,
            rule="holds: the interval is below 0",
        )
    # At the longest recordings, where the likelihood has a single maximum.
    longest = runs[runs["data.length"] == runs["data.length"].max()] if len(runs) else runs
    for where, block, measured, pairs in _pairs(longest, "gibbs", "exact"):
        yield Finding.expecting(
            Range(float(np.log(1 - SAME)), float(np.log(1 + SAME))),
            figure="kising",
            claim="Learning from samples has the same error as learning with exact averages.",
            where=joined(where, block),
            quantity=(
                "mean log ratio of RMSE, gibbs over exact, at the longest recordings, on "
                f"{pairs} pairs of runs of which neither diverged"
            ),
            measured=measured,
            rule=f"holds: the interval lies within ±{SAME:.0%}",
        )
    for other in ("bp", "tap"):
        for where, block, measured, pairs in _pairs(runs, "gibbs", other):
            yield Finding.expecting(
                BELOW_ZERO,
                figure="kising",
                claim=f"Learning from samples gives smaller errors than {other}.",
                where=joined(where, block),
                quantity=_ratio_of("gibbs", other, pairs),
                measured=measured,
                rule="holds: the interval is below 0",
            )


def correlation_claims(runs: pd.DataFrame) -> Iterator[Finding]:
    """Findings on the rules for pair averages: the pair belief where an average is outside [-1, 1], or other rules."""
    for other, name in (("corrected", "the paper's correction"), ("pair", "the pair belief everywhere")):
        for where, block, measured, pairs in _pairs(runs, "bounded", other, key="learner.correlations"):
            yield Finding.expecting(
                BELOW_ZERO,
                figure="kising",
                claim=f"The pair belief in place of impossible averages gives smaller errors than {name}.",
                where=joined(where, block),
                quantity=_ratio_of("bounded", other, pairs),
                measured=measured,
                rule="holds: the interval is below 0",
            )


def _ratio_of(one: str, other: str, pairs: int) -> str:
    return f"mean log ratio of RMSE, {one} over {other}, on {pairs} pairs of runs of which neither diverged"


def _pairs(
    runs: pd.DataFrame, one: str, other: str, key: str = "learner.estimator"
) -> Iterator[tuple[str, str, Measured, int]]:
    """For every kind of network and each block: the mean log ratio of errors, and the number of pairs of runs."""
    both = runs[runs[key].isin([one, other])] if len(runs) else runs
    if both.empty or both[key].nunique() < 2:
        return
    learner = [key for key in varied(both) if key.startswith("learner.")]
    index = ["realization", "model.strength", "data.length"]
    for where, part in groups(both, *learner, "model.strength", "data.length"):
        undiverged = part[part["outcome"] != "diverged"]
        mine, theirs = (
            undiverged[undiverged[key] == name].drop_duplicates(index).set_index(index)
            for name in (one, other)
        )
        common = mine.index.intersection(theirs.index)
        if part[key].nunique() < 2:
            continue
        for block in bonds_of(part):
            ratios = log_ratio(mine.loc[common][f"rmse_{block}"], theirs.loc[common][f"rmse_{block}"])
            # One number per network: points along g and T share the seed of their realization.
            yield where, block, mean(ratios.groupby(level="realization").mean()), len(common)
