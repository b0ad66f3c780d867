"""Drivers in processes of their own that run a sweep, and are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from support.fault_injector import NOTES
from support.nodes import PATHS
from support.processes import born_at, descendants

HERE = Path(__file__).parent
PATIENCE = 400.0  # seconds after which a driver counts as stuck, on a machine that does much else


def notes_of(out: Path) -> Path:
    """The file in which the driver of a directory notes every run that it starts."""
    return out.with_name(f"{out.name}.notes")


class ForkingServer:
    """Starts drivers in an instant: a process with everything loaded that forks them (forking_server.py)."""

    def __init__(self, files: list[Path], commands: Sequence[Sequence[str]] = ()) -> None:
        """Load and compile what the sweeps in `files` and other commands need."""
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "forking_server.py"), json.dumps([*map(str, files)]), json.dumps(commands)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": PATHS},
        )  # fmt: skip
        assert self._answer() == "ready"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run_driver(
        self,
        file: Path,
        out: Path,
        step: str = "-",
        nth: int = 1,
        signals: list[tuple[float, int]] | None = None,
        *,
        at_work: bool = False,
        cpu: float | None = None,
        mirror: str | None = None,
        arguments: Sequence[str] = (),
    ) -> tuple[int, bool]:
        """Run a driver to its end; signals: pairs of a number of seconds after its start and a signal to send.

        at_work: seconds count from the start of its first run. cpu: seconds of computing after which SIGPROF ends it,
        however busy the machine is. mirror: its URL. arguments: those of `kising`, by default `run`. Returns the status
        from waitpid, and whether all signals were sent.
        """
        more = ["--mirror", mirror] if mirror is not None else []
        request = {
            "step": step,
            "nth": nth,
            "signals": signals or [],
            "at_work": at_work,
            "cpu": cpu,
            "arguments": [*(arguments or ["run", str(file), "--out", str(out), "--local-debug", *more])],
            "errors": str(self._errors(out)),
            "notes": str(notes_of(out)),
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status, sent = self._answer().split()
        return int(status), sent == "True"

    def errors(self, out: Path) -> str:
        return self._errors(out).read_text()

    def _errors(self, out: Path) -> Path:
        return out.with_name(f"{out.name}.errors")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


class ForkedProcess:
    """A driver for Ray that was forked from a process with kising imported (ray_drivers.py); like a `Popen`."""

    _server: subprocess.Popen[str] | None = None

    def __init__(self, **request: object) -> None:
        self.pid, self._status = int(str(self._ask({"start": request}))), None

    @classmethod
    def _ask(cls, request: dict[str, object]) -> int | None:
        if cls._server is None or cls._server.poll() is not None:
            cls._server = subprocess.Popen(
                [sys.executable, str(HERE / "ray_drivers.py")],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": PATHS},
            )  # fmt: skip
        assert cls._server.stdin is not None
        assert cls._server.stdout is not None
        cls._server.stdin.write(json.dumps(request) + "\n")
        cls._server.stdin.flush()
        answer: int | None = json.loads(cls._server.stdout.readline())
        return answer

    def poll(self) -> int | None:
        """Its status, if it has ended."""
        if self._status is None:
            self._status = self._ask({"poll": self.pid})
        return self._status

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for its end."""
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            assert time.monotonic() < end, f"process {self.pid} does not end"
            time.sleep(0.05)
        return status

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class RayDriver:
    """A driver with a Ray of its own, and all its processes; `arguments` are those of `kising`, by default `run`."""

    def __init__(
        self,
        file: Path,
        out: Path,
        step: str = "-",
        nth: int = 1,
        arguments: Sequence[str] = (),
        *,
        mirror: str | None = None,
    ) -> None:
        self._notes = notes_of(out)
        self._noted = self._size()
        self._errors = out.with_name(f"{out.name}.errors").open("w+")
        more = ["--mirror", mirror] if mirror is not None else []
        arguments = arguments or ["run", str(file), "--out", str(out), "--cpus", "2", *more]
        self._process = ForkedProcess(
            step=step,
            nth=nth,
            arguments=[*arguments],
            errors=self._errors.name,
            # By default Ray's workers have a low priority, and would never finish on a busy machine.
            environment={
                **os.environ,
                "PYTHONPATH": PATHS,
                NOTES: str(self._notes),
                "RAY_worker_niceness": "0",
            },
        )
        self._known: set[tuple[int, str]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what is left: a Ray whose driver was killed ends by itself, but not always at once."""
        self._family()
        self._process.kill()
        self._process.wait()
        end = time.monotonic() + 1
        while (left := [pid for pid, born in self._known if born_at(pid) == born]) and time.monotonic() < end:
            time.sleep(0.05)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._errors.close()

    def wait(self, seconds: float) -> None:
        """Wait, unless it ends first."""
        end = time.monotonic() + seconds
        while self._process.poll() is None and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))

    def wait_for_workers(self) -> None:
        """Wait until a worker has a batch, whether or not it has begun with it."""
        end = time.monotonic() + PATIENCE
        while self._process.poll() is None and not self.processes("workers"):
            assert time.monotonic() < end, f"no worker is busy: {self.errors()}"
            time.sleep(0.1)

    def wait_for_work(self) -> None:
        """Wait until it has started a run."""
        end = time.monotonic() + PATIENCE
        while self._process.poll() is None and self._size() == self._noted:
            assert time.monotonic() < end, f"no run has started: {self.errors()}"
            time.sleep(0.02)

    def wait_for_state(self, out: Path) -> None:
        """Wait until the state of a run is saved anew; not for long, because what is left may be short runs."""

        def states() -> dict[str, int]:
            found = {}
            for path in (out / "checkpoints").glob("*.state"):
                with suppress(FileNotFoundError):
                    found[path.name] = path.stat().st_mtime_ns
            return found

        before, end = states(), time.monotonic() + 30
        while self._process.poll() is None and time.monotonic() < end:
            if any(before.get(name) != changed for name, changed in states().items()):
                return
            time.sleep(0.02)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def processes(self, kind: str) -> list[int]:
        """Its workers that are busy, its raylet or its gcs_server."""
        mark = {"workers": "ray::kising", "raylet": "raylet/raylet", "gcs_server": "gcs_server"}[kind]
        return [pid for pid, command in self._family().items() if mark in command.split("\0")[0]]

    def kill(self, victim: str) -> int:
        """Kill one of its processes, its busy workers, or all; return how many."""
        if self._process.poll() is not None:
            return 0
        self._noted = self._size()
        if victim == "driver":
            chosen = [self._process.pid]
        elif victim == "everything":
            chosen = [self._process.pid, *self._family()]
        else:
            chosen = self.processes(victim)
        for pid in chosen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(chosen)

    def end(self) -> int:
        """Wait for its end and return its exit status."""
        self._family()
        return self._process.wait(timeout=PATIENCE)

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def _size(self) -> int:
        return self._notes.stat().st_size if self._notes.exists() else 0

    def _family(self) -> dict[int, str]:
        """The processes below the driver, with their command lines; they are remembered."""
        family = descendants(self._process.pid)
        self._known |= {(pid, born) for pid in family if (born := born_at(pid))}
        return family
