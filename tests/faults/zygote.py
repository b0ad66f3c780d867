"""Starts drivers in an instant: a process with everything imported and compiled, which forks.

A request is a line of JSON on standard input: the command's words, the step to die at and at which of its
occurrences, the seconds after which to be killed, and the files for errors and notes. The answer is a line
when the driver has ended: what `waitpid` said, and whether it was killed for its time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import saboteur

from kising import run_sweep
from kising.cli import main

COMMIT_SECONDS = 0.05


def warm(file: str) -> None:
    """Load and compile what the sweep in `file` needs."""
    with tempfile.TemporaryDirectory() as place:
        run_sweep(file, out=Path(place) / "warm", in_process=True, overrides=["realizations=1"])


def drive(request: dict[str, object]) -> None:
    """Be a driver."""
    errors = os.open(str(request["errors"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    os.environ[saboteur.NOTES] = str(request["notes"])
    saboteur.install(str(request["step"]), int(str(request["nth"])), commit_seconds=COMMIT_SECONDS)
    main(request["words"])  # raises SystemExit


def watch(pid: int, after: float | None) -> tuple[int, bool]:
    """Wait for a driver's end, and bring it about after so many seconds."""
    end = time.monotonic() + (float("inf") if after is None else after)
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status, False
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1], True


if __name__ == "__main__":
    for file in sys.argv[1:]:
        warm(file)
    print("ready", flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            status = 70
            try:
                drive(json.loads(line))
            except SystemExit as end:
                status = int(end.code or 0)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(status)
        print(*watch(pid, json.loads(line)["after"]), flush=True)
