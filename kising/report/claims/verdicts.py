"""Measured numbers with intervals, and the verdicts on claims that follow from them."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from kising.report.summary import CONFIDENCE, fraction

Verdict = Literal["holds", "does not hold", "not enough data"]
UNKNOWN: Final[Verdict] = "not enough data"


class Measured(NamedTuple):
    """A number and the ends of its 95% interval; NaN where there is none."""

    value: float
    low: float
    high: float


NOTHING: Final = Measured(np.nan, np.nan, np.nan)


class Finding(NamedTuple):
    """A claim, where it was examined, what was measured, and the verdict by which rule."""

    figure: str
    claim: str
    where: str
    quantity: str
    measured: Measured
    verdict: Verdict
    rule: str


def inside(measured: Measured, low: float, high: float) -> Verdict:
    """Holds if the whole interval lies within low..high, fails if all of it lies outside; else not enough data."""
    if not np.isfinite([measured.low, measured.high]).all():
        return UNKNOWN
    if low <= measured.low and measured.high <= high:
        return "holds"
    return "does not hold" if measured.high < low or measured.low > high else UNKNOWN


def below_zero(measured: Measured) -> Verdict:
    """Holds if the whole interval is below zero, fails if it is above."""
    return inside(measured, -np.inf, 0.0) if np.isfinite(measured.low) else UNKNOWN


def above_zero(measured: Measured) -> Verdict:
    """Holds if the whole interval is above zero, fails if it is below."""
    return inside(measured, 0.0, np.inf) if np.isfinite(measured.low) else UNKNOWN


def mean(values: ArrayLike) -> Measured:
    """The mean, with its t interval."""
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    if known.size < 2:
        return Measured(float(known[0]), np.nan, np.nan) if known.size else NOTHING
    half = stats.t.ppf((1 + CONFIDENCE) / 2, known.size - 1) * stats.sem(known)
    return Measured(float(known.mean()), float(known.mean() - half), float(known.mean() + half))


def slope(x: ArrayLike, y: ArrayLike) -> Measured:
    """The slope of y on x by least squares, with its t interval."""
    pairs = np.column_stack([np.asarray(x, dtype=float), np.asarray(y, dtype=float)])
    known = pairs[np.isfinite(pairs).all(axis=1)]
    if np.unique(known[:, 0]).size < 2 or len(known) < 4:
        return NOTHING
    fit = stats.linregress(known[:, 0], known[:, 1])
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(known) - 2) * fit.stderr
    return Measured(float(fit.slope), float(fit.slope - half), float(fit.slope + half))


def difference(one: pd.Series, other: pd.Series) -> Measured:
    """The difference of two fractions, with Newcombe's interval."""
    (p, p_low, p_high), (q, q_low, q_high) = fraction(one), fraction(other)
    low = p - q - np.hypot(p - p_low, q_high - q)
    high = p - q + np.hypot(p_high - p, q - q_low)
    return Measured(p - q, float(low), float(high))


def log_ratio(one: pd.Series, other: pd.Series) -> pd.Series:
    """log(one/other), pair by pair; NaN where that is not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Any = np.log(one.astype(float)) - np.log(other.astype(float))
    finite: pd.Series = ratio.replace([np.inf, -np.inf], np.nan)
    return finite
