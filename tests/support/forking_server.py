"""A process with everything imported and compiled, which forks drivers: they start in an instant.

A request is a line of JSON on standard input: the arguments of the command, the step at which to die and at which
occurrence, the seconds of computing after which to die, signals and when to send them, and the files for errors and
notes. The answer is a line when the driver has ended: its status from `waitpid`, and whether all signals were sent.
Figures are not rendered: that takes longer than all else, and changes no file.
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

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numba.np.ufunc import parallel

from kising import run_sweep
from kising.cli import main
from kising.sweep.store import records
from support import fault_injector
from support.plain_figures import draw_nothing, save_nothing

COMMIT_SECONDS = 0.05


def warm(file: str) -> None:
    """Load and compile what the sweep in `file` needs."""
    with tempfile.TemporaryDirectory() as place:
        run_sweep(file, out=Path(place) / "warm", in_process=True, overrides=["realizations=1"])


def warm_command(arguments: list[str]) -> None:
    """Load and compile what another command needs; its results go nowhere."""
    with tempfile.TemporaryDirectory() as place:
        command = [*arguments, "--out", str(Path(place) / "warm")]
        silent = os.open(os.devnull, os.O_WRONLY)
        shown = os.dup(1)
        os.dup2(silent, 1)
        try:
            main(command)
        except SystemExit:
            pass
        finally:
            sys.stdout.flush()
            os.dup2(shown, 1)


def drive(request: dict[str, object]) -> None:
    """Be a driver; called in the forked process."""
    errors = os.open(str(request["errors"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    # Numba's lock would be shared by all drivers, and remain locked if one is killed while it holds it.
    parallel._set_init_process_lock()
    os.environ[fault_injector.NOTES] = str(request["notes"])
    fault_injector.install(str(request["step"]), int(str(request["nth"])), commit_seconds=COMMIT_SECONDS)
    if request["cpu"] is not None:
        # Its default action ends the process at once, like SIGKILL.
        signal.setitimer(signal.ITIMER_PROF, float(str(request["cpu"])))
    main(request["arguments"])  # raises SystemExit


def wait_for(pid: int, signals: list[tuple[float, int]], notes: Path | None) -> tuple[int, bool]:
    """Wait for the end of a driver; send it signals, timed from its start or, with notes, from its first run."""
    start = time.monotonic()
    for seconds, number in signals:
        while time.monotonic() < start + seconds or (notes is not None and not notes.exists()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return status, False
            if notes is not None and not notes.exists():
                start = time.monotonic()
            time.sleep(0.002)
        os.kill(pid, number)
    return os.waitpid(pid, 0)[1], True


if __name__ == "__main__":
    Figure.savefig, FigureCanvasAgg.draw = save_nothing, draw_nothing
    records._checkout_commit = lambda: None  # asking git takes longer than some sessions
    for file in json.loads(sys.argv[1]):
        warm(file)
    for command in json.loads(sys.argv[2]):
        warm_command(command)
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
        request = json.loads(line)
        notes = Path(request["notes"]) if request["at_work"] else None
        print(*wait_for(pid, request["signals"], notes), flush=True)
