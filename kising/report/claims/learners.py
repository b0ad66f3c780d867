"""Claims that compare learners on the same networks and recordings: the paper's on TAP, and our own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from kising.report.claims.verdicts import BELOW_ZERO, Finding, Measured, Range, log_ratio, mean
from kising.report.figures.views import groups, joined
from kising.report.summary import bonds_of, varied

#: Errors that differ by no more than this fraction count as equal.
SAME: Final = 0.02


def estimator_claims(runs: pd.DataFrame) -> Iterator[Finding]:
    """Findings on pairs of estimators."""
    yield from _smaller(
        runs, "bp", "tap", figure="9", claim="Belief propagation gives smaller errors than TAP."
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
        yield from _smaller(
            runs, "gibbs", other, claim=f"Learning from samples gives smaller errors than {other}."
        )


def correlation_claims(runs: pd.DataFrame) -> Iterator[Finding]:
    """Findings on the rules for pair averages: the pair belief where an average is outside [-1, 1], or other rules."""
    for other, name in (("corrected", "the paper's correction"), ("pair", "the pair belief everywhere")):
        claim = f"The pair belief in place of impossible averages gives smaller errors than {name}."
        yield from _smaller(runs, "bounded", other, claim=claim, key="learner.correlations")


def _smaller(
    runs: pd.DataFrame,
    one: str,
    other: str,
    *,
    claim: str,
    figure: str = "kising",
    key: str = "learner.estimator",
) -> Iterator[Finding]:
    for where, block, measured, pairs in _pairs(runs, one, other, key):
        yield Finding.expecting(
            BELOW_ZERO,
            figure=figure,
            claim=claim,
            where=joined(where, block),
            quantity=f"mean log ratio of RMSE, {one} over {other}, on {pairs} pairs of runs of which neither diverged",
            measured=measured,
            rule="holds: the interval is below 0",
        )


def _pairs(
    runs: pd.DataFrame, one: str, other: str, key: str = "learner.estimator"
) -> Iterator[tuple[str, str, Measured, int]]:
    """For every kind of network and each block: the mean log ratio of errors, and the number of pairs of runs."""
    both = runs[runs[key].isin([one, other])] if len(runs) else runs
    if both.empty or both[key].nunique() < 2:
        return
    ours, others = (set(varied(both[both[key] == name])) for name in (one, other))
    learner = [name for name in varied(both) if name.startswith("learner.")]
    # What both vary, such as the start, is the same in a pair. What only one of them has, such as the rule for pair
    # averages, cannot be.
    index = [
        "realization",
        "model.strength",
        "data.length",
        *(name for name in learner if name in ours & others),
    ]
    for where, part in groups(both, *learner, "model.strength", "data.length"):
        mine, theirs = (part[part[key] == name].drop_duplicates(index) for name in (one, other))
        if mine.empty or theirs.empty:
            continue
        # Diverged runs go last: another run of the same learner must not take the place of one.
        pairs = mine.merge(theirs, on=index, suffixes=("", "_other"))
        pairs = pairs[(pairs["outcome"] != "diverged") & (pairs["outcome_other"] != "diverged")]
        for block in bonds_of(part):
            ratios = log_ratio(pairs[f"rmse_{block}"], pairs[f"rmse_{block}_other"])
            # One number per network: points along g and T share the seed of their realization.
            yield where, block, mean(ratios.groupby(pairs["realization"]).mean()), len(pairs)
