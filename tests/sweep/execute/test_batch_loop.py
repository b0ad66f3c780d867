"""When the batch loop takes checkpoints, by a clock that the test controls."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest
from support.sample_work import FakeRun, runs

from kising.sweep.execute import batch_loop
from kising.sweep.execute.batch_loop import run_batch
from kising.sweep.execute.protocol import Batch, Checkpoint


class Clock:
    """Replaces the module `time` of the batch loop."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    perf_counter = process_time = monotonic


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(batch_loop, "time", clock)
    return clock


def checkpoints(
    clock: Clock, *, steps: int, interval: float | None, making: float, sending: float
) -> list[float]:
    """When checkpoints of a run of one step per second were requested, in seconds since its start."""
    taken: list[float] = []
    start = clock.now

    def state() -> bytes:
        taken.append(clock.now - start)
        clock.now += making
        return b"state"

    def work(
        run: FakeRun, threads: int, timeout: float | None, saved: bytes | None
    ) -> Generator[Callable[[], bytes], None, dict[str, object]]:
        for _ in range(steps):
            clock.now += 1.0
            yield state
        return {"run_id": run.run_id}

    for event in run_batch(Batch(0, tuple(runs(1)), 1, None, None, checkpoint=interval), work):
        if isinstance(event, Checkpoint):
            clock.now += sending
    return taken


def test_checkpoints_that_cost_nothing_come_at_their_interval(clock: Clock) -> None:
    assert checkpoints(clock, steps=100, interval=10.0, making=0.0, sending=0.0) == [
        10.0 * n for n in range(1, 11)
    ]


@pytest.mark.parametrize(("making", "sending"), [(2.0, 0.0), (0.0, 2.0), (1.0, 1.0)])
def test_checkpoints_take_a_hundredth_of_the_time_at_most(
    clock: Clock, making: float, sending: float
) -> None:
    taken = checkpoints(clock, steps=1000, interval=1.0, making=making, sending=sending)
    # Two seconds for each, then two hundred without.
    assert taken == [1.0 + 202.0 * n for n in range(5)]


def test_without_an_interval_there_are_none(clock: Clock) -> None:
    assert checkpoints(clock, steps=1000, interval=None, making=0.0, sending=0.0) == []
