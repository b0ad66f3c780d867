"""Kills the process that it is loaded into at a chosen step of its work on the disk.

A step is an operation and a moment of it, as in `commit:renamed`. kising knows nothing of this: its system calls are
wrapped here, in the process to be killed. As a script this is the command `kising` with two more arguments before
the others: the step (or -), and at which of its occurrences to die.

It also notes the start of every run, in the driver or in a worker, and the iteration that it starts from.
"""

from __future__ import annotations

import functools
import io
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kising.fitting.command
import kising.run
import kising.sweep.store.parts as parts
import kising.sweep.task as task
from kising.fitting import saved_state
from kising.learning.checkpoint import load
from kising.sweep.drive import conductor
from kising.sweep.drive.conductor import Policy
from kising.sweep.execute import batch_loop
from kising.sweep.store.atomic import TEMPORARY_PREFIX
from kising.sweep.store.checkpoints import Checkpoints
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.mirror import copying
from kising.sweep.store.mirror.folders import FolderPlace
from kising.sweep.store.part_log import PartLog
from kising.sweep.store.run_store import Store

MANY_ATTEMPTS = 10**6
NOTES = "KISING_FAULT_NOTES"
"""The environment variable with the path of the notes."""

DURABLE = ("create", "half", "fsync", "synced", "renamed", "settled")
STEPS = (
    *(f"{name}:{moment}" for name in ("commit", "compact", "checkpoint", "manifest") for moment in DURABLE),
    *(f"{name}:{moment}" for name in ("sweep", "tables") for moment in ("half", "synced", "renamed")),
    *(f"{name}:{moment}" for name in ("compact", "checkpoint") for moment in ("unlink", "unlinked")),
    *(f"progress:{moment}" for moment in ("half", "renamed")),
    *(f"log:{moment}" for moment in ("append", "half", "fsync", "synced")),
)
MIRROR_STEPS = (
    *(f"mirror:{moment}" for moment in (*DURABLE, "unlink", "unlinked")),
    "lease:half",
    "lease:renamed",
)
FIT_STEPS = (
    *(f"{name}:{moment}" for name in ("fit folder", "fit state", "fit results") for moment in DURABLE),
    *(f"fit results:{moment}" for moment in ("unlink", "unlinked")),
)
ALL_STEPS = (*STEPS, *MIRROR_STEPS, *FIT_STEPS)
"""create: a temporary file was opened. half: half of it was written. fsync: all of it was written. synced: it is on
the disk. renamed: it has its final name. settled: its directory is on the disk too. unlink, unlinked: before and
after a file is removed. append: a file is about to grow."""

_real_perform = task.perform


