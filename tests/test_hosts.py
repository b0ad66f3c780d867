"""Sweeps over two or three real hosts that are killed or cut off. The reference is a local run, bit for bit."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from support.bits import assert_same_bits
from support.hosts import Lan, lan, unavailable
from support.nodes import TESTS
from support.waiting_work import allow

from kising import run_sweep
from kising.sweep.status import describe_status
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.records import Progress

pytestmark = [pytest.mark.hosts, pytest.mark.skipif(bool(why := unavailable()), reason=str(why))]
SWEEP = {
    "name": "hosts",
    "seed": 6,
    "realizations": 10,
    "model": {"visible": 8, "hidden": 6},
    "learner": {"max_iterations": 30, "tolerance": 1e-12, "estimator": "exact"},
    "axes": {"data.length": [6000, 8000]},
}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    return run_sweep(SWEEP, out=tmp_path_factory.mktemp("reference") / "r", in_process=True).runs


@pytest.fixture
def net() -> Iterator[Lan]:
    with lan() as net:
        (net.base / "sweep.yaml").write_text(json.dumps(SWEEP))
        allow_runs(net, 0)
        yield net


def allow_runs(net: Lan, realizations: int = SWEEP["realizations"]) -> None:
    """Let waiting runs start; until then hosts can be killed or cut off in the middle of a sweep."""
    allow(net.base / "limit", realizations)


def command(net: Lan, *more: str) -> list[str]:
    return [
        sys.executable,
        str(Path(TESTS) / "support" / "waiting_work.py"),
        str(net.base / "limit"),
        "run",
        "sweep.yaml",
        "--out",
        "out",
        "--address",
        net.address,
        *more,
    ]


def progress(net: Lan) -> Progress | None:
    return SweepDirectory(net.base / "out").read_progress()


def runs_on(net: Lan, name: str) -> int:
    """Runs in flight on a host."""
    now = progress(net)
    return now.nodes[name].runs if now is not None and name in now.nodes else 0


def given_up(net: Lan, name: str) -> bool:
    """Whether a host is gone, and its work with it."""
    now = progress(net)
    node = None if now is None else now.nodes.get(name)
    return now is not None and (node is None or (node.cores is None and not node.busy))


def until(condition: Callable[[], object], driver: subprocess.Popen[str], seconds: float = 120.0) -> None:
    """Wait for a condition while the driver runs."""
    end = time.monotonic() + seconds
    while not condition():
        assert driver.poll() is None, driver.communicate()
        assert time.monotonic() < end, "the condition was not met in time"
        time.sleep(0.05)


def results(net: Lan) -> pd.DataFrame:
    return pd.read_parquet(net.base / "out" / "runs.parquet")


def test_three_hosts_and_nobody_joins_without_the_token(net: Lan, reference: pd.DataFrame) -> None:
    head, _, third = net.cluster("alpha", "beta", "gamma")
    outsider = net.add("delta")
    outsider.start()
    with head.background(*command(net)) as driver:
        until(lambda: all(runs_on(net, name) for name in ("alpha", "beta", "gamma")), driver)
        status = list(describe_status(net.base / "out"))
        began = time.monotonic()
        refused = third.run(*command(net, "--out", "other"), RAY_AUTH_TOKEN="f" * 64)
        unaware = third.run(*command(net, "--out", "other"), RAY_AUTH_MODE="disabled", RAY_AUTH_TOKEN="")
        outside = outsider.run(*command(net, "--out", "other"))
        print(f"\nthree refusals took {time.monotonic() - began:.1f} s, starts of Python included")
        allow_runs(net)
        _, errors = driver.communicate(timeout=300)
    assert driver.returncode == 0, errors
    assert_same_bits(results(net), reference)
    assert set(results(net)["host"]) == {"alpha", "beta", "gamma"}
    for name in ("alpha", "beta", "gamma"):
        assert any(line.startswith(f"  {name}") and "1 of 1 cores in use" in line for line in status), status
    prefix = f"kising: cannot join the Ray cluster at {net.address}: "
    for child in (refused, unaware):
        assert (child.returncode, child.stderr.strip().count("\n")) == (1, 0)
        assert child.stderr.startswith(f"{prefix}it refused our token; set RAY_AUTH_MODE=token")
    assert outside.stderr.startswith(f"{prefix}this host is not part of it")


def test_a_host_is_killed_in_the_middle(net: Lan, reference: pd.DataFrame) -> None:
    head, second, _ = net.cluster("alpha", "beta", "gamma")
    with head.background(*command(net)) as driver:
        until(lambda: runs_on(net, "beta"), driver)
        second.kill()
        allow_runs(net)
        _, errors = driver.communicate(timeout=300)
    assert driver.returncode == 0, errors
    assert_same_bits(results(net), reference)


def test_a_link_is_cut_in_the_middle_and_healed(
    net: Lan, reference: pd.DataFrame, record_property: Callable[[str, object], None]
) -> None:
    head, second = net.cluster("alpha", "beta")
    with head.background(*command(net)) as driver:
        until(lambda: runs_on(net, "beta"), driver)
        second.cut()
        cut = time.monotonic()
        until(lambda: given_up(net, "beta"), driver)
        noticed = time.monotonic() - cut
        record_property("seconds until the cut link was noticed", noticed)
        print(f"\nthe cut link was noticed after {noticed:.1f} s")
        allow_runs(net)
        second.heal()  # and it may report its work as finished
        _, errors = driver.communicate(timeout=300)
    assert driver.returncode == 0, errors
    assert_same_bits(results(net), reference)
    assert results(net)["host"].value_counts()["alpha"] > 0


def test_a_head_that_is_cut_off_leaves_a_directory_that_resumes(net: Lan, reference: pd.DataFrame) -> None:
    head, second = net.cluster("alpha", "beta")
    with second.background(*command(net)) as driver:
        allow_runs(net, SWEEP["realizations"] // 2)
        until(lambda: (now := progress(net)) is not None and now.done, driver)
        head.cut()
        _, errors = driver.communicate(timeout=120)
    assert driver.returncode == 1
    assert "its head has not answered for 20 s; what is committed is safe" in errors
    assert "Traceback" not in errors
    results = run_sweep(SWEEP, out=net.base / "out", in_process=True)
    assert results.outcome.done < len(reference)
    assert_same_bits(results.runs, reference)
