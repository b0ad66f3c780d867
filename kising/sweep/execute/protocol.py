"""What the conductor asks of an executor, and the loop that runs one batch wherever the batch lands.

An executor takes batches and gives back events. It knows nothing of plans, retries, timeouts or disks: those
are the conductor's, so every executor behaves alike. Events of one batch come in this order: at most one
`Started`, any number of `Rows` and `Checkpoint`s, and then exactly one of `Finished` and `Lost`.
"""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:
    from kising.sweep.plan import Run

CHUNK_SECONDS: Final = 1.0
"""Finished rows wait for this and one run at most before they set out: what waits is lost with its worker."""

CHUNK_BYTES: Final = 64_000
"""About the most that rows travelling together weigh. Ray sends up to 100 kB inside a message, 16 times
cheaper than through its object store, and what came inside a message survives the node that sent it."""

LARGEST_STATE: Final = 64_000_000
"""Bytes of a checkpoint that still travels: what the smallest store of objects that Ray makes can hold."""

CHECKPOINT_SHARE: Final = 100
"""A checkpoint that took a second to make and to send is followed by none for so many seconds."""

_ROW_BYTES: Final = 640

LostKind = Literal["crashed", "memory", "node", "cancelled"]


class RunTimeout(Exception):  # noqa: N818  # a state of a run, as the design names it
    """Raised by a work whose run is over its time."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """What one run asks for: cpus, bytes of memory (None: unsaid), seconds it may take (None: any)."""

    cpus: int = 1
    memory: int | None = None
    timeout: float | None = None


@dataclass(frozen=True)
class Saved:
    """A run on its way: the state that its work can go on from, and the seconds that went into it."""

    state: bytes
    seconds: float


@dataclass(frozen=True)
class Batch:
    """Runs that travel together, one after another on the same cpus; `timeout` is of each run, in seconds."""

    batch_id: int
    runs: tuple[Run, ...]
    cpus: int
    memory: int | None
    timeout: float | None
    chunk_seconds: float = (
        CHUNK_SECONDS  # that finished rows wait for others, and one run, before they set out
    )
    checkpoint: float | None = None  # seconds between two checkpoints of a run; None: there are none
    saved: Mapping[str, Saved] = field(default_factory=dict)  # by run id: runs that were on their way before


@dataclass(frozen=True)
class Started:
    """A process has taken the batch up."""

    batch_id: int
    host: str
    pid: int


@dataclass(frozen=True)
class Rows:
    """Runs of the batch that have finished, done or failed, in the order of the batch."""

    batch_id: int
    rows: tuple[dict[str, object], ...]


@dataclass(frozen=True)
class Checkpoint:
    """A run of the batch is on its way, and can go on from here; saved is None if that is too large to send."""

    batch_id: int
    run_id: str
    saved: Saved | None


@dataclass(frozen=True)
class Finished:
    """Every row of the batch has been handed over."""

    batch_id: int


@dataclass(frozen=True)
class Lost:
    """The batch ended before its last row.

    kind: its process died (crashed), ran out of memory (memory), went with its host (node), or was told to
    (cancelled).
    """

    batch_id: int
    reason: str
    kind: LostKind


Event = Started | Rows | Checkpoint | Finished | Lost
Work = Callable[
    ["Run", int, float | None, bytes | None], Generator[Callable[[], bytes], None, "Mapping[str, object]"]
]
"""One run: (run, threads it may use, seconds it may take, a state to go on from) -> a generator of its row.

