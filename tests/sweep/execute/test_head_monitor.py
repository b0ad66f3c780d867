"""Watching something that may stop answering."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from kising.sweep.execute.head_monitor import Watch


def wait(condition) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_what_is_seen_last_is_there() -> None:
    count = itertools.count()
    watch = Watch(lambda: next(count), every=0.01)
    wait(lambda: watch.latest > 3)
    watch.close()
    seen = watch.latest
    time.sleep(0.05)
    assert watch.latest == seen


def test_no_answer_is_silence_and_the_last_answer_stays() -> None:
    answers = iter(["here"])

    def look() -> str:
        for answer in answers:
            return answer
        raise OSError("no answer")

    watch = Watch(look, every=0.01)
    wait(lambda: watch.silence > 0.1)
    assert watch.latest == "here"
    watch.close()


def test_a_look_that_never_returns_is_silence_too() -> None:
    for_ever, first = threading.Event(), iter([True])
    watch = Watch(lambda: next(first, False) or for_ever.wait(), every=0.01)
    wait(lambda: watch.silence > 0.1)
    watch.close()
    for_ever.set()


def test_who_does_not_answer_at_first_is_not_watched() -> None:
    def look() -> None:
        raise OSError("no answer")

    with pytest.raises(OSError, match="no answer"):
        Watch(look)
