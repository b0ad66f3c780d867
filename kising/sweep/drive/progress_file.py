"""Keeps progress.json, which `kising status` and the live page read, up to date while a sweep runs."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from kising.errors import StoreError
from kising.sweep.labels import label_run
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.records import BatchProgress, NodeProgress, Progress, RunProgress, State

if TYPE_CHECKING:
    from kising.sweep.drive.progress import BatchAge, HostLoad, Snapshot
    from kising.sweep.failures import Failure

BEAT_SECONDS: Final = 1.0
SHOWN_FAILURES: Final = 20


class ProgressFile:
    """An observer of a sweep that writes every snapshot to progress.json.

    While a session is open, a thread writes it also when no snapshot arrives: Ray may take half a minute to start, and
    the tables of a large sweep a while to write.
    """

    def __init__(self, directory: SweepDirectory, keys: Sequence[str] = ()) -> None:
        self._directory = directory
        self._keys = keys  # that tell the runs of the sweep apart
        self._guard = threading.Lock()
        self._beat, self._written = 0, 0.0
        self._earlier: tuple[Failure, ...] = ()  # failed in earlier sessions
        self._state: State = "starting"
        self._counts = (0, 0, 0)  # total, done, failed: before the first snapshot
        self._last: Snapshot | None = None

    @contextmanager
    def session(
        self, *, total: int, done: int, failed: int, failures: Sequence[Failure] = ()
    ) -> Iterator[None]:
        """Keep the file alive inside the block, and write at its end how the sweep ended: see `end`.

        done, failed, failures: runs of earlier sessions.
        """
        self._counts, self._earlier = (total, done, failed), tuple(failures)
        self._write("starting")
        stopped = threading.Event()
        thread = threading.Thread(target=self._keep_alive, args=(stopped,), daemon=True)
        thread.start()
        end: State = "failed"
        try:
            yield
            end = self._state
        finally:
            stopped.set()
            thread.join()
            self._write(end)

    def __call__(self, snapshot: Snapshot) -> None:
        """Write a snapshot."""
        self._last = snapshot
        self._write("running")

    def finishing(self) -> None:
        """Note that all runs have ended and the tables are being written."""
        self._write("finishing")

    def end(self, state: State) -> None:
        """Say how the sweep ended; written at the end of the session."""
        self._state = state

    def _keep_alive(self, stopped: threading.Event) -> None:
        while not stopped.wait(BEAT_SECONDS):
            if time.monotonic() - self._written >= BEAT_SECONDS:
                with suppress(StoreError, OSError):  # the driver itself reports a broken disk
                    self._write()

    def _write(self, state: State | None = None) -> None:
        with self._guard:
            self._state = state or self._state
            self._beat += 1
            self._written = time.monotonic()
            self._directory.write_progress(self._progress())

    def _progress(self) -> Progress:
        state, last = self._state, self._last
        total, done, failed = self._counts if last is None else (last.total, last.done, last.failed)
        working = last if state == "running" else None
        failures = [*self._earlier, *(last.failures if last is not None else ())][:SHOWN_FAILURES]
        return Progress(
            state=state,
            total=total,
            done=done,
            failed=failed,
            running=working.running if working else 0,
            rate=last.rate if last is not None else None,
            eta=working.eta if working else None,
            workers=working.workers if working else 0,
            nodes={host: _node(load) for host, load in working.hosts.items()} if working else {},
            # A batch whose rows are all here has nothing in flight, though its end was not reported yet.
            oldest=[self._batch(batch) for batch in working.oldest if batch.runs] if working else [],
            failures=[
                RunProgress(run_id=one.run_id, label=one.label(self._keys), error=one.error)
                for one in failures
            ],
            pid=os.getpid(),
            host=socket.gethostname(),
            beat=self._beat,
            updated=time.time(),
        )

    def _batch(self, batch: BatchAge) -> BatchProgress:
        run = None
        if batch.run is not None:
            run = RunProgress(run_id=batch.run.run_id, label=label_run(batch.run, self._keys), error=None)
        return BatchProgress(host=batch.host, runs=batch.runs, seconds=batch.seconds, run=run)


def _node(load: HostLoad) -> NodeProgress:
    return NodeProgress(
        cores=load.cores, busy=load.busy, runs=load.runs, finished=load.finished, rate=load.rate
    )
