"""Claims on networks of which most bonds are zero: telling the learner so, during learning or afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pandas as pd

from kising.report.claims.verdicts import Finding, Verdict, below_zero, log_ratio, mean
from kising.report.figures.views import groups, join, said
from kising.report.summary import BLOCKS

_DRIVEN: Final = ("learner.l1", "learner.decimate")
_RECORDING: Final = ["realization", "data.length"]


def sparsity(runs: pd.DataFrame) -> Iterator[Finding]:
    """Findings on runs of learning; where no bond is zero there are none."""
    sparse = runs[runs["model.connectivity"] < 1] if len(runs) else runs
    if len(sparse):
        yield from _pruning(sparse)
        yield from _proposals(sparse)


def _pruning(runs: pd.DataFrame) -> Iterator[Finding]:
    asked = runs["score.pruned"].fillna(False).astype(bool) & (runs["model.bonds"] == "binary")
    scored = runs[asked & _plain(runs)]
    for where, part in groups(scored, "data.length") if len(scored) else ():
        kept = part[part["outcome"] != "diverged"].set_index(_RECORDING)
        for block in BLOCKS if len(kept) else ():
            ratios = log_ratio(kept[f"rmse_pruned_{block}"], kept[f"rmse_{block}"])
            measured = mean(ratios.groupby(level="realization").mean())
            verdict: dict[Verdict, Verdict] = {"holds": "does not hold", "does not hold": "holds"}
            against = below_zero(measured)
            yield Finding(
                "8",
                "Pruning learned couplings by the known sparsity afterwards does not lower the error.",
                join(where, block),
                f"mean log ratio of RMSE, pruned over unpruned; {_by_length(ratios)}",
                measured,
                verdict.get(against, against),
                "holds: the interval is above 0; not: it is below 0",
            )


def _proposals(runs: pd.DataFrame) -> Iterator[Finding]:
    """What drives couplings to zero, against what does not, on the same networks and recordings."""
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
            for where, part in groups(both, *_DRIVEN, "data.length"):
                kept = part[part["outcome"] != "diverged"]
                mine, others = (
                    kept[plain[kept.index] == without].set_index(_RECORDING) for without in (False, True)
                )
                common = mine.index.intersection(others.index)
                for block in BLOCKS if len(common) else ():
                    name = f"rmse_{block}"
                    ratios = log_ratio(mine.loc[common][name], others.loc[common][name])
                    # One number a network: its recordings are the beginnings of one.
                    measured = mean(ratios.groupby(level="realization").mean())
                    yield Finding(
                        "proposed",
                        claim,
                        join(where, said([key], (value,)), block),
                        "mean log ratio of RMSE, with over without, on "
                        f"{len(common)} pairs of runs of which neither diverged; {_by_length(ratios)}",
                        measured,
                        below_zero(measured),
                        "holds: the interval is below 0",
                    )


def _plain(runs: pd.DataFrame) -> pd.Series:
    """Which runs were learned without anything that drives couplings to zero."""
    l1, decimate = runs["learner.l1"].fillna(0.0), runs["learner.decimate"].fillna("none")
    without: pd.Series = (l1 == 0) & (decimate == "none")
    return without


def _by_length(ratios: pd.Series) -> str:
    means = ratios.groupby(level="data.length").mean()
    return "by length: " + ", ".join(f"{ratio:.2f} at T = {length}" for length, ratio in means.items())
