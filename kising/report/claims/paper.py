"""The claims of Battistin, Hertz, Tyrcha and Roudi (2015), paraphrased, tested on a sweep.

A claim is tested on every sweep that varies the parameters it is about, whatever its name; on other sweeps it yields no
finding. Each finding states the rule by which it is judged.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd
from scipy import integrate, stats

from kising.report.claims.learners import correlation_claims, estimator_claims
from kising.report.claims.model_blocks import block_claims
from kising.report.claims.sparsity import sparsity_claims
from kising.report.claims.verdicts import (
    ABOVE_ZERO,
    BELOW_ZERO,
    NOTHING,
    UNKNOWN,
    Finding,
    Measured,
    Range,
    Verdict,
    difference,
    inside,
    log_ratio,
    mean,
    slope,
)
from kising.report.figures.curves import sound_averages
from kising.report.figures.views import FRACTION, SIZE, SIZES, describe, groups, joined, with_network
from kising.report.summary import CONFIDENCE, bonds_of, fraction, listed, scaling, varied

CORRECTED: Final = {"closed": "corrected", "iterated": "iterated-corrected"}
SLOPE_MARGIN: Final = 0.1
#: Decades of T, a factor of 1.8: recordings that need to be longer by less than this count as no longer, unless they
#: certainly need to be longer at all.
SHIFT_MARGIN: Final = 0.25
AGREEMENT: Final = 0.9


def claims(runs: pd.DataFrame, couplings: pd.DataFrame) -> list[Finding]:
    """All findings on a sweep."""
    done = with_network(runs[runs["status"] == "done"])
    learned, inferred = done[done["task"] == "learn"], done[done["task"] == "infer"]
    return [
        *_guessing(inferred),
        *_settling(inferred),
        *_averages(inferred),
        *_agreement(learned, couplings),
        *_scaling(learned),
        *_weaker_needs_more(learned),
        *_never_all(learned),
        *_correction_prevents_divergence(learned),
        *_correction_helps(learned),
        *_size(learned),
        *sparsity_claims(learned),
        *estimator_claims(learned),
        *correlation_claims(learned),
        *block_claims(learned),
    ]


def _guessing(runs: pd.DataFrame) -> Iterator[Finding]:
    if runs.empty or runs[FRACTION].nunique() < 2:
        return
    for where, part in groups(runs, *SIZES):
        if part[SIZE].nunique() > 1:
            continue
        measured = slope(part[FRACTION], part["hidden_overlap"])
        means = [group["hidden_overlap"].astype(float) for _, group in part.groupby(FRACTION)]
        drops = sum(
            bool(stats.ttest_ind(before, after, equal_var=False, alternative="greater").pvalue < 0.01)
            for before, after in itertools.pairwise(means)
            if len(before) > 1 and len(after) > 1
        )
        verdict: Verdict = "does not hold" if drops else inside(measured, ABOVE_ZERO)
        yield Finding(
            "2A",
            "The more spins are visible, the better the states of the hidden ones are inferred.",
            where,
            f"rise of the overlap per unit of visible fraction; {drops} significant drops between neighbours",
            measured,
            verdict,
            "holds: the interval is above 0 and no step to a larger fraction lowers the overlap (1% level)",
        )


def _settling(runs: pd.DataFrame) -> Iterator[Finding]:
    few = runs[runs[FRACTION] < 0.5] if len(runs) else runs
    if few.empty or few["model.connectivity"].nunique() < 2 or runs[FRACTION].nunique() < 2:
        return
    sparse, dense = few["model.connectivity"].min(), few["model.connectivity"].max()
    for where, part in groups(few, *SIZES, "model.connectivity"):
        settled = part["outcome"] == "converged"
        measured = difference(
            settled[part["model.connectivity"] == dense], settled[part["model.connectivity"] == sparse]
        )
        yield Finding.expecting(
            ABOVE_ZERO,
            figure="2B",
            claim=(
                "Where most spins are hidden, belief propagation converges more often on dense than on sparse "
                "networks."
            ),
            where=where,
            quantity=f"fraction converged at c = {dense:g} minus that at c = {sparse:g}, Nv < Nh",
            measured=measured,
            rule="holds: the interval is above 0",
        )


def _averages(runs: pd.DataFrame) -> Iterator[Finding]:
    if runs.empty or runs[FRACTION].nunique() < 2 or runs["rmse_pair"].isna().all():
        return
    for where, part in groups(runs, *SIZES):
        sound = part[sound_averages(part)]
        # Not its logarithm: where belief propagation is exact, the error is rounding, and would decide alone.
        measured = slope(sound[FRACTION], sound["rmse_pair"])
        yield Finding.expecting(
            BELOW_ZERO,
            figure="2C",
            claim=(
                "With runs that diverged set apart, the pair averages of belief propagation come closer to exact ones "
                "as more spins are visible."
            ),
            where=where,
            quantity=(
                "slope of the RMSE of ⟨τσ⟩ on the visible fraction; "
                f"{len(part) - len(sound)} of {len(part)} runs left out"
            ),
            measured=measured,
            rule="holds: the interval is below 0",
        )


def _agreement(runs: pd.DataFrame, couplings: pd.DataFrame) -> Iterator[Finding]:
    if couplings.empty:
        return
    longest = runs[runs["data.length"] == runs["data.length"].max()]
    for where, part in groups(longest):
        own = couplings[couplings["run_id"].isin(part["run_id"])]
        for block in bonds_of(part):
            one = own[own["block"] == block]
            if len(one) < 4 or one["true"].nunique() < 2 or not np.isfinite(one["learned"]).all():
                continue
            found = stats.pearsonr(one["true"], one["learned"])
            interval = found.confidence_interval(CONFIDENCE)
            measured = Measured(float(found.statistic), float(interval.low), float(interval.high))
            yield Finding.expecting(
                Range(AGREEMENT, 1.0),
                figure="3A",
                claim="Learned couplings agree with the true ones.",
                where=joined(where, block),
                quantity="correlation of learned and true couplings",
                measured=measured,
                rule=f"holds: the interval is above {AGREEMENT}",
            )


def _scaling(runs: pd.DataFrame) -> Iterator[Finding]:
    keys = [key for key in varied(runs) if key != "data.length"] if len(runs) else []
    for row in scaling(runs).to_dict("records") if len(runs) else []:
        measured = Measured(row["slope"], row["slope_low"], row["slope_high"])
        where = describe(keys, tuple(row[key] for key in keys))
        yield Finding.expecting(
            Range(-0.5 - SLOPE_MARGIN, -0.5 + SLOPE_MARGIN),
            figure="3B, 6, 8",
            claim="The error falls as one over the square root of the length of the recording.",
            where=joined(where, str(row["block"])),
            quantity=f"slope of log RMSE on log T; {row['left_out']} runs left out",
            measured=measured,
            rule=f"holds: the interval lies within -0.5 ± {SLOPE_MARGIN}; not: it lies outside",
        )


def _weaker_needs_more(runs: pd.DataFrame) -> Iterator[Finding]:
    if runs.empty or runs["data.length"].nunique() < 2:
        return
    for where, part in groups(runs, "model.strength", "data.length"):
        weak, strong = part["model.strength"].min(), part["model.strength"].max()
        if weak == strong:
            continue
        for block in bonds_of(part):
            measured = _shift(part, f"converged_{block}", weak, strong)
            verdict: Verdict = UNKNOWN
            if measured.low > 0:
                verdict = "holds"
            elif measured.high < SHIFT_MARGIN:
                verdict = "does not hold"
            yield Finding(
                "4",
                "The weaker the couplings, the longer the recording that learning needs to converge.",
                joined(where, block),
                f"decades of T between the curves of converged runs at g = {strong:g} and at g = {weak:g}, from "
                f"T = {part['data.length'].min():g} to {part['data.length'].max():g}",
                measured,
                verdict,
                f"holds: the interval is above 0; not: it is below {SHIFT_MARGIN}",
            )


def _shift(runs: pd.DataFrame, column: str, weak: float, strong: float) -> Measured:
    """How much further right the curve of converged runs against log10 T lies for weak than for strong couplings: the
    area between the curves, in decades, one number per realization; nothing where no run has converged.

    The curve of one realization is 0 or 1 at every length. Below it, by the trapezoidal rule, lie the decades over
    which learning converges, so the area counts every length and is finite where half of the runs never converge.
    """
    if not runs[column].any():
        return NOTHING
    flags = runs.pivot_table(
        index="realization", columns=["model.strength", "data.length"], values=column, aggfunc="mean"
    )
    areas = [
        integrate.trapezoid(flags[g].astype(float), np.log10(flags[g].columns.astype(float)), axis=1)
        for g in (strong, weak)
    ]
    return mean(areas[0] - areas[1])


def _never_all(runs: pd.DataFrame) -> Iterator[Finding]:
    if runs.empty or runs["data.length"].nunique() < 2:
        return
    dense = runs[(runs["model.connectivity"] == 1) & (runs["model.strength"] >= 1)]
    named = [
        key for key in ("model.connectivity", "model.strength") if len(dense) and dense[key].nunique() == 1
    ]
    for where, part in groups(dense, "data.length") if len(dense) else ():
        blocks = bonds_of(part)
        flags = part[[f"converged_{x}" for x in blocks]].all(axis="columns")
        best = max(
            (fraction(flags[part["data.length"] == length]) for length in part["data.length"].unique()),
            key=lambda found: (found[0], found[1]),
        )
        verdict: Verdict = "holds" if best[0] < 1 else "does not hold" if best[1] > 0.8 else UNKNOWN
        yield Finding(
            "4",
            "With strong couplings on a dense network, never do all runs converge, however long the recording.",
            joined(describe(named, tuple(part[key].iloc[0] for key in named)), where),
            f"largest fraction of runs with {listed(blocks)} converged, over T",
            Measured(*best),
            verdict,
            "holds: some run fails to converge at every T; not: at some T all do, and the lower end is above 0.8",
        )


def _pairs(runs: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Runs without and with the correction, on the same networks, aligned row by row."""
    for plain, corrected in CORRECTED.items():
        both = runs[runs["learner.correlations"].isin([plain, corrected])] if len(runs) else runs
        if both.empty or both["learner.correlations"].nunique() < 2:
            continue
        for where, part in groups(both, "learner.correlations"):
            one, other = (
                part[part["learner.correlations"] == name].set_index("realization")
                for name in (plain, corrected)
            )
            common = one.index.intersection(other.index)
            if len(common):
                yield joined(where, f"{plain} against {corrected}"), one.loc[common], other.loc[common]


