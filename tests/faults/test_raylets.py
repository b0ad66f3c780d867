"""A driver whose raylet dies ends with a line and an exit code, whenever that happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.raylets import kill_raylets

from kising.sweep.execute.exit_notice import LINE


@pytest.mark.faults
def test_killed_raylets(
    tmp_path: Path,
    fault_seed: int,
    request: pytest.FixtureRequest,
    counts_file: Callable[[str], Path | None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    raylets = request.config.getoption("--raylets")
    counts = kill_raylets(tmp_path, fault_seed, raylets, counts_file("raylets.txt"))
    with capsys.disabled():
        print(f"\n{counts.line()}")
    assert counts.silent == []


def end_of(last: str) -> subprocess.CompletedProcess[str]:
    """The end of a process that waits for a notice of it, and whose last statement is this."""
    code = f"import os, signal\nfrom kising.sweep.execute.exit_notice import ExitNotice\nnotice = ExitNotice()\n{last}"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False
    )


@pytest.mark.parametrize(
    ("last", "status"),
    [
        ("os._exit(1)", 1),  # as Ray does
        ("os.abort()", -signal.SIGABRT),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
)
def test_a_process_that_is_ended_leaves_a_line(last: str, status: int) -> None:
    ended = end_of(last)
    assert (ended.returncode, ended.stderr) == (status, f"{LINE}\n")


def test_a_process_that_has_closed_its_notice_does_not() -> None:
    ended = end_of("notice.close()\nos._exit(1)")
    assert (ended.returncode, ended.stderr) == (1, "")
