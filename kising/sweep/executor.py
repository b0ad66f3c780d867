"""What the conductor asks of an executor, and the loop that runs one batch wherever the batch lands.

An executor takes batches and gives back events. It knows nothing of plans, retries, timeouts or disks: those
are the conductor's, so every executor behaves alike. Events of one batch come in this order: at most one
`Started`, any number of `Rows`, and then exactly one of `Finished` and `Lost`.
"""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:
    from kising.sweep.plan import Run
    from kising.sweep.schema import Row

CHUNK_SECONDS: Final = 1.0
"""Finished rows wait for this and one run at most before they set out: what waits is lost with its worker."""

CHUNK_BYTES: Final = 64_000
"""About the most that rows travelling together weigh. Ray sends up to 100 kB inside a message, 16 times
cheaper than through its object store, and what came inside a message survives the node that sent it."""

_ROW_BYTES: Final = 640

LostKind = Literal["crashed", "memory", "node", "cancelled"]


class RunTimeout(Exception):  # noqa: N818  # a state of a run, as the design names it
    """Raised by a work whose run is over its time."""


class ExecutorError(Exception):
    """An executor cannot start, go on, or do what is asked; the message is one line for the user."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """What one run asks for: cpus, bytes of memory (None: unsaid), seconds it may take (None: any)."""

    cpus: int = 1
    memory: int | None = None
    timeout: float | None = None


@dataclass(frozen=True)
class Batch:
    """Runs that travel together, one after another on the same cpus; `timeout` is of each run, in seconds."""

    batch_id: int
    runs: tuple[Run, ...]
    cpus: int
    memory: int | None
    timeout: float | None


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


Event = Started | Rows | Finished | Lost
Work = Callable[["Run", int, float | None], "Row"]
"""One run: (run, threads it may use, its timeout in seconds) -> its row. What it raises makes the run a
failed one, `RunTimeout` a timed-out one. Status, seconds and host are filled in by `run_batch`."""


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


def run_batch(batch: Batch, work: Work) -> Iterator[Started | Rows]:
    """Run a batch in this process: a `Started`, then its rows in order, as they finish."""
    host = socket.gethostname()
    yield Started(batch.batch_id, host, os.getpid())
    rows: list[dict[str, object]] = []
    weight, sent = 0, time.monotonic()
    with _threads(batch.cpus):
        for run in batch.runs:
            row = _run_one(run, work, batch, host)
            rows.append(row)
            weight += _ROW_BYTES + len(str(row.get("traceback") or ""))
            if weight >= CHUNK_BYTES or time.monotonic() - sent >= CHUNK_SECONDS:
                yield Rows(batch.batch_id, tuple(rows))
                rows, weight, sent = [], 0, time.monotonic()
    if rows:
        yield Rows(batch.batch_id, tuple(rows))


def _run_one(run: Run, work: Work, batch: Batch, host: str) -> dict[str, object]:
    start = time.perf_counter()
    try:
        row = dict(work(run, batch.cpus, batch.timeout))
    except RunTimeout as error:
        message = timed_out(batch.timeout) if batch.timeout else str(error) or "timed out"
        return failed_row(run, message, _trace(error, error.__traceback__), time.perf_counter() - start, host)
    except (Exception, SystemExit) as error:
        message = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
        return failed_row(run, message, _trace(error, error.__traceback__), time.perf_counter() - start, host)
    return {**row, "status": "done", "seconds": time.perf_counter() - start, "host": host}


def _trace(error: BaseException, trace: TracebackType | None) -> str:
    """The traceback as text, from the work down: the frame that called it says nothing."""
    return "".join(traceback.format_exception(type(error), error, trace.tb_next if trace else None))


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
