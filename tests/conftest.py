"""Test settings, command-line options of the fault campaign, and shared fixtures."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from support.brute_force import small_network
from support.plain_figures import draw_nothing, save_nothing

from kising import Couplings

# Tests that give their processes another XDG_CACHE_HOME must not make them compile all kernels again.
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path.home() / ".cache"))

# Under nohup hangups are ignored, and in the background of a script Ctrl-C is: here and in all processes that tests
# start, which would then not stop for one. A handler of Python's own is not inherited by these.
for number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda number, frame: None)

# Compilation on first use takes seconds, and derandomising makes a failure on one machine a failure on all.
settings.register_profile(
    "kising", deadline=None, derandomize=True, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("kising")


# Each needs up to a gigabyte, and compiles some of the kernels.
MOST_PROCESSES = 4


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults", "the fault campaign (tests/faults)")
    group.addoption("--kills", type=int, default=200, help="kills of the long campaign in one process")
    group.addoption("--ray-kills", type=int, default=30, help="kills of the long campaign on a local Ray")
    group.addoption("--fault-counts", help="directory for the counters of campaigns, to add them up")
    group.addoption("--power-losses", type=int, default=300, help="power losses of each kind of victim")
    group.addoption("--raylets", type=int, default=200, help="raylets that are killed under their drivers")
    group.addoption("--damages", type=int, default=2000, help="files that are damaged")
    group.addoption("--fault-seed", type=int, default=2015, help="of kills and damage")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """The whole default suite runs in several processes; chosen tests, and those of other speeds, in this one.

    Those print what they measure, or take the machine for themselves.
    """
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and "not slow" in config.option.markexpr
    chosen = config.option.keyword or config.option.capture == "no"
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES) if whole and not chosen else 0


@pytest.fixture
def fault_seed(request: pytest.FixtureRequest) -> int:
    """Of the fault campaign."""
    return int(request.config.getoption("--fault-seed"))


@pytest.fixture
def plain_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that do not look at figures."""
    monkeypatch.setattr(Figure, "savefig", save_nothing)
    monkeypatch.setattr(FigureCanvasAgg, "draw", draw_nothing)


@pytest.fixture
def network() -> tuple[Couplings, np.ndarray]:
    return small_network(7)
