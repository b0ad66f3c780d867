"""Sweeps with couplings M among hidden spins and with missing entries, whose driver is killed while it learns: the
next one goes on from a checkpoint, and the rows are those of a sweep that was left alone.

pytest -m slow tests/sweep/test_path_kills.py
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.bits import assert_same_bits
from support.drivers import PATIENCE, RayDriver, notes_of

from kising import draw_couplings, run_sweep, simulate

pytestmark = pytest.mark.slow

SIMULATED = """
name: simulated
seed: 11
realizations: 2
model: {visible: 8, hidden: 2, hidden_coupling: 1.0, bias: 0.3}
data: {length: 6000, missing: 0.1}
learner: {hidden_couplings: true, noise: 1.0e-6, max_iterations: 250}
keep: {couplings: true, trace: true}
resources: {checkpoint: 0.05}
"""
FOLDS = """
name: folds
seed: 11
model: {hidden: 2}
data: {file: data.npy, folds: 2}
learner: {noise: 1.0e-6, max_iterations: 250, hidden_couplings: true}
resources: {checkpoint: 0.05}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the prices of runs; kernels are compiled once for all tests."""
    usual = os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")
    monkeypatch.setenv("NUMBA_CACHE_DIR", os.environ.get("NUMBA_CACHE_DIR", str(usual)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def begun(out: Path) -> list[int]:
    """The iteration at which every run that was started began, in order; 0 where there was no checkpoint."""
    notes = notes_of(out)
    return [int(line.split()[1]) for line in notes.read_text().splitlines()] if notes.exists() else []


def wait_for_checkpoints(driver: RayDriver, out: Path, changes: int = 3) -> None:
    """Until checkpoints were written or replaced some times."""
    seen: set[tuple[str, int]] = set()
    end = time.monotonic() + PATIENCE
    while len(seen) < changes:
        assert driver.is_running, driver.errors()
        assert time.monotonic() < end, "no checkpoint"
        for file in (out / "checkpoints").glob("*"):
            try:
                seen.add((file.name, file.stat().st_mtime_ns))
            except FileNotFoundError:  # replaced just now
                continue
        time.sleep(0.01)


@pytest.mark.parametrize("text", [SIMULATED, FOLDS], ids=["simulated", "folds"])
def test_a_sweep_that_was_killed_while_learning(text: str, tmp_path: Path) -> None:
    visible = simulate(draw_couplings(8, 2, bias=0.3, hidden_coupling=1.0, seed=1), 12_000, seed=2).visible
    hidden = np.random.default_rng(3).random(visible.shape) < 0.1
    np.save(tmp_path / "data.npy", np.where(hidden, np.nan, visible))
    file, out = tmp_path / "sweep.yaml", tmp_path / "out"
    file.write_text(text)
    whole = run_sweep(file, out=tmp_path / "whole", in_process=True).runs
    assert set(whole["estimator"]) == {"gibbs"}
    before = 0
    for kill in range(2):
        with RayDriver(file, out) as driver:
            driver.wait_for_work()
            wait_for_checkpoints(driver, out)
            assert driver.kill("driver") == 1
        starts = begun(out)
        assert not (out / "runs.parquet").exists()
        assert any(starts[before:]) == (kill > 0)  # the second driver went on from a checkpoint
        before = len(starts)
    with RayDriver(file, out) as driver:
        assert driver.end() == 0, driver.errors()
    assert any(begun(out)[before:])
    assert_same_bits(pd.read_parquet(out / "runs.parquet"), whole)
