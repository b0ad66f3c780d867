"""How many cores this process may use."""

import os


def cores() -> int:
    """The cores that the operating system grants this process; limits such as `taskset` count."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
