"""States of long runs on disk, so that an interrupted run goes on from its last state.

One file per run, replaced by the next state and removed when the run's row is committed:

    <SHA-256 of all that follows>\\n{"format": 2, "run_id", "numerics", "seconds", "cpu_seconds"}\\n<state>

Checkpoints only save time. One that is damaged, or was made for another run or by other numerics, is dropped with a
warning, and its run starts over; failures to write one are counted and otherwise ignored. Only the driver writes
here, under the lock of the directory.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kising.errors import StoreError
from kising.regular_files import read_regular
from kising.sweep.execute.protocol import LARGEST_STATE, Saved
from kising.sweep.store.atomic import atomic_write, make_directory
from kising.sweep.store.directory import SweepDirectory

if TYPE_CHECKING:
    from kising.sweep.plan import Plan

LARGEST_TOTAL: Final = 4_000_000_000
"""Largest size of a sweep's checkpoints together; one that would exceed it is not written."""

FORMAT: Final = 2
_NAME: Final = re.compile(r"([0-9a-f]{16})\.state")
_HEADER_BYTES: Final = 1000  # at most


class Checkpoints:
    """The checkpoints of one sweep. `put`, `get` and `drop` never raise: see above."""

    def __init__(
        self, directory: SweepDirectory, *, numerics: int, say: Callable[[str], object] = lambda line: None
    ) -> None:
        """Find the checkpoints on disk; `say` gets a line for each one that is dropped."""
        self._folder, self._numerics, self._say = directory.checkpoints, numerics, say
        self._sizes: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        """number of states that were not written, by reason"""
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                match = _NAME.fullmatch(entry.name)
                # A link could lead anywhere.
                if match and entry.is_file(follow_symlinks=False):
                    self._sizes[match[1]] = entry.stat(follow_symlinks=False).st_size

    @property
    def run_ids(self) -> set[str]:
        """The runs that have a checkpoint, valid or not."""
        return set(self._sizes)

    def drop_finished(self, plan: Plan, unfinished: Iterable[bool]) -> None:
        """Remove the checkpoints of finished runs: a kill can come between a commit and their removal.

        Those of runs that are not in the plan stay, in case an edit brings the runs back.
        """
        ids = sorted(self._sizes)
        chosen = list(unfinished)
        self.drop(
            run_id
            for run_id, place in zip(ids, plan.order(ids), strict=True)
            if place >= 0 and not chosen[place]
        )

    def get(self, run_id: str) -> Saved | None:
        """Return the state that a run can resume from, if there is a valid one."""
        if run_id not in self._sizes:
            return None
        path = self._path(run_id)
        try:
            return self._decoded(run_id, read_regular(path, LARGEST_STATE + _HEADER_BYTES))
        except (OSError, ValueError) as error:
            self._say(f"{path}: not used, its run starts over: {error}")
            self.drop([run_id])
            return None

    def put(self, run_id: str, saved: Saved | None) -> None:
        """Replace the state of a run; None stands for a state that was too large to be sent."""
        if saved is None:
            return self._refuse(f"larger than {LARGEST_STATE} bytes")
        data = self._encoded(run_id, saved)
        if sum(self._sizes.values()) - self._sizes.get(run_id, 0) + len(data) > LARGEST_TOTAL:
            return self._refuse(f"more than {LARGEST_TOTAL} bytes of them")
        try:
            make_directory(self._folder)
            atomic_write(self._path(run_id), data)
        except StoreError as error:
            return self._refuse(str(error))
        self._sizes[run_id] = len(data)
        return None

    def drop(self, run_ids: Iterable[str]) -> None:
        """Remove the checkpoints of some runs, if they have any."""
        for run_id in run_ids:
            if self._sizes.pop(run_id, None) is not None:
                with suppress(OSError):
                    self._path(run_id).unlink()

    def _path(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.state"

    def _refuse(self, reason: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def _encoded(self, run_id: str, saved: Saved) -> bytes:
        header = {
            "format": FORMAT,
            "run_id": run_id,
            "numerics": self._numerics,
            "seconds": saved.seconds,
            "cpu_seconds": saved.cpu_seconds,
        }
        rest = json.dumps(header).encode() + b"\n" + saved.state
        return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest

    def _decoded(self, run_id: str, data: bytes) -> Saved:
        """Undo `_encoded`; ValueError says why the state must not be used."""
        digest, _, rest = data.partition(b"\n")
        if hashlib.sha256(rest).hexdigest().encode() != digest:
            raise ValueError(f"its {len(data)} bytes do not have their checksum")
        text, _, state = rest.partition(b"\n")
        try:
            header = json.loads(text) if len(text) <= _HEADER_BYTES else None
        except RecursionError:
            header = None
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ValueError("another version of kising wrote it")
        if header.get("run_id") != run_id:
            raise ValueError("it is of another run")
        if header.get("numerics") != self._numerics:
            raise ValueError(f"numerics version {header.get('numerics')} made it, this is {self._numerics}")
        return Saved(state, _seconds(header, "seconds"), _seconds(header, "cpu_seconds"))


def _seconds(header: Mapping[str, object], key: str) -> float:
    value = header.get(key)
    if not isinstance(value, float) or not value >= 0:
        raise ValueError(f"its {key} are not a number")
    return value
