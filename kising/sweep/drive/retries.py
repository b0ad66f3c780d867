"""Retry policy for lost batches: each run gets another attempt, or a failed row with the reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kising.sweep.execute.batch_loop import failed_row, timed_out
from kising.sweep.execute.protocol import Batch, Lost

if TYPE_CHECKING:
    from kising.sweep.plan import Run

SUSPECTS: Final = 256
"""Rows leave a batch about a hundred at a time, so the run that killed it is among the next few hundred."""


class Retries:
    """Counts, for each run, the lost batches that it was part of.

    After a loss the suspects run one by one, so that a run which kills its process is alone when it does so
    again; the other runs stay together. Only a run that was alone can fail this way.
    """

    def __init__(self, *, max_attempts: int, max_node_losses: int) -> None:
        self._max_attempts, self._max_node_losses = max_attempts, max_node_losses
        self._deaths: Counter[str] = Counter()
        self._node_losses: Counter[str] = Counter()

    def after(
        self, batch: Batch, left: Sequence[Run], lost: Lost, *, overdue: bool
    ) -> tuple[list[tuple[Run, ...]], list[dict[str, object]]]:
        """Return the batches to run in place of a lost one, and the rows of runs that get no further attempt.

        left: its runs whose rows did not arrive. overdue: it was killed because it took too long.
        """
        if not left:
            return [], []
        if overdue:
            if len(left) == 1 and batch.timeout is not None:
                trace = f"killed from outside: {lost.reason}"
                return [], [failed_row(left[0], timed_out(batch.timeout), trace)]
            return _split(left), []
        if lost.kind == "node":
            losses = self._charge(self._node_losses, left)
            if len(batch.runs) == 1 and losses >= self._max_node_losses:
                return [], [failed_row(left[0], f"its host was lost {losses} times", lost.reason)]
            # Hosts are lost for reasons of their own; a run is suspected only if it happens again and again.
            return ([tuple(left)] if losses < self._max_attempts else _split(left)), []
        deaths = self._charge(self._deaths, left[:SUSPECTS])
        if len(batch.runs) == 1 and deaths >= self._max_attempts:
            return [], [failed_row(left[0], _death(batch, lost, deaths), lost.reason)]
        return _split(left), []

    def forget(self, run_id: str) -> None:
        """Drop the counts of a run that has finished or saved its state."""
        self._deaths.pop(run_id, None)
        self._node_losses.pop(run_id, None)

    def _charge(self, counts: Counter[str], suspects: Sequence[Run]) -> int:
        """Count a loss against each suspect; return the highest count among them."""
        counts.update(run.run_id for run in suspects)
        return max(counts[run.run_id] for run in suspects)


def _split(left: Sequence[Run]) -> list[tuple[Run, ...]]:
    """The suspects one by one, then the rest together."""
    rest = tuple(left[SUSPECTS:])
    return [*((run,) for run in left[:SUSPECTS]), *([rest] if rest else [])]


def _death(batch: Batch, lost: Lost, deaths: int) -> str:
    if lost.kind == "memory":
        asked = "no memory: set" if batch.memory is None else f"{_size(batch.memory)} of memory: raise"
        used = re.search(r"\(it used ([^)]+)\)", lost.reason)
        at = f", the last time at {used[1]}" if used else ""
        return f"out of memory {deaths} times{at}; it asks for {asked} resources.memory"
    return f"its worker process died {deaths} times"


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
