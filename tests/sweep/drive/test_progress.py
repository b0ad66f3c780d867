"""Snapshots as bars and as lines."""

from __future__ import annotations

import dataclasses
import io
import re
import subprocess
import sys

import pytest

from kising.sweep.drive.progress import (
    RECENT_SECONDS,
    Bars,
    HostLoad,
    Lines,
    Meter,
    Snapshot,
    describe,
    duration,
    open_display,
)


def snapshot(done: int = 30, failed: int = 2, rate: float | None = 4.0, hosts: int = 1) -> Snapshot:
    return Snapshot(
        total=100,
        done=done,
        failed=failed,
        running=4,
        queued=1,
        rate=rate,
        eta=None if rate is None else (100 - done - failed) / rate,
        workers=2,
        slots=2,
        seconds=8.0,
        hosts={f"host{n}": HostLoad(workers=1, finished=16) for n in range(hosts)},
        oldest=(),
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_has_everything() -> None:
    assert describe(snapshot()) == "32/100 runs, 2 failed, 4 runs/s, 17 s left, 2 workers"
    # Before the first run has ended, the forecast knows what runs cost, but not what compilation does.
    first = dataclasses.replace(snapshot(done=0, failed=0, rate=None), eta=23.0)
    assert describe(first) == "0/100 runs, 23 s and the time to compile left, 2 workers"
    assert describe(dataclasses.replace(first, eta=0.0)) == "0/100 runs, 0 s left, 2 workers"


def test_a_line_leaves_out_what_is_not_known() -> None:
    assert describe(snapshot(failed=0, rate=None)) == "30/100 runs, 2 workers"


def test_slow_sweeps_have_their_rate_the_other_way_up() -> None:
    assert "3 min 20 s per run" in describe(snapshot(rate=0.005))


def test_several_hosts_are_counted() -> None:
    assert describe(snapshot(hosts=3)).endswith("3 hosts")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (18720, "5 h 12 min"),
        (273600, "3 d 4 h"),
    ],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_lines_start_with_the_time_and_the_last_one_is_written() -> None:
    stream = io.StringIO()
    with Lines("demo", stream, seconds=1000.0) as lines:
        for done in range(0, 99):
            lines(snapshot(done=done))
    first, last = stream.getvalue().splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d demo: 2/100 runs, .*", first)
    assert "demo: 100/100 runs" in last


def test_lines_are_not_repeated_at_the_end() -> None:
    stream = io.StringIO()
    with Lines("demo", stream, seconds=0.0) as lines:
        lines(snapshot(done=1))
        lines(snapshot(done=2))
    assert len(stream.getvalue().splitlines()) == 2


def test_a_terminal_gets_bars_and_a_file_gets_lines() -> None:
    assert isinstance(open_display("demo", Terminal()), Bars)
    assert isinstance(open_display("demo", io.StringIO()), Lines)


def test_bars_show_the_counts() -> None:
    stream = Terminal()
    with Bars("demo [x]", stream) as bars:
        bars(snapshot())
    assert "32/100 runs" in stream.getvalue()
    assert "demo [x]" in stream.getvalue()


def test_the_rate_is_of_the_recent_past() -> None:
    meter = Meter(0.0)
    count = 0
    for second in range(1, 200):
        count += 10 if second < 100 else 50
        meter.add(float(second), count)
    assert meter.rate == pytest.approx(50.0)


def test_the_rate_of_rare_events_is_since_the_beginning() -> None:
    meter = Meter(0.0)
    for second in range(1, 1001):
        meter.add(float(second), second // 100)
    assert RECENT_SECONDS < 1000
    assert meter.rate == pytest.approx(0.01)


def test_there_is_no_rate_before_the_first_result() -> None:
    meter = Meter(0.0)
    meter.add(1.0, 0)
    assert meter.rate is None


@pytest.mark.parametrize(
    "module",
    [
        "drive.progress",
        "drive.batching",
        "drive.conductor",
        "execute.in_process",
        "execute.batch_loop",
        "execute.protocol",
        "execute.ray_cluster",
        "execute.ray_executor",
        "execute.ray_internals",
        "execute.ray_setup",
    ],
)
def test_modules_load_nothing_heavy(module: str) -> None:
    heavy = {"ray", "numba", "pandas", "scipy", "matplotlib", "pyarrow", "rich"}
    script = f"import sys, kising.sweep.{module}; print(sorted({heavy!r} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
