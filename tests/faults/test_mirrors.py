"""Drivers and S3 servers are killed, machines are lost with their disks; what the bucket had is never run again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
from support.judging import ReferencedSweep, count_wrong
from support.s3_server import BUCKET, S3Server
from support.victims import SHORT

from kising.report.tables import derived
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.verify import verify

pytestmark = pytest.mark.skipif(
    find_spec("obstore") is None or find_spec("moto") is None, reason="needs obstore and moto[server]"
)
DRIVER = """
import functools, sys
import kising.run
from kising.cli import main
from kising.sweep.drive.conductor import Policy
from kising.sweep.store.mirror import copying
kising.run.Policy = functools.partial(Policy, commit_seconds=0.05)
copying.LOOK_SECONDS = 0.02
copying.RETRY_SECONDS = 0.1
main(sys.argv[1:])
"""


def wait_for_session(driver: subprocess.Popen[bytes], out: Path) -> None:
    """Wait until a driver has begun, or ended."""
    while driver.poll() is None:
        found = SweepDirectory(out).read_progress() if out.exists() else None
        if found is not None and found.pid == driver.pid:
            return
        time.sleep(0.02)


def campaign(
    place: Path, server: S3Server, seed: int, kills: int
) -> tuple[dict[str, int], ReferencedSweep, Path]:
    """Kill drivers and servers, lose disks, until enough was killed; then let the last driver finish."""
    sweep = ReferencedSweep(place / "sweep", SHORT["learn"].replace("realizations: 10", "realizations: 2"))
    generator = random.Random(seed)
    counts = {"drivers": 0, "servers": 0, "stopped servers": 0, "disks": 0}
    out, url = place / "out", f"s3://{BUCKET}/campaign-{seed}"
    environment = {**os.environ, **server.environment}
    while True:
        command = [sys.executable, "-c", DRIVER, "run", str(sweep.file), "--out", str(out), "--local-debug"]
        with (place / "errors").open("w+") as errors:
            driver = subprocess.Popen([*command, "--mirror", url], stderr=errors, env=environment)
            try:
                if counts["drivers"] >= kills:
                    driver.wait(600)
                if generator.random() < 0.7:  # however long it takes to start
                    wait_for_session(driver, out)
                driver.wait(generator.uniform(0.0, 5.0))
            except subprocess.TimeoutExpired:
                victim = generator.choice(("driver", "driver", "server", "stop"))
                if victim == "server":  # moto keeps nothing: the driver must copy everything again
                    server.kill()
                    server.start()
                    counts["servers"] += 1
                elif victim == "stop":
                    server.stop()
                    with suppress(subprocess.TimeoutExpired):
                        driver.wait(generator.uniform(0.5, 3.0))
                    server.go_on()
                    counts["stopped servers"] += 1
                driver.kill()
            status = driver.wait()
            errors.seek(0)
            text = errors.read()
        assert "Traceback" not in text, text
        if status == 0:
            return counts, sweep, out
        assert status == -signal.SIGKILL, text
        counts["drivers"] += 1
        # A server that was killed too had nothing to resume from: then losing the disk loses the work, not the truth.
        if generator.random() < 0.5:
            shutil.rmtree(out, ignore_errors=True)
            counts["disks"] += 1


@pytest.mark.slow
def test_a_sweep_survives_its_machines(
    tmp_path: Path, fault_seed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    server = S3Server()
    try:
        counts, sweep, out = campaign(tmp_path, server, fault_seed, kills=12)
        with capsys.disabled():
            print(f"\nmirrors: killed {counts}")
        assert count_wrong(pd.read_parquet(out / "runs.parquet"), sweep.reference) == 0
        assert verify(SweepDirectory(out), sweep.plan, derived).in_order
        shutil.rmtree(out)
        command = [sys.executable, "-c", DRIVER, "run", str(sweep.file), "--out", str(out), "--local-debug"]
        last = subprocess.run(
            [*command, "--mirror", f"s3://{BUCKET}/campaign-{fault_seed}"],
            env={**os.environ, **server.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert last.returncode == 0, last.stderr
        assert f"{sweep.plan.n_runs} of {sweep.plan.n_runs} runs are finished already" in last.stderr
        assert count_wrong(pd.read_parquet(out / "runs.parquet"), sweep.reference) == 0
    finally:
        server.kill()
