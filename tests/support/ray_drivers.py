"""A process with kising imported, which forks drivers for Ray: they start sooner than from nothing.

A request is a line of JSON on standard input, and so is its answer on standard output. `start`: the step at which to
die and at which occurrence, the arguments of the command, variables of the environment and the file for errors; the
answer is the number of the process. `poll`: that number; the answer is its status as `subprocess` tells it, null
while it runs. Ray is not imported here: drivers set its variables first.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

import kising.run  # noqa: F401  what drivers import in any case
from kising.cli import main
from support import fault_injector


def drive(request: dict[str, Any]) -> None:
    """Be a driver; called in the forked process."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    errors = os.open(request["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    for ours, theirs in ((nothing, 0), (nothing, 1), (errors, 2)):
        os.dup2(ours, theirs)
    os.environ.update(request["environment"])
    sys.argv = [fault_injector.__file__, request["step"], str(request["nth"]), *request["arguments"]]
    fault_injector.install(request["step"], request["nth"], commit_seconds=0.5)
    main(request["arguments"])  # raises SystemExit


def start(request: dict[str, Any]) -> int:
    """Fork a driver."""
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        drive(request)
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def poll(pid: int) -> int | None:
    """The status of a driver that has ended."""
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        answer = start(request["start"]) if "start" in request else poll(request["poll"])
        print(json.dumps(answer), flush=True)
