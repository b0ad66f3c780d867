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
#: Numbers of realizations beyond this many times those at hand are not told apart.
MANY: Final = 50.0


class Measured(NamedTuple):
    """A number and the ends of its 95% interval; NaN where there is none."""

    value: float
    low: float
    high: float


NOTHING: Final = Measured(np.nan, np.nan, np.nan)


class Range(NamedTuple):
    """Where a claim expects a number."""

    low: float
    high: float


BELOW_ZERO: Final = Range(-np.inf, 0.0)
ABOVE_ZERO: Final = Range(0.0, np.inf)


class Finding(NamedTuple):
    """A claim, where it was examined, what was measured, and the verdict by which rule."""

    figure: str
    claim: str
    where: str
    quantity: str
    measured: Measured
    verdict: Verdict
    rule: str
    more: float = np.nan
    """how many times as many realizations would decide (`times_as_many`); NaN where that cannot be said"""

    @classmethod
    def expecting(
        cls,
        expected: Range,
        *,
        figure: str,
        claim: str,
        where: str,
        quantity: str,
        measured: Measured,
        rule: str,
    ) -> Finding:
        """A claim that holds if the whole interval lies where it is expected."""
        verdict, more = inside(measured, expected), times_as_many(measured, expected)
        return cls(figure, claim, where, quantity, measured, verdict, rule, more)

    @property
    def decision(self) -> str:
        """The verdict in words and, where it is open, about how much more would decide."""
        if not np.isfinite(self.more):
            return self.verdict
        times = f"about {self.more:.2g}" if self.more < MANY else f"more than {MANY:g}"
        return f"{self.verdict} ({times} times as many realizations would decide)"


def inside(measured: Measured, expected: Range) -> Verdict:
    """Holds if the whole interval lies within the range, fails if all of it lies outside; else not enough data."""
    if not np.isfinite([measured.low, measured.high]).all():
        return UNKNOWN
    if expected.low <= measured.low and measured.high <= expected.high:
        return "holds"
    return "does not hold" if measured.high < expected.low or measured.low > expected.high else UNKNOWN


def times_as_many(measured: Measured, expected: Range) -> float:
    """How many times as many realizations would decide, if the value stays as it is and its interval shrinks as one
    over the square root of their number; NaN where the verdict is clear already or there is no interval.
    """
    if inside(measured, expected) != UNKNOWN or not np.isfinite(measured).all():
        return float("nan")
    value, low, high = measured
    reaches = (
        (edge, high - value if edge > value else value - low) for edge in expected if np.isfinite(edge)
    )
    with np.errstate(divide="ignore"):
        return float(max(np.square(np.divide(reach, edge - value)) for edge, reach in reaches))


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
