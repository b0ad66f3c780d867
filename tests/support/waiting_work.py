"""Goes along in a driver whose runs shall not be over too soon: they wait at a gate that the test opens.

As a script it is the command `kising` with one word before the others: the file in which the test says how far the
gate is open. A module of its own, beside sample_work.py, because workers import it too.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import kising.sweep.task as task

_real_perform = task.perform


def open_to(gate: Path, realizations: int) -> None:
    """Let runs through whose realization is below a number; the others wait for a higher one."""
    new = gate.with_suffix(".new")
    new.write_text(str(realizations))
    new.replace(gate)


def gated(gate: Path, run: Any, threads: int, timeout: float | None, saved: bytes | None) -> Any:
    """The real work, behind the gate."""
    while run.realization >= int(gate.read_text()):
        time.sleep(0.05)
    return _real_perform(run, threads, timeout, saved)


def main(gate: Path, arguments: list[str]) -> None:
    """What `kising` does with arguments, its runs behind a gate."""
    from kising.cli import main

    task.perform = partial(gated, gate)
    main(arguments)


if __name__ == "__main__":
    from support import waiting_work as gate  # the module that workers know, not this script

    gate.main(Path(sys.argv[1]), sys.argv[2:])
