"""Claims on the cost of leaving out blocks that the network has, and of learning blocks that it does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from kising.report.claims.verdicts import BELOW_ZERO, Finding, Measured, Range, log_ratio, mean
from kising.report.figures.views import groups

#: A block that the data lack costs little where it raises the error of J by no more than this fraction.
LITTLE: Final = 0.05
#: What is learned, how strong it is in the network, and what it is called.
_BLOCKS: Final = (
    ("learner.hidden_couplings", "model.hidden_coupling", "couplings among hidden spins"),
    ("learner.bias", "model.bias", "biases"),
)


def block_claims(runs: pd.DataFrame) -> Iterator[Finding]:
    """Findings on learners that differ in what they learn, on the same networks and recordings."""
    for key, strength, name in _BLOCKS:
        if runs.empty or runs[key].nunique() < 2:
            continue
        quantity = f"mean log ratio of the RMSE of J, learned with {name} over without"
        for where, part in groups(runs, key):
            measured = _ratio(part, key)
            if (part[strength].fillna(0.0) > 0).all():
                yield Finding.expecting(
                    BELOW_ZERO,
                    figure="kising",
                    claim=f"Where a network has {name}, learning them lowers the error of J.",
                    where=where,
                    quantity=quantity,
                    measured=measured,
                    rule="holds: the interval is below 0",
                )
            elif (part[strength].fillna(0.0) == 0).all():
                yield Finding.expecting(
                    Range(-np.inf, float(np.log(1 + LITTLE))),
                    figure="kising",
                    claim=f"Where a network has no {name}, learning them costs little.",
                    where=where,
                    quantity=quantity,
                    measured=measured,
                    rule=f"holds: the interval lies below +{LITTLE:.0%}",
                )


def _ratio(runs: pd.DataFrame, key: str) -> Measured:
    index = ["realization", "data.length"]
    undiverged = runs[runs["outcome"] != "diverged"]
    learned = undiverged[key].astype(bool)
    mine, others = (
        undiverged[learned == flag].drop_duplicates(index).set_index(index) for flag in (True, False)
    )
    common = mine.index.intersection(others.index)
    ratios = log_ratio(mine.loc[common]["rmse_J"], others.loc[common]["rmse_J"])
    # One number per network: its recordings are prefixes of one recording.
    return mean(ratios.groupby(level="realization").mean())
