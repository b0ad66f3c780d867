"""Cuts a stream of runs into batches of about the right duration.

A batch costs the driver about a millisecond, so short runs travel together and long runs alone. Towards the end
batches shrink, so that no worker sits idle while another has a full batch left. The expected duration of a run
is the cost model's estimate times the measured ratio of actual to estimated seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kising.sweep.execute.protocol import Need
    from kising.sweep.plan import Run

LONGEST_BATCH: Final = 10_000
"""The most runs in a batch: bounds the driver's memory and the work that a lost worker repeats."""

SHORTEST_SECONDS: Final = 0.05
"""Batches do not shrink below this: a smaller one costs more than the idle time it would save."""

SECONDS_PER_SLOT: Final = 0.02
"""Batches lengthen with the number of workers, so that no more than 50 of them end per second: Ray takes about
3 ms of the driver's time for each (`kising bench --driver`)."""

_CAUTIOUS_RUNS: Final = 8
_CAUTIOUS_SECONDS: Final = 0.25
_MEMORY: Final = 200  # measured runs after which an old one has lost 63% of its weight
_POINTS: Final = 4096  # points remembered: runs come point by point, so the last ones matter
_SMALLEST: Final = 1e-6


class _Ratio:
    """Measured over estimated seconds, recent runs weighing more."""

    def __init__(self) -> None:
        self.count, self._measured, self._estimated = 0, 0.0, 0.0

    def add(self, measured: float, estimated: float) -> None:
        fade = 1 - 1 / _MEMORY
        self._measured = fade * self._measured + measured
        self._estimated = fade * self._estimated + estimated
        self.count += 1

    @property
    def value(self) -> float:
        return max(self._measured, _SMALLEST) / self._estimated if self.count else 1.0


class Cutter:
    """Takes runs from an iterator, only as many as it hands out, and learns how long they take."""

    def __init__(
        self,
        runs: Iterable[Run],
        cost: Callable[[Run], float],
        need: Callable[[Run], Need],
        *,
        total: int | None = None,
        target_seconds: float = 2.0,
    ) -> None:
        """Cut `runs`, of which there are `total` (None: unknown), into batches of about `target_seconds`.

        cost: estimated seconds of a run. need: what a run needs; all runs of a batch need the same.
        """
        self._runs = iter(runs)
        self._cost, self._need = cost, need
        self._left = total
        self._target = target_seconds
        self._next: Run | None = next(self._runs, None)
        self._overall = _Ratio()
        self._points: OrderedDict[str, _Ratio] = OrderedDict()
        self._cut = 0
        self._mean_estimate = 0.0  # of the runs cut recently

    @property
    def next_need(self) -> Need | None:
        """What the next run needs; None when no run is left."""
        return None if self._next is None else self._need(self._next)

    def cut(self, slots: int) -> tuple[tuple[Run, ...], Need] | None:
        """Return the runs of the next batch and what each needs, None when no run is left.

        slots: how many batches run at once.
        """
        need = self.next_need
        if need is None:
            return None
        seconds, length = self._limits(max(slots, 1))
        batch: list[Run] = []
        while self._next is not None and len(batch) < length:
            if batch and self._need(self._next) != need:
                break
            estimate = self._estimate(self._next)
            seconds -= estimate * self._ratio(self._next)
            if batch and seconds < 0:
                break
            batch.append(self._next)
            self._next = next(self._runs, None)
            self._cut += 1
            self._mean_estimate += (estimate - self._mean_estimate) / min(self._cut, _MEMORY)
        if self._left is not None:
            self._left -= len(batch)
        return tuple(batch), need

    def worthwhile_slots(self, runs: int, seconds: float) -> int:
        """Return how many slots this many runs like the last ones would keep busy for `seconds` seconds each."""
        mean = self._mean_estimate
        if not self._cut and self._next is not None:
            mean = self._estimate(self._next)
        return min(runs, max(1, round(runs * mean * self._overall.value / seconds)))

    def measured(self, run: Run, seconds: float) -> None:
        """Learn how long a run has taken."""
        estimate = self._estimate(run)
        self._overall.add(seconds, estimate)
        point_id = run.point.point_id
        self._points.setdefault(point_id, _Ratio()).add(seconds, estimate)
        self._points.move_to_end(point_id)
        if len(self._points) > _POINTS:
            self._points.popitem(last=False)

    def _limits(self, slots: int) -> tuple[float, int]:
        """The most seconds and runs for a batch now."""
        seconds = max(self._target, SECONDS_PER_SLOT * slots)
        if self._overall.count < _CAUTIOUS_RUNS:
            return min(seconds, _CAUTIOUS_SECONDS), _CAUTIOUS_RUNS
        if self._left is not None:
            left = self._left * self._mean_estimate * self._overall.value
            seconds = min(seconds, max(left / (2 * slots), SHORTEST_SECONDS))
        return seconds, LONGEST_BATCH

    def _estimate(self, run: Run) -> float:
        return max(self._cost(run), _SMALLEST)

    def _ratio(self, run: Run) -> float:
        own = self._points.get(run.point.point_id)
        return own.value if own is not None and own.count >= _CAUTIOUS_RUNS else self._overall.value
