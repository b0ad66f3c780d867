"""Work that waits until the test allows it, so that what a test does happens in the middle of a sweep.

As a script this is the command `kising` with one more argument before the others: the file that holds the number of
allowed realizations. A module of its own because workers import it too.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import kising.sweep.task as task

_real_perform = task.perform


def allow(limit_file: Path, realizations: int) -> None:
    """Let runs start whose realization is below a number; the others wait for a higher one."""
    new = limit_file.with_suffix(".new")
    new.write_text(str(realizations))
    new.replace(limit_file)


def perform_when_allowed(
    limit_file: Path, run: Any, threads: int, timeout: float | None, saved: bytes | None
) -> Any:
    """The real work, once its realization is allowed."""
    while run.realization >= int(limit_file.read_text()):
        time.sleep(0.05)
    return _real_perform(run, threads, timeout, saved)


def main(limit_file: Path, arguments: list[str]) -> None:
    """The command `kising` with arguments, whose runs wait until they are allowed."""
    from kising.cli import main

    task.perform = partial(perform_when_allowed, limit_file)
    main(arguments)


if __name__ == "__main__":
    from support import waiting_work  # the module that workers import, not this script

    waiting_work.main(Path(sys.argv[1]), sys.argv[2:])
