"""How a sweep is doing: a snapshot of it, and who shows it.

Bars on a terminal; elsewhere a line now and then with the time in front, which reads well in a log file.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

RECENT_SECONDS: Final = 30.0
_ENOUGH: Final = 20


@dataclass(frozen=True, kw_only=True)
class HostLoad:
    """One host: how busy it is, and what it has finished."""

    workers: int  # batches running on it
    finished: int  # runs, in this session
    cores: float | None = None  # that it has; None: it is gone, or was never said
    busy: int = 0  # cores that its batches take
    runs: int = 0  # in its batches, unfinished
    rate: float | None = None  # runs finished per second, lately


@dataclass(frozen=True, kw_only=True)
class BatchAge:
    """One running batch: where, how many of its runs are still out, seconds since it started."""

    batch_id: int
    host: str
    runs: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A sweep at one moment. Counts are runs."""

    total: int  # of the plan
    done: int  # ever, earlier sessions included
    failed: int  # ever
    running: int  # in batches that a process has taken up
    queued: int  # in batches that wait for a process
    rate: float | None  # finished per second, lately
    eta: float | None  # seconds until all are finished, at that rate
    workers: int  # processes at work
    slots: int  # processes that could be
    seconds: float  # since the session began
    hosts: Mapping[str, HostLoad]
    oldest: tuple[BatchAge, ...]  # running batches, the longest-running first


class Meter:
    """The rate of a count, over the recent past or, where that saw too little, since the beginning."""

    def __init__(self, now: float) -> None:
        self._samples: deque[tuple[float, int]] = deque([(now, 0)])
        self._start = now

    def add(self, now: float, count: int) -> None:
        """Note the count reached now; call it about once a second."""
        self._samples.append((now, count))
        while now - self._samples[1][0] > RECENT_SECONDS:
            self._samples.popleft()

    @property
    def rate(self) -> float | None:
        """Counts per second; None before the first."""
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
    """Return bars where `stream` is a terminal, and lines at most every `seconds` seconds elsewhere."""
    return Bars(name, stream) if stream.isatty() else Lines(name, stream, seconds=seconds)


class Lines:
    """Writes snapshots as lines with the time in front, the first and the last one whatever the interval."""

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
        """Write the snapshot if it is time to."""
        if self._written is None or time.monotonic() - self._written >= self._seconds:
            self._write(snapshot)
        else:
            self._pending = snapshot

    def _write(self, snapshot: Snapshot) -> None:
        self._written, self._pending = time.monotonic(), None
        now = f"{datetime.now():%Y-%m-%d %H:%M:%S}"
        print(f"{now} {self._name}: {describe(snapshot)}", file=self._stream, flush=True)


class Bars:
    """Shows one bar with the counts, the rate and the time left, redrawn in place."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name, self._stream = name, stream
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        # rich takes a quarter of the start-up that --help may take.
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
    """Say a snapshot in a line."""
    parts = [f"{snapshot.done + snapshot.failed}/{snapshot.total} runs"]
    if snapshot.failed:
        parts.append(f"{snapshot.failed} failed")
    if snapshot.rate is not None:
        rate = snapshot.rate
        parts.append(f"{rate:.3g} runs/s" if rate >= 1 else f"{duration(1 / rate)} a run")
    if snapshot.eta is not None:
        parts.append(f"{duration(snapshot.eta)} left")
    plural = "" if snapshot.workers == 1 else "s"
    parts.append(f"{snapshot.workers} worker{plural}")
    if len(snapshot.hosts) > 1:
        parts.append(f"{len(snapshot.hosts)} hosts")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Say a time in two units at most: 42 s, 3 min 20 s, 5 h 12 min, 3 d 4 h."""
    whole = round(seconds)
    units = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
    for size, name, small, small_name in units:
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {name} {rest} {small_name}" if rest else f"{whole // size} {name}"
    return f"{whole} s"
