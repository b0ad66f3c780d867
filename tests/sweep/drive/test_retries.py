"""The retry policy for lost batches."""

from __future__ import annotations

import pytest
from support.sample_work import FakeRun, runs

from kising.sweep.drive.retries import Retries
from kising.sweep.execute.batch_loop import CHUNK_BYTES
from kising.sweep.execute.protocol import Batch, Lost, LostKind


def batch(source: list[FakeRun], timeout: float | None = None) -> Batch:
    return Batch(0, tuple(source), 1, None, timeout)


def policy() -> Retries:
    return Retries(max_attempts=3, max_node_losses=20)


@pytest.mark.parametrize("kind", ["crashed", "memory", "cancelled"])
def test_after_a_death_the_first_runs_go_on_alone_and_the_rest_together(kind: LostKind) -> None:
    source = runs(3000)
    again, failed = policy().after(batch(source), source[100:], Lost(0, "boom", kind), overdue=False)
    assert [len(runs) for runs in again] == [1] * 256 + [3000 - 100 - 256]
    assert [run for runs in again for run in runs] == source[100:]
    assert failed == []


def test_the_runs_that_go_on_alone_cover_what_a_worker_may_hold_back() -> None:
    """The culprit follows the last row that arrived by at most one message of rows, of 640 bytes each."""
    source = runs(3000)
    again, _ = policy().after(batch(source), source, Lost(0, "boom", "crashed"), overdue=False)
    assert sum(len(runs) == 1 for runs in again) > 2 * CHUNK_BYTES / 640


def test_only_the_suspects_are_charged() -> None:
    retries, source = policy(), runs(1000)
    for _ in range(5):
        retries.after(batch(source), source, Lost(0, "boom", "crashed"), overdue=False)
    for run, fails in ((source[0], True), (source[255], True), (source[256], False), (source[999], False)):
        again, failed = retries.after(batch([run]), [run], Lost(0, "boom", "crashed"), overdue=False)
        assert (len(again), len(failed)) == ((0, 1) if fails else (1, 0)), run.realization


def test_a_run_that_makes_progress_starts_from_zero() -> None:
    retries, (run,) = policy(), runs(1)
    for _ in range(10):
        again, failed = retries.after(batch([run]), [run], Lost(0, "boom", "crashed"), overdue=False)
        assert (again, failed) == ([(run,)], [])
        retries.forget(run.run_id)


def test_an_overdue_run_fails_once_it_was_alone() -> None:
    source, lost = runs(2), Lost(0, "killed", "cancelled")
    assert policy().after(batch(source, 5.0), source, lost, overdue=True) == ([(run,) for run in source], [])
    again, (row,) = policy().after(batch(source[:1], 5.0), source[:1], lost, overdue=True)
    assert again == []
    assert row["error"] == "timed out after 5 s (resources.timeout)"


def test_nothing_left_is_nothing_to_repeat() -> None:
    assert policy().after(batch(runs(3)), [], Lost(0, "boom", "crashed"), overdue=False) == ([], [])
