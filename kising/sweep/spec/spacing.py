"""The numbers that linspace, logspace and range stand for.

They are computed in decimal arithmetic from the ends as they were written, and rounded once. So they are the same
on every machine, and ``linspace: [0.1, 0.3, 3]`` is ``[0.1, 0.2, 0.3]`` to the last bit: writing an axis in another
form does not change the ids of its runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from typing import Any

from kising.messages import show
from kising.values import RefusedError, Whole

#: More digits than a double has, so that what is rounded to one is right to its last bit.
_CONTEXT = Context(prec=40, rounding=ROUND_HALF_EVEN)

SHAPES = {
    "linspace": "[first, last, number]",
    "logspace": "[first, last, number]",
    "range": "[start, stop, step]",
}


@dataclass(frozen=True)
class Spacing:
    """A form with its numbers: counted, not yet expanded."""

    form: str
    first: int | float
    last: int | float
    count: int
    #: The distance of neighbours; of a range only.
    step: int | float = 1

    def written(self) -> dict[str, list[int | float]]:
        """Return the form as a sweep file writes it."""
        return {self.form: [self.first, self.last, self.step if self.form == "range" else self.count]}

    def numbers(self, *, whole: bool) -> list[int | float]:
        """Return the numbers; with ``whole``, linspace and logspace are rounded to whole numbers."""
        with localcontext(_CONTEXT):
            a, b, last = _decimal(self.first), _decimal(self.last), self.count - 1
            if self.form == "range":
                step = _decimal(self.step)
                return [_number(a + i * step) for i in range(self.count)]
            if self.form == "linspace":
                inner = [a + (b - a) * i / last for i in range(1, last)]
            else:
                low, high = a.ln(), b.ln()
                inner = [(low + (high - low) * i / last).exp() for i in range(1, last)]
            values = [a, *inner, b]  # the ends are as written, without rounding by the logarithm
            return [_number(value.to_integral_value() if whole else value) for value in values]


def read_spacing(form: str, args: Any) -> Spacing:
    """Return the spacing of ``{form: args}``; RefusedError where that is none."""
    shape = SHAPES[form] + (" or [start, stop]" if form == "range" else "")
    if not isinstance(args, list):
        raise RefusedError(f"{show(args)} is not a list; allowed: {shape}")
    if len(args) != 3 and not (form == "range" and len(args) == 2):
        raise RefusedError(f"{len(args)} value{'s' * (len(args) != 1)} given; allowed: {shape}")
    for entry in args:
        if not _finite(entry):
            raise RefusedError(f"{show(entry)} is not a finite number; allowed: {shape}")
    if form == "range":
        return _read_range(*args)
    first, last, number = args
    if form == "logspace" and min(first, last) <= 0:
        allowed = "ends > 0 (the values themselves, not exponents)"
        raise RefusedError(f"{show(first if first <= 0 else last)} has no logarithm; allowed: {allowed}")
    try:
        return Spacing(form, first, last, Whole(2).parse(number))
    except RefusedError as refusal:
        raise RefusedError(f"number of values: {refusal}") from None


def _read_range(start: int | float, stop: int | float, step: int | float = 1) -> Spacing:
    if step == 0:
        raise RefusedError("a step of 0 never reaches the end; allowed: a step other than 0")
    with localcontext(_CONTEXT):
        count = math.ceil((_decimal(stop) - _decimal(start)) / _decimal(step))
    if count < 1:
        raise RefusedError(f"nothing lies from {show(start)} to {show(stop)} in steps of {show(step)}")
    return Spacing("range", start, stop, count, step)


def _finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all doubles
        return False


def _decimal(value: int | float) -> Decimal:
    # repr is the shortest text that means this double: 0.1 is taken as one tenth, as it was written.
    return Decimal(repr(value))


def _number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)
