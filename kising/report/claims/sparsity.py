"""Claims on sparse networks: whether it helps to use the sparsity, during learning or afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pandas as pd

from kising.report.claims.verdicts import ABOVE_ZERO, BELOW_ZERO, Finding, log_ratio, mean
from kising.report.figures.views import describe, groups, joined
from kising.report.summary import bonds_of

_SPARSE_KEYS: Final = ("learner.l1", "learner.decimate")
_RECORDING: Final = ["realization", "data.length"]


def sparsity_claims(runs: pd.DataFrame) -> Iterator[Finding]:
    """Findings on runs of learning; none for dense networks."""
    sparse = runs[runs["model.connectivity"] < 1] if len(runs) else runs
    if len(sparse):
        yield from _pruning(sparse)
        yield from _sparse_learning(sparse)


def _pruning(runs: pd.DataFrame) -> Iterator[Finding]:
    asked = runs["score.pruned"].fillna(False).astype(bool) & (runs["model.bonds"] == "binary")
    scored = runs[asked & _plain(runs)]
    for where, part in groups(scored, "data.length") if len(scored) else ():
        undiverged = part[part["outcome"] != "diverged"].set_index(_RECORDING)
        for block in bonds_of(undiverged) if len(undiverged) else ():
            ratios = log_ratio(undiverged[f"rmse_pruned_{block}"], undiverged[f"rmse_{block}"])
            measured = mean(ratios.groupby(level="realization").mean())
            yield Finding.expecting(
                ABOVE_ZERO,
                figure="8",
                claim="Pruning learned couplings by the known sparsity afterwards does not lower the error.",
                where=joined(where, block),
                quantity=f"mean log ratio of RMSE, pruned over unpruned; {_by_length(ratios)}",
                measured=measured,
                rule="holds: the interval is above 0; not: it is below 0",
            )


def _sparse_learning(runs: pd.DataFrame) -> Iterator[Finding]:
    """Learning that drives couplings to zero against learning that does not, on the same networks and recordings."""
    plain = _plain(runs)
    penalised, decimated = (
        runs["learner.l1"].fillna(0.0) > 0,
        runs["learner.decimate"].fillna("none") != "none",
    )
    claims = {
        "learner.l1": ("An L1 penalty lowers the error on sparse networks.", penalised),
        "learner.decimate": (
            "Forcing the known sparsity at every step of learning lowers the error.",
            decimated,
        ),
    }
    for key, (claim, driven) in claims.items():
        for value in runs.loc[driven, key].unique() if plain.any() else ():
            both = runs[plain | (driven & (runs[key] == value))]
            for where, part in groups(both, *_SPARSE_KEYS, "data.length"):
                undiverged = part[part["outcome"] != "diverged"]
                mine, others = (
                    undiverged[plain[undiverged.index] == without].set_index(_RECORDING)
                    for without in (False, True)
                )
                common = mine.index.intersection(others.index)
                for block in bonds_of(part) if len(common) else ():
                    name = f"rmse_{block}"
                    ratios = log_ratio(mine.loc[common][name], others.loc[common][name])
                    # One number per network: its recordings are prefixes of one recording.
                    measured = mean(ratios.groupby(level="realization").mean())
                    yield Finding.expecting(
                        BELOW_ZERO,
                        figure="proposed",
                        claim=claim,
                        where=joined(where, describe([key], (value,)), block),
                        quantity=(
                            "mean log ratio of RMSE, with over without, on "
                            f"{len(common)} pairs of runs of which neither diverged; {_by_length(ratios)}"
                        ),
                        measured=measured,
                        rule="holds: the interval is below 0",
                    )


def _plain(runs: pd.DataFrame) -> pd.Series:
    """Mask of the runs learned without driving couplings to zero."""
    l1, decimate = runs["learner.l1"].fillna(0.0), runs["learner.decimate"].fillna("none")
    without: pd.Series = (l1 == 0) & (decimate == "none")
    return without


def _by_length(ratios: pd.Series) -> str:
    means = ratios.groupby(level="data.length").mean()
    return "by length: " + ", ".join(f"{ratio:.2f} at T = {length}" for length, ratio in means.items())
