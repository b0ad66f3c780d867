"""Batches have the right length, and runs are taken as needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest
from support.sample_work import FakePoint, FakeRun, runs

from kising.sweep.drive.batching import LONGEST_BATCH, SHORTEST_SECONDS, Cutter
from kising.sweep.execute.protocol import Need


def cutter(
    source: Iterable[FakeRun],
    cost: Callable[[FakeRun], float],
    need: Callable[[FakeRun], Need] = lambda run: Need(),
    total: int | None = None,
) -> Cutter:
    return Cutter(source, cost, need, total=total)


def cut_all(cutter: Cutter, truth: Callable[[FakeRun], float], slots: int = 2) -> list[tuple[FakeRun, ...]]:
    """Cut to the end, with the measured seconds of each batch's runs."""
    batches = []
    while (cut := cutter.cut(slots)) is not None:
        batches.append(cut[0])
        for run in cut[0]:
            cutter.measured(run, truth(run))
    return batches


@pytest.mark.parametrize("wrong", [0.1, 1.0, 10.0])
def test_short_runs_travel_together_whatever_was_estimated(wrong: float) -> None:
    source = runs(100_000)
    batches = cut_all(cutter(source, lambda run: 1e-3 * wrong, total=100_000), lambda run: 1e-3)
    assert [run for batch in batches for run in batch] == source
    assert len(batches) < 200
    assert 1500 <= max(map(len, batches)) <= 2500  # two seconds


def test_a_long_run_travels_alone() -> None:
    batches = cut_all(cutter(runs(20), lambda run: 3600.0), lambda run: 3600.0)
    assert [len(batch) for batch in batches] == [1] * 20


def test_a_long_run_among_short_ones_travels_alone() -> None:
    def cost(run: FakeRun) -> float:
        return 10.0 if run.realization == 500 else 1e-3

    points = [FakeRun(n, point=FakePoint(f"{n:016x}")) for n in range(1000)]
    batches = cut_all(cutter(points, cost), cost)
    assert [run.realization for run in next(b for b in batches if points[500] in b)] == [500]


def test_the_first_batches_are_small() -> None:
    source = cutter(runs(10_000), lambda run: 1e-6)
    assert all(len(source.cut(2)[0]) <= 8 for _ in range(50))


def test_points_are_judged_by_their_own_runs() -> None:
    slow, fast = FakePoint("a" * 16), FakePoint("b" * 16)

    def truth(run: FakeRun) -> float:
        return 1.0 if run.point is slow else 1e-3

    mixed = [FakeRun(n, point=(slow, fast)[n % 2]) for n in range(40)]
    blocks = [FakeRun(n, point=slow) for n in range(40, 60)] + [
        FakeRun(n, point=fast) for n in range(60, 2000)
    ]
    source = cutter(mixed + blocks, lambda run: 1e-3)
    batches = cut_all(source, truth)
    assert max(len(b) for b in batches if all(run.point is slow for run in b)) <= 2
    assert max(len(b) for b in batches if all(run.point is fast for run in b)) > 1000


def test_batches_shrink_towards_the_end() -> None:
    total, slots, cost = 20_000, 4, 1e-3
    source = cutter(runs(total), lambda run: cost, total=total)
    left = total
    lengths = []
    while (cut := source.cut(slots)) is not None:
        if len(lengths) > 20:
            assert len(cut[0]) * cost <= max(left * cost / (2 * slots), SHORTEST_SECONDS) * (1 + 1e-6)
        lengths.append(len(cut[0]))
        left -= len(cut[0])
        for run in cut[0]:
            source.measured(run, cost)
    assert lengths[-1] <= SHORTEST_SECONDS / cost


def test_batches_lengthen_with_the_cluster() -> None:
    batches = cut_all(cutter(runs(60_000), lambda run: 0.1), lambda run: 0.1, slots=1_000)
    assert max(map(len, batches)) == pytest.approx(200, rel=0.1)  # 20 s: 1,000 of them end 50 times a second


def test_batches_have_a_longest_length() -> None:
    batches = cut_all(cutter(runs(50_000), lambda run: 1e-9), lambda run: 1e-9)
    assert max(map(len, batches)) == LONGEST_BATCH


def test_runs_of_a_batch_ask_for_the_same() -> None:
    needs = [Need(cpus=1), Need(cpus=1, memory=10**9), Need(cpus=2)]
    source = cutter(runs(300), lambda run: 1e-3, need=lambda run: needs[run.realization // 100])
    while (want := source.next_need) is not None:
        batch, need = source.cut(2)
        assert need == want
        assert {needs[run.realization // 100] for run in batch} == {need}
        for run in batch:
            source.measured(run, 1e-3)


def test_runs_are_taken_as_they_are_handed_out() -> None:
    taken = 0

    def stream() -> Iterator[FakeRun]:
        nonlocal taken
        for number in range(10**9):
            taken += 1
            yield FakeRun(number)

    source = cutter(stream(), lambda run: 1e-3, total=10**9)
    out = 0
    for _ in range(30):
        batch = source.cut(2)[0]
        out += len(batch)
        assert taken == out + 1  # one more, to see whether it fits
        for run in batch:
            source.measured(run, 1e-3)


def test_no_runs_no_batch() -> None:
    source = cutter([], lambda run: 1.0)
    assert source.next_need is None
    assert source.cut(2) is None


def test_a_run_that_costs_nothing_is_still_cut() -> None:
    assert sum(map(len, cut_all(cutter(runs(100), lambda run: 0.0), lambda run: 0.0))) == 100