def _correction_prevents_divergence(runs: pd.DataFrame) -> Iterator[Finding]:
    for where, plain, corrected in _pairs(runs):
        before, after = plain["outcome"] == "diverged", corrected["outcome"] == "diverged"
        measured = difference(before, after)
        yield Finding(
            "5",
            "Learning that diverges without the correction of pair averages does not diverge with it.",
            where,
            f"fraction of runs that diverge: {before.mean():.2f} without minus {after.mean():.2f} with the correction",
            measured,
            inside(measured, ABOVE_ZERO) if before.any() or after.any() else UNKNOWN,
            "holds: the interval is above 0; no diverging run at all is not enough data",
        )


def _correction_helps(runs: pd.DataFrame) -> Iterator[Finding]:
    for where, plain, corrected in _pairs(runs):
        for block in bonds_of(runs):
            measured = mean(log_ratio(corrected[f"rmse_{block}"], plain[f"rmse_{block}"]))
            yield Finding.expecting(
                BELOW_ZERO,
                figure="6",
                claim="The correction lowers the error of the learned couplings.",
                where=joined(where, block),
                quantity=(
                    "mean log ratio of RMSE, corrected over uncorrected, on the same networks, diverged runs "
                    "included"
                ),
                measured=measured,
                rule="holds: the interval is below 0",
            )


def _size(runs: pd.DataFrame) -> Iterator[Finding]:
    if runs.empty or runs[SIZE].nunique() < 2:
        return
    for where, part in groups(runs, *SIZES):
        undiverged = part[part["outcome"] != "diverged"]
        ratios = undiverged["model.visible"].astype(float) / undiverged["model.hidden"].astype(float)
        if undiverged[SIZE].nunique() < 2 or ratios.max() > 1.1 * ratios.min():
            continue
        for block in bonds_of(undiverged):
            measured = slope(np.log(undiverged[SIZE]), np.log(undiverged[f"rmse_{block}"].astype(float)))
            yield Finding.expecting(
                BELOW_ZERO,
                figure="7",
                claim=(
                    "At one length and one ratio of visible to hidden spins, the error falls with the size of the "
                    "network."
                ),
                where=joined(where, block),
                quantity="slope of log RMSE on log N",
                measured=measured,
                rule="holds: the interval is below 0",
            )
