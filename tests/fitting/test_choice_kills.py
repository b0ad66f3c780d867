"""Sweeps over folds on Ray whose driver is killed, twice: the third ends with what an undisturbed one would have made.

pytest -m slow tests/fitting/test_choice_kills.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from support.bits import assert_same_bits
from support.drivers import RayDriver

from kising import draw_couplings, run_sweep, simulate
from kising.cli import main
from kising.learning.selection import selection_spec
from kising.sweep.spec import dump_spec, parse_spec

pytestmark = pytest.mark.slow
HIDDEN, FOLDS, SEED = (0, 2, 3), 4, 3


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    visible = simulate(draw_couplings(10, 2, bias=0.3, seed=1), 6000, seed=2).visible
    np.save(tmp_path / "data.npy", visible)
    return tmp_path / "data.npy"


def kill_twice_and_finish(file: Path, out: Path, arguments: Sequence[str] = ()) -> None:
    killed = 0
    for seconds in (1.0, 3.0):
        with RayDriver(file, out, arguments=arguments) as driver:
            driver.wait_for_work()
            driver.wait(seconds)
            killed += driver.kill("driver")
    assert killed == 2
    with RayDriver(file, out, arguments=arguments) as driver:
        assert driver.end() == 0, driver.errors()


def test_a_sweep_over_folds(recording: Path, tmp_path: Path) -> None:
    spec = selection_spec(recording, HIDDEN, seed=SEED, folds=FOLDS)
    whole = run_sweep(spec, out=tmp_path / "whole", in_process=True).runs
    (tmp_path / "sweep.yaml").write_text(dump_spec(parse_spec(spec)))
    kill_twice_and_finish(tmp_path / "sweep.yaml", tmp_path / "out")
    assert_same_bits(pd.read_parquet(tmp_path / "out" / "runs.parquet"), whole)


def test_a_fit_that_chooses(recording: Path, tmp_path: Path) -> None:
    command = ["fit", str(recording), "--hidden", "0,2,3", "--folds", str(FOLDS), "--seed", str(SEED)]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    result = CliRunner().invoke(main, [*command, "--out", str(whole), "--local-debug"])
    assert result.exit_code == 0, result.output
    kill_twice_and_finish(recording, killed, [*command, "--out", str(killed), "--threads", "2"])
    runs = [pd.read_parquet(folder / "choice" / "runs.parquet") for folder in (whole, killed)]
    assert_same_bits(*runs)
    assert (whole / "edges.csv").read_bytes() == (killed / "edges.csv").read_bytes()
    with np.load(whole / "couplings.npz") as one, np.load(killed / "couplings.npz") as other:
        assert one.files == other.files
        for name in one.files:
            np.testing.assert_array_equal(one[name], other[name])
