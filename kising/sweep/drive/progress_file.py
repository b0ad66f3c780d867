"""Keeps progress.json, which `kising status` reads, up to date while a sweep runs."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Literal

from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.records import BatchProgress, NodeProgress, Progress

if TYPE_CHECKING:
    from kising.sweep.drive.progress import HostLoad, Snapshot


class ProgressFile:
    """An observer of a sweep that writes every snapshot to progress.json."""

    def __init__(self, directory: SweepDirectory) -> None:
        self._directory = directory
        self._last: Snapshot | None = None

    def __call__(self, snapshot: Snapshot) -> None:
        """Write a snapshot."""
        self._last = snapshot
        self._write("running")

    def end(self, state: Literal["finished", "interrupted", "failed", "running"]) -> None:
        """Write how the sweep ended."""
        self._write(state)

    def _write(self, state: Literal["finished", "interrupted", "failed", "running"]) -> None:
        if self._last is None:
            return
        last, over = self._last, state != "running"
        self._directory.write_progress(
            Progress(
                state=state,
                total=last.total,
                done=last.done,
                failed=last.failed,
                running=0 if over else last.running,
                rate=last.rate,
                eta=None if over else last.eta,
                workers=0 if over else last.workers,
                nodes={} if over else {host: _node(load) for host, load in last.hosts.items()},
                oldest=[]
                if over
                else [
                    BatchProgress(host=batch.host, runs=batch.runs, seconds=batch.seconds)
                    for batch in last.oldest
                ],
                pid=os.getpid(),
                host=socket.gethostname(),
                updated=time.time(),
            )
        )


def _node(load: HostLoad) -> NodeProgress:
    return NodeProgress(
        cores=load.cores, busy=load.busy, runs=load.runs, finished=load.finished, rate=load.rate
    )
