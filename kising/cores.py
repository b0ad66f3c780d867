"""How many cores this process may use."""

import os
from numbers import Integral
from typing import Any

from kising.errors import InputError


def cores() -> int:
    """The cores that the operating system grants this process; limits such as `taskset` count."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_threads(threads: Any) -> int:
    """A number of threads that was given; an InputError where it is none."""
    if not isinstance(threads, Integral) or threads < 1:
        raise InputError(f"threads={threads!r}: not a number of threads; allowed: whole numbers from 1")
    return int(threads)
