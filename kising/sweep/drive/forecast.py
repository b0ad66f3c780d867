"""How long a sweep will still take, from what its points cost.

Points of one sweep may differ in cost by a factor of a thousand, so runs per second say little. The time left is the
work left divided by the work done per second. Work is the cost model's estimate of the seconds of a run, corrected
by the ratio of measured to estimated seconds of the finished runs of its kind.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from kising.sweep.drive.cost import CostModel, kind_of
from kising.sweep.drive.progress import RECENT_SECONDS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kising.sweep.drive.counts import Flight
    from kising.sweep.plan import Plan, Run

#: Number of points used to add up the work of a sweep; if there are more, they are sampled evenly.
MOST_POINTS: Final = 20_000


def work_of(plan: Plan, todo: NDArray[np.bool_], costs: CostModel) -> dict[str, float]:
    """The estimated seconds of the runs to do, by kind of run."""
    left = todo.reshape(len(plan.points), plan.spec.realizations).sum(axis=1)
    stride = -(-len(plan.points) // MOST_POINTS)
    work: dict[str, float] = {}
    for number in range(0, len(plan.points), stride):
        if left[number]:
            point = plan.points[number]
            kind = kind_of(point)
            work[kind] = work.get(kind, 0.0) + stride * int(left[number]) * costs.seconds(point)
    return work


class Forecast:
    """The time left, while runs finish. Times are those of the monotonic clock."""

    def __init__(self, work: Mapping[str, float], costs: CostModel) -> None:
        self._left = dict(work)
        self._cost = costs.of_run()
        self._kinds: dict[str, str] = {}
        self._measured: dict[str, tuple[float, float]] = {}  # by kind: measured and estimated seconds
        self._warm: set[tuple[tuple[str, int], str]] = (
            set()
        )  # processes, and the kinds that they have compiled
        self._delivered = 0.0  # seconds of work that workers have done
        self._samples: deque[tuple[float, float]] = deque()

    def finished(self, run: Run, seconds: float | None, process: tuple[str, int] | None) -> None:
        """Take note of a run that has ended, and how long it took if that is known.

        process: its host and pid. The first run of a kind in a process compiles, and tells nothing about the others.
        """
        kind, estimate = self._kind(run), self._cost(run)
        self._left[kind] = max(self._left.get(kind, 0.0) - estimate, 0.0)
        self._delivered += seconds or 0.0
        first = process is not None and (process, kind) not in self._warm
        if process is not None:
            self._warm.add((process, kind))
        if seconds is not None and not first:
            measured, estimated = self._measured.get(kind, (0.0, 0.0))
            self._measured[kind] = measured + seconds, estimated + estimate

    def seconds_left(
        self, flights: Collection[Flight], slots: int, unfinished: int, now: float | None = None
    ) -> float | None:
        """The expected time until all runs have ended; None as long as nothing can be said. Call it once a second."""
        now = time.monotonic() if now is None else now
        working = [flight for flight in flights if flight.started is not None and flight.pending]
        elapsed = [now - flight.alive for flight in working]
        self._samples.append((now, self._delivered + sum(elapsed)))
        while now - self._samples[0][0] > RECENT_SECONDS and len(self._samples) > 2:
            self._samples.popleft()
        if not unfinished:
            return 0.0
        work = sum(seconds * self._ratio(kind) for kind, seconds in self._left.items())
        longest = 0.0
        for flight, spent in zip(working, elapsed, strict=True):
            first = next(iter(flight.pending.values()))
            expected = self._cost(first) * self._ratio(self._kind(first))
            work -= min(spent, expected)
            longest = max(longest, expected - spent)
        speed = min(self._speed(slots), unfinished)
        return max(work / speed, longest) if speed > 0 else None

    def _speed(self, slots: int) -> float:
        """Seconds of work per second, recently: how many workers are busy."""
        (then, before), (now, delivered) = self._samples[0], self._samples[-1]
        known = now > then and delivered > before
        return min((delivered - before) / (now - then), slots) if known else float(slots)

    def _ratio(self, kind: str) -> float:
        """Measured over estimated seconds: of this kind, else of all."""
        known = [self._measured[kind]] if kind in self._measured else list(self._measured.values())
        estimated = sum(pair[1] for pair in known)
        return sum(pair[0] for pair in known) / estimated if estimated else 1.0

    def _kind(self, run: Run) -> str:
        point_id = run.point.point_id
        if point_id not in self._kinds:
            if len(self._kinds) >= MOST_POINTS:
                self._kinds.clear()
            self._kinds[point_id] = kind_of(run.point)
        return self._kinds[point_id]