class FaultInjector:
    """Kills this process when it reaches a step for the nth time."""

    def __init__(self, step: str, nth: int) -> None:
        self._step, self._left = step, nth
        self._local = threading.local()  # the driver writes its heartbeat from another thread

    @property
    def _operations(self) -> list[str]:
        """The operations that this thread is inside of."""
        return self._local.__dict__.setdefault("operations", [])

    def at(self, moment: str) -> None:
        if self._operations and f"{self._operations[-1]}:{moment}" == self._step:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def during(self, name: str, owner: Any, method: str) -> None:
        """Give the operations inside a method, or a function of a module, the name `name`."""
        real = getattr(owner, method)

        @functools.wraps(real)
        def wrapped(*arguments: Any, **options: Any) -> Any:
            # Inside a lease a write of the mirror is one of the lease.
            self._operations.append("lease" if self._operations[-1:] == ["lease"] else name)
            try:
                return real(*arguments, **options)
            finally:
                self._operations.pop()

        setattr(owner, method, wrapped)

    def wrap_system_calls(self) -> None:
        """Wrap the calls that write to the disk."""
        at, real_open = self.at, os.open

        def open_(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            descriptor = real_open(path, flags, *rest, **options)
            if os.fspath(path) and Path(os.fsdecode(path)).name.startswith(TEMPORARY_PREFIX):
                at("create")
            return descriptor

        class Handle(io.BufferedWriter):
            def write(self, data: Any) -> int:
                half = memoryview(data).nbytes // 2
                written = super().write(memoryview(data).cast("B")[:half])
                self.flush()
                at("half")
                return written + super().write(memoryview(data).cast("B")[half:])

        def fsync(descriptor: int, real: Callable[[int], None] = os.fsync) -> None:
            directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            at("renamed" if directory else "fsync")
            real(descriptor)
            at("settled" if directory else "synced")

        def replace(source: Any, target: Any, real: Callable[[Any, Any], None] = os.replace) -> None:
            real(source, target)
            if "progress" in self._operations:  # it is not synced
                at("renamed")

        def unlink(path: Any, *rest: Any, **options: Any) -> None:
            at("unlink")
            real_unlink(path, *rest, **options)
            at("unlinked")

        def write(descriptor: int, data: bytes, real: Callable[[int, bytes], int] = os.write) -> int:
            if self._operations[-1:] != ["log"]:
                return real(descriptor, data)
            at("append")
            half = real(descriptor, data[: len(data) // 2])
            at("half")
            return half + real(descriptor, data[half:])

        real_unlink = os.unlink
        os.open, os.fsync, os.replace, os.unlink, os.write = open_, fsync, replace, unlink, write
        os.fdopen = lambda descriptor, mode: Handle(io.FileIO(descriptor, mode))


def install(step: str = "-", nth: int = 1, *, commit_seconds: float | None = None) -> None:
    """Prepare this process: die at a step, if one is given; commit and merge more often than usual."""
    injector = FaultInjector(step, nth)
    for name, owner, method in (
        ("commit", Store, "commit"),
        ("log", PartLog, "note"),
        ("mirror", FolderPlace, "put"),
        ("mirror", FolderPlace, "remove"),
        ("lease", FolderPlace, "_write_if"),
        ("compact", Store, "compact"),
        ("tables", Store, "write_runs"),
        ("tables", Store, "write_table"),
        ("checkpoint", Checkpoints, "put"),
        ("checkpoint", Checkpoints, "drop"),
        ("sweep", SweepDirectory, "write_sweep"),
        ("manifest", SweepDirectory, "write_manifest"),
        ("progress", SweepDirectory, "write_progress"),
        ("fit folder", kising.fitting.command, "make_folder"),
        ("fit state", saved_state.SavedState, "save"),
        ("fit results", kising.fitting.command, "write_results"),
    ):
        injector.during(name, owner, method)
    if step != "-":
        injector.wrap_system_calls()
    task.perform = perform_with_note
    parts.FAN_IN = 4  # type: ignore[misc]
    copying.LOOK_SECONDS = 0.02  # type: ignore[misc]
    saved_state.SECONDS = 0.0  # type: ignore[misc]
    conductor.CHUNK_SECONDS = 0.0  # type: ignore[misc]
    batch_loop.CHECKPOINT_SHARE = 1  # type: ignore[misc]
    if commit_seconds is not None:
        # A run whose workers die three times fails, which is right; here workers die because they are killed.
        kising.run.Policy = functools.partial(  # type: ignore[misc]
            Policy, commit_seconds=commit_seconds, max_attempts=MANY_ATTEMPTS
        )


def perform_with_note(
    run: Any, threads: int, timeout: float | None, saved: bytes | None, recording: Any = None
) -> Any:
    """The real work, with a note of its start."""
    line = f"{run.run_id} {load(saved).iteration if saved else 0}\n".encode()
    notes = os.open(os.environ[NOTES], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(notes, line)
    os.close(notes)
    return _real_perform(run, threads, timeout, saved, recording)


if __name__ == "__main__":
    from kising.cli import main
    from support import fault_injector  # the module that workers import, not this script

    fault_injector.install(sys.argv[1], int(sys.argv[2]), commit_seconds=0.5)
    main(sys.argv[3:])
