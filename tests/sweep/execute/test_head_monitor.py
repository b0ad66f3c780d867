"""Monitoring something that may stop answering."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from kising.sweep.execute.head_monitor import HeadMonitor


def wait(condition) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_the_last_answer_is_kept() -> None:
    count = itertools.count()
    monitor = HeadMonitor(lambda: next(count), every=0.01)
    wait(lambda: monitor.latest > 3)
    monitor.close()
    seen = monitor.latest
    time.sleep(0.05)
    assert monitor.latest == seen


def test_no_answer_is_silence_and_the_last_answer_stays() -> None:
    answers = iter(["here"])

    def query() -> str:
        for answer in answers:
            return answer
        raise OSError("no answer")

    monitor = HeadMonitor(query, every=0.01)
    wait(lambda: monitor.silence > 0.1)
    assert monitor.latest == "here"
    monitor.close()


def test_a_query_that_never_returns_is_silence_too() -> None:
    for_ever, first = threading.Event(), iter([True])
    monitor = HeadMonitor(lambda: next(first, False) or for_ever.wait(), every=0.01)
    wait(lambda: monitor.silence > 0.1)
    monitor.close()
    for_ever.set()


def test_an_error_of_the_first_query_is_raised() -> None:
    def query() -> None:
        raise OSError("no answer")

    with pytest.raises(OSError, match="no answer"):
        HeadMonitor(query)
