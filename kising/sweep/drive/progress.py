"""The progress of a sweep: snapshots, and their display.

On a terminal it is a bar. Elsewhere it is a line from time to time that starts with the time, for log files.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self, TextIO

from kising.messages import plural
from kising.sweep.drive.notebook import NotebookBar, in_notebook

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from kising.sweep.failures import Failure
    from kising.sweep.plan import Run

RECENT_SECONDS: Final = 30.0
_ENOUGH: Final = 20  # counts for a rate


@dataclass(frozen=True, kw_only=True)
class HostLoad:
    """One host: its load, and what it has finished."""

    workers: int  # batches running on it
    finished: int  # runs in this session
    cores: float | None = None  # None: the host is gone, or the number is unknown
    busy: int = 0  # cores that its batches use
    runs: int = 0  # unfinished, in its batches
    rate: float | None = None  # runs finished per second, recently


@dataclass(frozen=True, kw_only=True)
class BatchAge:
    """One running batch: its host, its unfinished runs, seconds since it started, and the run at work."""

    batch_id: int
    host: str
    runs: int
    seconds: float
    run: Run | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A sweep at one moment. Counts are runs."""

    total: int  # in the plan
    done: int  # in all sessions
    failed: int  # in all sessions
    running: int  # in batches that a process has begun
    queued: int  # in batches that wait for a process
    rate: float | None  # finished per second, recently
    eta: float | None  # seconds until all are finished, by the forecast
    workers: int  # processes at work
    slots: int  # processes that could be at work
    seconds: float  # since the session began
    hosts: Mapping[str, HostLoad]
    oldest: tuple[BatchAge, ...]  # running batches, the longest-running first
    failures: tuple[Failure, ...] = ()  # the first few failed runs of the session


class Meter:
    """The rate of a count, over the recent past or, if too little happened in it, since the start."""

    def __init__(self, now: float) -> None:
        self._samples: deque[tuple[float, int]] = deque([(now, 0)])
        self._start = now

    def add(self, now: float, count: int) -> None:
        """Record the current count; call this about once a second."""
        self._samples.append((now, count))
        while now - self._samples[1][0] > RECENT_SECONDS:
            self._samples.popleft()

    @property
    def rate(self) -> float | None:
        """Counts per second; None before the first count."""
        (then, before), (now, count) = self._samples[0], self._samples[-1]
        if count - before < _ENOUGH:
            then, before = self._start, 0
        return (count - before) / (now - then) if count > before and now > then else None


class Display(Protocol):
    """Shows snapshots while it is open."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __call__(self, snapshot: Snapshot) -> None:
        """Show a snapshot."""


def open_display(name: str, stream: TextIO, *, seconds: float = 10.0) -> Display:
    """Return a bar if `stream` is a terminal, otherwise lines, at most one per `seconds` seconds."""
    return Bars(name, stream) if stream.isatty() else Lines(name, stream, seconds=seconds)


def display_for(name: str, wanted: bool | None) -> Display | None:
    """The display for a sweep that is run from Python: a bar in terminals and notebooks, and nothing elsewhere unless
    it is asked for.
    """
    if wanted is False:
        return None
    if in_notebook():
        return NotebookBar(name)
    return open_display(name, sys.stderr) if wanted or sys.stderr.isatty() else None


class Lines:
    """Writes snapshots as lines that start with the time; the first and the last one in any case."""

    def __init__(self, name: str, stream: TextIO, *, seconds: float = 10.0) -> None:
        self._name, self._stream, self._seconds = name, stream, seconds
        self._written: float | None = None
        self._pending: Snapshot | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pending is not None:
            self._write(self._pending)

    def __call__(self, snapshot: Snapshot) -> None:
        """Write the snapshot if a line is due."""
        if self._written is None or time.monotonic() - self._written >= self._seconds:
            self._write(snapshot)
        else:
            self._pending = snapshot

    def _write(self, snapshot: Snapshot) -> None:
        self._written, self._pending = time.monotonic(), None
        now = f"{datetime.now():%Y-%m-%d %H:%M:%S}"
        print(f"{now} {self._name}: {describe(snapshot)}", file=self._stream, flush=True)


class Bars:
    """Shows a bar with counts, rate and time left, redrawn in place."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name, self._stream = name, stream
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        # Imported here: rich takes a quarter of the time that `--help` may take to start.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            console=Console(file=self._stream),
        )
        self._bar = progress, progress.add_task(self._name, total=None, text="starting")
        progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar[0].stop()

    def __call__(self, snapshot: Snapshot) -> None:
        """Redraw."""
        if self._bar is not None:
            progress, task = self._bar
            finished = snapshot.done + snapshot.failed
            progress.update(task, completed=finished, total=snapshot.total, text=describe(snapshot))


def describe(snapshot: Snapshot) -> str:
    """Describe a snapshot in one line."""
    parts = [f"{snapshot.done + snapshot.failed}/{snapshot.total} runs"]
    if snapshot.failed:
        parts.append(f"{snapshot.failed} failed")
    if snapshot.rate is not None:
        rate = snapshot.rate
        parts.append(speed(rate))
    if snapshot.eta is not None:
        # Before the first run has ended, nobody knows whether workers still compile.
        more = "" if snapshot.rate is not None or not snapshot.eta else " and the time to compile"
        parts.append(f"{duration(snapshot.eta)}{more} left")
    parts.append(plural(snapshot.workers, "worker"))
    if len(snapshot.hosts) > 1:
        parts.append(plural(len(snapshot.hosts), "host"))
    return ", ".join(parts)


def speed(rate: float | None) -> str:
    """How fast runs finish; `rate` is in runs per second."""
    if not rate:
        return "no rate yet"
    return f"{rate:.3g} runs/s" if rate >= 1 else f"{duration(1 / rate)} per run"


def duration(seconds: float) -> str:
    """A duration in at most two units: 42 s, 3 min 20 s, 5 h 12 min, 3 d 4 h."""
    whole = round(seconds)
    units = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
    for size, name, small, small_name in units:
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {name} {rest} {small_name}" if rest else f"{whole // size} {name}"
    return f"{whole} s"
