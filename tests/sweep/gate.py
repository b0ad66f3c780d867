"""Goes along in a driver whose runs shall not be over too soon: they wait at a gate that the test opens.

As a script it is the command `kising`. A module of its own, beside works.py, because workers import it too.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import kising.sweep.task as task

GATE = "KISING_TEST_GATE"
"""The environment variable that names the file in which the test says how far the gate is open."""

_real_perform = task.perform


def open_to(gate: Path, realizations: int) -> None:
    """Let runs through whose realization is below a number; the others wait for a higher one."""
    new = gate.with_suffix(".new")
    new.write_text(str(realizations))
    new.replace(gate)


def gated(run: Any, threads: int, timeout: float | None, saved: bytes | None) -> Any:
    """The real work, behind the gate."""
    gate = Path(os.environ[GATE])
    while run.realization >= int(gate.read_text()):
        time.sleep(0.05)
    return _real_perform(run, threads, timeout, saved)


if __name__ == "__main__":
    import gate  # the module that workers know, not this script

    from kising.cli import main

    task.perform = gate.gated
    main(sys.argv[1:])
