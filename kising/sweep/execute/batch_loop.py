"""The loop that runs one batch, wherever the batch lands."""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final

from kising.sweep.execute.protocol import (
    LARGEST_STATE,
    Batch,
    Checkpoint,
    Rows,
    RunTimeout,
    Saved,
    Started,
    Work,
)

if TYPE_CHECKING:
    from kising.sweep.plan import Run

CHUNK_BYTES: Final = 64_000
"""About the largest size of rows that travel together. Ray sends up to 100 kB inside a message, 16 times
cheaper than through its object store, and what came inside a message survives the node that sent it."""

CHECKPOINT_SHARE: Final = 100
"""After a checkpoint that took one second to make and send, no other follows for this many seconds."""

_ROW_BYTES: Final = 640


def run_batch(batch: Batch, work: Work) -> Iterator[Started | Rows | Checkpoint]:
    """Run a batch in this process: a `Started`, then its rows in order, as they finish."""
    host = socket.gethostname()
    yield Started(batch.batch_id, host, os.getpid())
    rows: list[dict[str, object]] = []
    size, sent = 0, time.monotonic()
    with _thread_limit(batch.cpus):
        for run in batch.runs:
            attempt = _Attempt(run, work, batch, host)
            for saved in attempt.states():
                if rows:  # do not let them wait for a long run
                    yield Rows(batch.batch_id, tuple(rows))
                    rows, size, sent = [], 0, time.monotonic()
                yield Checkpoint(batch.batch_id, run.run_id, saved)
            rows.append(attempt.row)
            size += _ROW_BYTES + len(str(attempt.row.get("traceback") or ""))
            size += sum(len(value) for value in attempt.row.values() if isinstance(value, bytes))
            if size >= CHUNK_BYTES or time.monotonic() - sent >= batch.chunk_seconds:
                yield Rows(batch.batch_id, tuple(rows))
                rows, size, sent = [], 0, time.monotonic()
    if rows:
        yield Rows(batch.batch_id, tuple(rows))


class _Attempt:
    """One attempt at a run. Exhaust `states`; then `row` is its row."""

    row: dict[str, object]

    def __init__(self, run: Run, work: Work, batch: Batch, host: str) -> None:
        self._run, self._work, self._batch, self._host = run, work, batch, host
        self._before = batch.saved.get(run.run_id)
        self._start, self._cpu_start = time.perf_counter(), time.process_time()

    @property
    def _seconds(self) -> float:
        """Time spent on the run, including the earlier attempts that this one continues."""
        return time.perf_counter() - self._start + (self._before.seconds if self._before else 0.0)

    @property
    def _cpu_seconds(self) -> float:
        """The same in seconds of CPU, of all threads: unlike `_seconds`, it does not grow where cores are shared."""
        return time.process_time() - self._cpu_start + (self._before.cpu_seconds if self._before else 0.0)

    def states(self) -> Iterator[Saved | None]:
        """Run; yield a state whenever one is due, None for one that is too large to send."""
        batch, before = self._batch, self._before
        timeout = batch.timeout
        if timeout is not None and before is not None:
            timeout -= before.seconds
        try:
            steps = self._work(self._run, batch.cpus, timeout, before.state if before else None)
            row = dict((yield from self._due_states(steps)))
        except RunTimeout as error:
            self._fail(error, timed_out(batch.timeout) if batch.timeout else str(error) or "timed out")
        except (Exception, SystemExit) as error:
            self._fail(error, " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":"))
        else:
            self.row = {**row, "status": "done", **self._spent()}

    def _due_states(
        self, steps: Generator[Callable[[], bytes], None, Mapping[str, object]]
    ) -> Generator[Saved | None, None, Mapping[str, object]]:
        """Yield the states that are due; return what the steps return."""
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
                interval = None  # later ones will be no smaller
                yield None
            else:
                yield Saved(state, self._seconds, self._cpu_seconds)
            last = time.monotonic()
            took = last - begin

    def _fail(self, error: BaseException, message: str) -> None:
        trace = _traceback(error, error.__traceback__)
        self.row = {**failed_row(self._run, message, trace), **self._spent()}

    def _spent(self) -> dict[str, object]:
        """What the attempt took, and where."""
        return {"seconds": self._seconds, "cpu_seconds": self._cpu_seconds, "host": self._host}


def _traceback(error: BaseException, trace: TracebackType | None) -> str:
    """The traceback as text, from the work down: the frames that called it tell nothing."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def failed_row(run: Run, error: str, trace: str | None = None) -> dict[str, object]:
    """Return the row of a failed run. `error` is one line, the same every time; `trace` may differ."""
    return {
        "run_id": run.run_id,
        "point_id": run.point.point_id,
        **run.point.values(),
        "realization": run.realization,
        "status": "failed",
        "error": error,
        "traceback": trace,
        "seconds": None,
        "cpu_seconds": None,
        "host": None,
    }


def timed_out(timeout: float) -> str:
    """Return the error of a run that took longer than its timeout."""
    return f"timed out after {timeout:g} s (resources.timeout)"


@contextmanager
def _thread_limit(count: int) -> Iterator[None]:
    """Limit numba and the linear algebra libraries to `count` threads.

    More would take cores from other batches; and a library that splits a sum by the number of cores would give
    other last digits on another host. numba ignores OMP_NUM_THREADS, which Ray sets for the others.
    """
    import numba
    import numpy  # noqa: F401  # its linear algebra library must be loaded to be limited
    from threadpoolctl import threadpool_limits

    before = numba.get_num_threads()
    numba.set_num_threads(min(count, before))
    try:
        with threadpool_limits(limits=count):
            yield
    finally:
        numba.set_num_threads(before)