Wherever the run could be interrupted the generator yields a function that gives its state; asked or not, it
changes nothing. What the work raises makes the run a failed one, `RunTimeout` a timed-out one. Status,
seconds and host are filled in by `run_batch`."""


class Executor(Protocol):
    """Something that runs batches."""

    @property
    def name(self) -> str:
        """What to call it in messages."""

    def slots(self, need: Need) -> int:
        """Return how many batches of this need can run at once now; it changes as hosts come and go."""

    def reach(self, need: Need) -> int:
        """Return how many could run at once if hosts were added for what waits; `slots` where none are."""

    def cores(self) -> Mapping[str, float]:
        """Return the cpus of each host that is there now."""

    def refuse(self, need: Need) -> str | None:
        """Return why no host will ever run this, as one line for the user, or None."""

    def submit(self, batch: Batch) -> None:
        """Take a batch; never blocks."""

    def events(self, timeout: float) -> list[Event]:
        """Return what has happened, waiting up to `timeout` seconds for something to happen."""

    def cancel(self, batch_id: int) -> None:
        """Kill a batch, whatever it is doing; its `Lost` follows, unless it ends by itself first."""

    def close(self) -> None:
        """Let go of everything; batches still running are killed."""


def run_batch(batch: Batch, work: Work) -> Iterator[Started | Rows | Checkpoint]:
    """Run a batch in this process: a `Started`, then its rows in order, as they finish."""
    host = socket.gethostname()
    yield Started(batch.batch_id, host, os.getpid())
    rows: list[dict[str, object]] = []
    weight, sent = 0, time.monotonic()
    with _threads(batch.cpus):
        for run in batch.runs:
            attempt = _Attempt(run, work, batch, host)
            for saved in attempt.states():
                if rows:  # a long run has begun: they shall not wait for it
                    yield Rows(batch.batch_id, tuple(rows))
                    rows, weight, sent = [], 0, time.monotonic()
                yield Checkpoint(batch.batch_id, run.run_id, saved)
            rows.append(attempt.row)
            weight += _ROW_BYTES + len(str(attempt.row.get("traceback") or ""))
            weight += sum(len(value) for value in attempt.row.values() if isinstance(value, bytes))
            if weight >= CHUNK_BYTES or time.monotonic() - sent >= batch.chunk_seconds:
                yield Rows(batch.batch_id, tuple(rows))
                rows, weight, sent = [], 0, time.monotonic()
    if rows:
        yield Rows(batch.batch_id, tuple(rows))


class _Attempt:
    """A run being run: `states` takes it to its end, and then `row` is its row."""

    row: dict[str, object]

    def __init__(self, run: Run, work: Work, batch: Batch, host: str) -> None:
        self._run, self._work, self._batch, self._host = run, work, batch, host
        self._before = batch.saved.get(run.run_id)
        self._start = time.perf_counter()

    @property
    def _seconds(self) -> float:
        """What the run has taken, earlier attempts included as far as this one goes on from them."""
        return time.perf_counter() - self._start + (self._before.seconds if self._before else 0.0)

    def states(self) -> Iterator[Saved | None]:
        """Run, and hand out a state whenever one is due, None for one that is too large to travel."""
        batch, before = self._batch, self._before
        timeout = batch.timeout
        if timeout is not None and before is not None:
            timeout -= before.seconds
        try:
            steps = self._work(self._run, batch.cpus, timeout, before.state if before else None)
            row = dict((yield from self._due(steps)))
        except RunTimeout as error:
            self._fail(error, timed_out(batch.timeout) if batch.timeout else str(error) or "timed out")
        except (Exception, SystemExit) as error:
            self._fail(error, " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":"))
        else:
            self.row = {**row, "status": "done", "seconds": self._seconds, "host": self._host}

    def _due(
        self, steps: Generator[Callable[[], bytes], None, Mapping[str, object]]
    ) -> Generator[Saved | None, None, Mapping[str, object]]:
        """The states whose time has come; returns what the steps return."""
        interval = self._batch.checkpoint
        last, took = time.monotonic(), 0.0
        while True:
            try:
                state_now = next(steps)
            except StopIteration as end:
                row: Mapping[str, object] = end.value
                return row
            if interval is None or time.monotonic() - last < max(interval, CHECKPOINT_SHARE * took):
                continue
            begin = time.monotonic()
            state = state_now()
            if len(state) > LARGEST_STATE:
                interval = None  # it will not become smaller
                yield None
            else:
                yield Saved(state, self._seconds)
            last = time.monotonic()
            took = last - begin

    def _fail(self, error: BaseException, message: str) -> None:
        trace = _trace(error, error.__traceback__)
        self.row = failed_row(self._run, message, trace, self._seconds, self._host)


def _trace(error: BaseException, trace: TracebackType | None) -> str:
    """The traceback as text, from the work down: the frames that called it say nothing."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def failed_row(
    run: Run, error: str, trace: str | None = None, seconds: float | None = None, host: str | None = None
) -> dict[str, object]:
    """Return the row of a run that failed. `error` is one line, the same every time; `trace` may differ."""
    return {
        "run_id": run.run_id,
        "point_id": run.point.point_id,
        **run.point.values(),
        "realization": run.realization,
        "status": "failed",
        "error": error,
        "traceback": trace,
        "seconds": seconds,
        "host": host,
    }


def timed_out(timeout: float) -> str:
    """Return the error of a run that took longer than its timeout."""
    return f"timed out after {timeout:g} s (resources.timeout)"


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Hold numba and the linear algebra libraries to `count` threads.

    More would take cores from other batches, and a library that splits a sum by the cores of the host would
    give other last digits on another host. numba ignores what Ray tells the others by OMP_NUM_THREADS.
    """
    import numba
    import numpy  # noqa: F401  # its linear algebra must be loaded to be held
    from threadpoolctl import threadpool_limits

    before = numba.get_num_threads()
    numba.set_num_threads(min(count, before))
    try:
        with threadpool_limits(limits=count):
            yield
    finally:
        numba.set_num_threads(before)
