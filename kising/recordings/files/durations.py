"""Times with a unit: ``20ms``, ``0.5 s``, ``50us``."""

from __future__ import annotations

import math
import re
from typing import Any

from kising.errors import InputError
from kising.messages import show
from kising.values import DURATION, SECONDS

_UNIT_OF_NAME = re.compile(r"[ _(\[]\s*(s|sec|seconds|ms|us|µs|μs)\s*[)\]]?$")


def seconds(value: Any, what: str) -> float:
    """A duration in seconds: text with a unit, or a number of seconds."""
    number = math.nan
    if isinstance(value, str):
        match = DURATION.fullmatch(value.strip())
        if match:
            number = float(match[1]) * SECONDS[match[2]]
    elif not isinstance(value, bool) and hasattr(value, "__float__"):
        number = float(value)
    if not (0 < number < math.inf):
        raise InputError(f"{what}={show(value)}: give a duration with its unit: 20ms, 0.5s or 500us")
    return number


def unit_in(name: str) -> float:
    """Seconds per unit of a column: by its name, as in ``time_ms`` or ``Time (us)``; seconds if it does not say."""
    match = _UNIT_OF_NAME.search(name.strip().lower())
    return SECONDS.get(match[1], 1.0) if match else 1.0
