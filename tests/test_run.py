"""Sweeps end to end: however a sweep is run, stopped and resumed, its rows are the same bits."""

from __future__ import annotations

import dataclasses
import io
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.bits import assert_same_bits

import kising.run
from kising import run_sweep
from kising.errors import ShrinkError, StaleError
from kising.learning.checkpoint import load
from kising.sweep.status import describe_plan
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.run_store import Store
from kising.version import NUMERICS

TINY = {
    "name": "tiny",
    "seed": 5,
    "realizations": 3,
    "model": {"visible": 6, "hidden": 2},
    "learner": {"max_iterations": 12},
    "axes": {"learner.estimator": ["exact", "bp"], "data.length": [200, 400]},
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def with_axes(**axes) -> dict:
    return {**TINY, "axes": {**TINY["axes"], **axes}}


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> pd.DataFrame:
    return run_sweep(TINY, out=tmp_path_factory.mktemp("reference") / "tiny", in_process=True).runs


def test_results_are_whole(reference, tmp_path) -> None:
    results = run_sweep(TINY, out=tmp_path / "r", in_process=True)
    assert len(results.runs) == 12
    assert (results.runs["status"] == "done").all()
    assert len(results.summary) == 4
    assert set(results.scaling["block"]) == {"J", "K", "L", "h", "b"}
    for name, frame in (("runs", results.runs), ("summary", results.summary), ("scaling", results.scaling)):
        stored = pd.read_parquet(tmp_path / "r" / f"{name}.parquet")
        assert list(stored.columns) == list(frame.columns)
        assert len(stored) == len(frame)
    assert_same_bits(results.runs, reference)


def test_results_print_on_one_screen_and_compare(reference, tmp_path) -> None:
    results = run_sweep(TINY, out=tmp_path / "r", in_process=True)
    text = repr(results)
    assert len(text.splitlines()) <= 3
    assert all(len(line) < 200 for line in text.splitlines())
    for words in (str(tmp_path / "r"), "12 runs (12 done)", f".summary: 4 x {results.summary.shape[1]}"):
        assert words in text
    assert results == results
    assert results == dataclasses.replace(results, runs=results.runs.copy())
    changed = results.runs.assign(iterations=results.runs["iterations"] + 1)
    for other in (
        dataclasses.replace(results, runs=changed),
        dataclasses.replace(results, scaling=results.scaling.iloc[1:]),
        dataclasses.replace(results, directory=tmp_path),
        "something else",
    ):
        assert results != other
    nothing = dataclasses.replace(results, runs=results.runs.iloc[:0])
    assert "0 runs (none yet)" in repr(nothing)


@pytest.mark.parametrize("cpus", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_ray_gives_the_same_bits_as_in_process(reference, tmp_path, cpus: int) -> None:
    assert_same_bits(run_sweep(TINY, out=tmp_path / "r", cpus=cpus).runs, reference)


def test_running_again_runs_nothing(reference, tmp_path) -> None:
    run_sweep(TINY, out=tmp_path / "r", in_process=True)
    before = sorted((tmp_path / "r" / "parts").iterdir())
    again = run_sweep(tmp_path / "r", in_process=True)
    assert again.outcome.done == 0
    assert sorted((tmp_path / "r" / "parts").iterdir()) == before
    assert_same_bits(again.runs, reference)


def test_growing_reuses_what_is_done(tmp_path) -> None:
    small = {**TINY, "realizations": 1, "axes": {"learner.estimator": ["exact"], "data.length": [200]}}
    assert run_sweep(small, out=tmp_path / "r", in_process=True).outcome.done == 1
    more = run_sweep({**small, "realizations": 3}, out=tmp_path / "r", in_process=True)
    assert more.outcome.done == 2
    longer = {**small, "realizations": 3, "axes": {**small["axes"], "data.length": [200, 400]}}
    grown = run_sweep(longer, out=tmp_path / "r", in_process=True)
    assert grown.outcome.done == 3
    assert_same_bits(grown.runs, run_sweep(longer, out=tmp_path / "fresh", in_process=True).runs)


def test_a_changed_fixed_parameter_is_another_point_and_orphans_are_said(tmp_path) -> None:
    run_sweep(TINY, out=tmp_path / "r", in_process=True)
    said: list[str] = []
    changed = {**TINY, "model": {"visible": 7, "hidden": 2}}
    spec, path = kising.run.locate(changed, tmp_path / "r")
    session = kising.run.Session(in_process=True, shrink=True, say=said.append)
    results = kising.run.run(spec, path, session)
    assert results.outcome.done == 12
    assert set(results.runs["model.visible"]) == {7}
    assert any("12 finished runs" in line and "not in this plan" in line for line in said)
    # The first sweep's runs are still there.
    assert run_sweep(TINY, out=tmp_path / "r", in_process=True, shrink=True).outcome.done == 0


def test_finished_runs_leave_the_tables_only_when_told(tmp_path) -> None:
    out, small = tmp_path / "r", {**TINY, "realizations": 1}
    run_sweep(TINY, out=out, in_process=True)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(
        ShrinkError, match="8 finished runs there would leave the tables: the sweep was edited"
    ):
        run_sweep(small, out=out, in_process=True)
    assert {path: path.read_bytes() for path in before} == before
    assert any("8 finished runs" in line and "--shrink" in line for line in _plan_lines(small, out))
    assert len(run_sweep(small, out=out, in_process=True, shrink=True).runs) == 4
    # What was left out on purpose is not asked about again, also not when the sweep grows.
    assert len(run_sweep(out, in_process=True).runs) == 4
    assert not any("--shrink" in line for line in _plan_lines(small, out))
    assert run_sweep({**TINY, "realizations": 2}, out=out, in_process=True).outcome.done == 0
    # A killed driver has written no tables; and somebody may edit the sweep.yaml of the directory.
    (out / "runs.parquet").unlink()
    with pytest.raises(ShrinkError, match="4 finished runs"):
        run_sweep(small, out=out, in_process=True)
    run_sweep(out, in_process=True)
    (out / "sweep.yaml").write_text(
        (out / "sweep.yaml").read_text().replace("realizations: 2", "realizations: 1")
    )
    with pytest.raises(ShrinkError, match="4 finished runs"):
        run_sweep(out, in_process=True)


def _plan_lines(mapping: dict, out: Path) -> list[str]:
    return list(describe_plan(kising.run.locate(mapping, out)[0], out))


@pytest.mark.parametrize(("preset", "folder"), [("quick", "tiny-quick"), ("a/b c", "tiny-a-b-c")])
def test_a_preset_has_a_directory_of_its_own(tmp_path, monkeypatch, preset: str, folder: str) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = {**TINY, "presets": {preset: {"realizations": 1}}}
    whole = run_sweep(sweep, in_process=True)
    quick = run_sweep(sweep, preset=preset, in_process=True)
    assert quick.directory == Path("results") / folder
    assert len(quick.runs) == 4
    assert len(pd.read_parquet(whole.directory / "runs.parquet")) == 12


def test_lengths_and_learners_share_network_and_data(tmp_path) -> None:
    # Were networks drawn anew, errors at one length would not go along with those at another. Without biases: with
    # them, and so few steps, approximate averages err too much for that.
    paper = {**TINY, "learner": {**TINY["learner"], "bias": False}}
    reference = run_sweep(paper, out=tmp_path / "r", in_process=True).runs
    wide = reference[reference["learner.estimator"] == "exact"]
    by_length = wide.pivot_table(index="realization", columns="data.length", values="rmse_J")
    assert by_length.shape == (3, 2)
    exact, bp = (reference[reference["learner.estimator"] == e].reset_index() for e in ("exact", "bp"))
    assert np.corrcoef(exact["rmse_J"], bp["rmse_J"])[0, 1] > 0.9


def fail_on(monkeypatch, *realizations: int) -> None:
    import kising.sweep.task as task

    real = task.perform

    def sometimes(run, threads, timeout, saved):
        if run.realization in realizations:
            raise ValueError("no luck\nwith this one")
        return real(run, threads, timeout, saved)

    monkeypatch.setattr(task, "perform", sometimes)


def test_failed_runs_are_kept_and_retried_only_when_told(monkeypatch, tmp_path, reference) -> None:
    with monkeypatch.context() as patch:
        fail_on(patch, 1)
        results = run_sweep(TINY, out=tmp_path / "r", in_process=True)
        failed = results.runs[results.runs["status"] == "failed"]
        assert len(failed) == 4
        assert set(failed["error"]) == {"ValueError: no luck with this one"}
        assert failed["traceback"].str.contains("sometimes").all()
        assert list(results.summary["failed"]) == [1, 1, 1, 1]
    assert run_sweep(TINY, out=tmp_path / "r", in_process=True).outcome.done == 0
    healed = run_sweep(TINY, out=tmp_path / "r", in_process=True, retry_failed=True)
    assert healed.outcome.done == 4
    assert_same_bits(healed.runs, reference)


def test_fail_fast_stops(monkeypatch, tmp_path) -> None:
    fail_on(monkeypatch, 0, 1, 2)
    results = run_sweep({**TINY, "realizations": 40}, out=tmp_path / "r", in_process=True, fail_fast=True)
    assert results.outcome.failed >= 1
    assert results.outcome.unfinished > 0


def test_rows_of_other_numerics_are_never_mixed_in_silently(monkeypatch, tmp_path, reference) -> None:
    old = 0
    with monkeypatch.context() as patch:
        patch.setattr("kising.sweep.task.NUMERICS", old)
        patch.setattr("kising.run.NUMERICS", old)
        run_sweep(TINY, out=tmp_path / "r", in_process=True)
    with pytest.raises(StaleError, match="12 finished runs were made by numerics version 0"):
        run_sweep(TINY, out=tmp_path / "r", in_process=True)
    kept = run_sweep(TINY, out=tmp_path / "r", in_process=True, stale="keep")
    assert set(kept.runs["numerics"]) == {old}
    redone = run_sweep(TINY, out=tmp_path / "r", in_process=True, stale="redo")
    assert redone.outcome.done == 12
    assert_same_bits(redone.runs, reference)


def test_runs_that_are_redone_and_fail_have_failed(monkeypatch, tmp_path, reference) -> None:
    """The older row, which was to be redone, is not shown as the result of the newer numerics."""
    with monkeypatch.context() as patch:
        patch.setattr("kising.sweep.task.NUMERICS", 0)
        patch.setattr("kising.run.NUMERICS", 0)
        run_sweep(TINY, out=tmp_path / "r", in_process=True)
    with monkeypatch.context() as patch:
        fail_on(patch, 1)
        redone = run_sweep(TINY, out=tmp_path / "r", in_process=True, stale="redo")
    assert set(redone.runs["numerics"]) == {NUMERICS}
    assert list(redone.summary["failed"]) == [1, 1, 1, 1]
    again = run_sweep(TINY, out=tmp_path / "r", in_process=True)  # nothing is stale
    assert (again.outcome.done, list(again.summary["failed"])) == (0, [1, 1, 1, 1])
    healed = run_sweep(TINY, out=tmp_path / "r", in_process=True, retry_failed=True)
    assert_same_bits(healed.runs, reference)


def test_kept_runs_of_other_numerics_are_not_run_again_for_artifacts(monkeypatch, tmp_path) -> None:
    # Their rows would change, which is what `stale="keep"` rules out.
    asking = {**TINY, "keep": {"trace": True, "realizations": 3}}
    with monkeypatch.context() as patch:
        patch.setattr("kising.sweep.task.NUMERICS", 0)
        patch.setattr("kising.run.NUMERICS", 0)
        run_sweep({**TINY, "realizations": 1}, out=tmp_path / "r", in_process=True)
    results = run_sweep(asking, out=tmp_path / "r", in_process=True, stale="keep")
    assert results.outcome.done == 8
    assert list(results.runs["numerics"]) == [0, NUMERICS, NUMERICS] * 4


def test_damaged_parts_are_set_aside_and_run_again(tmp_path, reference) -> None:
    run_sweep(TINY, out=tmp_path / "r", in_process=True)
    for part in (tmp_path / "r" / "parts").iterdir():
        data = bytearray(part.read_bytes())
        data[len(data) // 2] ^= 1
        part.write_bytes(data)
    results = run_sweep(TINY, out=tmp_path / "r", in_process=True)
    assert results.outcome.done == 12
    assert list((tmp_path / "r" / "quarantine").iterdir())
    assert_same_bits(results.runs, reference)


def test_results_of_a_mapping_go_below_results(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    results = run_sweep({**TINY, "realizations": 1}, in_process=True)
    assert results.directory == Path("results/tiny")
    assert (tmp_path / "results" / "tiny" / "sweep.yaml").is_file()
    assert (tmp_path / "results" / "tiny" / "manifest.json").is_file()


def test_results_are_loaded_without_running_anything(tmp_path, monkeypatch) -> None:
    sweep = {**TINY, "keep": {"couplings": True, "trace": True}}
    ran = run_sweep(sweep, out=tmp_path / "r", in_process=True)
    assert len(ran.couplings) == 4 * (6 * 6 + 6 * 2 + 2 * 6 + 6 + 2)
    assert ran.traces["run_id"].nunique() == 4
    for name in ("runs", "summary", "scaling", "couplings", "traces"):
        (tmp_path / "r" / f"{name}.parquet").unlink()
    before = sorted(path for path in tmp_path.rglob("*") if path.name != ".lock")
    loaded = kising.load_results(tmp_path / "r")
    assert sorted(path for path in tmp_path.rglob("*") if path.name != ".lock") == before
    assert loaded == dataclasses.replace(ran, outcome=None)
    assert "couplings: 272 x 9" in repr(loaded)
    # Also while a driver is at work, and of a sweep that has not finished anything.
    with SweepDirectory(tmp_path / "r").lock():
        assert kising.load_results(str(tmp_path / "r")) == dataclasses.replace(
            loaded, directory=tmp_path / "r"
        )
    for part in (tmp_path / "r" / "parts").iterdir():
        part.unlink()
    assert "0 runs (none yet)" in repr(kising.load_results(tmp_path / "r"))
    with pytest.raises(kising.KisingError, match="does not exist"):
        kising.load_results(tmp_path / "nowhere")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_in_terminals_and_notebooks(tmp_path, monkeypatch, capsys) -> None:
    sweep = {**TINY, "realizations": 1}
    run_sweep(sweep, out=tmp_path / "quiet", in_process=True)
    assert capsys.readouterr() == ("", "")
    run_sweep(sweep, out=tmp_path / "wanted", in_process=True, progress=True)
    assert "tiny: 4/4 runs" in capsys.readouterr().err
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", terminal)
        run_sweep(sweep, out=tmp_path / "terminal", in_process=True)
        assert "4/4 runs" in terminal.getvalue()
        terminal.truncate(0)
        run_sweep(sweep, out=tmp_path / "unwanted", in_process=True, progress=False)
        assert "runs" not in terminal.getvalue()


def test_progress_in_a_notebook_replaces_one_output(tmp_path, monkeypatch) -> None:
    class ZMQInteractiveShell:
        pass

    shown: list[object] = []

    class Handle:
        def update(self, what: object) -> None:
            shown[-1] = what

    def display(what: object, *, display_id: bool) -> Handle:
        assert display_id
        shown.append(what)
        return Handle()

    ipython, displays = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython, displays.display = ZMQInteractiveShell, display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    run_sweep({**TINY, "realizations": 1}, out=tmp_path / "r", in_process=True)
    (last,) = shown
    assert repr(last).startswith("tiny: 4/4 runs")
    assert '<progress value="4" max="4">' in last._repr_html_()


def start_command(out: Path, file: Path, *words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "kising.cli", "run", str(file), "--out", str(out), "--cpus", "2", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True, text=True,
    )  # fmt: skip


def committed(out: Path) -> int:
    if not (out / "parts").is_dir():
        return 0
    return len(Store.open(SweepDirectory(out), writable=False).scan().ids)


def test_ctrl_c_keeps_what_finished_and_says_how_to_go_on(tmp_path) -> None:
    file = tmp_path / "long.yaml"
    file.write_text(
        "name: long\nseed: 3\nrealizations: 200\nmodel: {visible: 12, hidden: 3}\n"
        "learner: {estimator: bp, max_iterations: 60}\ndata: {length: 2000}\n"
    )
    out = tmp_path / "r"
    with start_command(out, file) as driver:
        try:
            deadline = time.monotonic() + 120
            while committed(out) < 1 and driver.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            driver.send_signal(signal.SIGINT)
            _, errors = driver.communicate(timeout=120)
        finally:
            driver.kill()
    assert driver.returncode == 130
    assert f"to resume: kising run {out}" in errors
    assert "Traceback" not in errors
    runs = pd.read_parquet(out / "runs.parquet")
    assert 0 < len(runs) < 200
    assert len(runs) == committed(out)


LONG = """
name: long
seed: 3
realizations: 2
model: {visible: 10, hidden: 3}
data: {length: 6000}
learner: {estimator: bp, tolerance: 1e-14, max_iterations: 60}
resources: {checkpoint: 0.1}
"""


def test_a_long_run_that_was_killed_goes_on_from_its_checkpoint(tmp_path, monkeypatch) -> None:
    file, out = tmp_path / "long.yaml", tmp_path / "r"
    file.write_text(LONG)
    driver = start_command(out, file, "--local-debug")
    states = out / "checkpoints"
    deadline = time.monotonic() + 120
    while not (states.is_dir() and list(states.glob("*.state"))) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    driver.stderr.close()
    (saved, *_) = states.glob("*.state")
    assert committed(out) < 2

    begun: dict[str, int] = {}
    import kising.sweep.task as task

    real = task.perform

    def noted(run, threads, timeout, saved):
        begun[run.run_id] = load(saved).iteration if saved else 0
        return real(run, threads, timeout, saved)

    monkeypatch.setattr(task, "perform", noted)
    resumed = run_sweep(out, in_process=True)
    assert begun[saved.stem] > 0
    assert list(states.iterdir()) == []
    whole = run_sweep(file, out=tmp_path / "whole", in_process=True)
    assert set(whole.runs["iterations"]) == {60}
    assert_same_bits(resumed.runs, whole.runs)
