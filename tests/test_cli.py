from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from kising.cli import main
from kising.sweep.store.directory import SweepDirectory

ROOT = Path(__file__).resolve().parents[1]
SWEEP = """\
name: tiny
seed: 5
realizations: 2
model: {visible: 5, hidden: 2}
learner: {estimator: exact, max_iterations: 20}
axes: {data.length: [200, 400]}
presets: {small: {realizations: 1}}
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def sweep(tmp_path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(SWEEP)
    return path


def kising(*words: object):
    return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture
def finished(sweep) -> Path:
    result = kising("run", sweep, "--local-debug")
    assert result.exit_code == 0, result.output
    return Path("results/tiny")


def test_run_prints_the_tables_and_names_the_files(sweep) -> None:
    result = kising("run", sweep, "--local-debug")
    assert result.exit_code == 0
    for words in (
        "runs that converged",
        "RMSE of the learned couplings",
        "slope of log RMSE on log T",
        "results/tiny/runs.parquet",
        "summary",
        "scaling",
    ):
        assert words in result.output
    for name in ("runs", "summary", "scaling"):
        assert len(pd.read_parquet(f"results/tiny/{name}.parquet"))


def test_run_in_a_directory_goes_on(finished) -> None:
    result = kising("run", finished, "--local-debug")
    assert result.exit_code == 0
    assert "4 of 4 runs are finished already" in result.output


def test_preset_and_set(sweep) -> None:
    kising("run", sweep, "--local-debug", "--preset", "small", "--set", "model.visible=4", "--out", "here")
    runs = pd.read_parquet("here/runs.parquet")
    assert len(runs) == 2
    assert set(runs["model.visible"]) == {4}


def test_plan_counts_what_is_done_and_starts_nothing(sweep) -> None:
    result = kising("plan", sweep)
    assert "2 points x 2 realizations = 4 runs" in result.output
    assert "nothing is done yet" in result.output
    assert "core-hours" in result.output
    assert not Path("results").exists()
    kising("run", sweep, "--local-debug", "--preset", "small")
    assert "2 of 2 runs are done in results/tiny-small" in kising("plan", sweep, "--preset", "small").output
    assert "nothing is done yet; results will go to results/tiny" in kising("plan", sweep).output
    kising("run", sweep, "--local-debug", "--set", "realizations=1")
    assert "2 of 4 runs are done in results/tiny" in kising("plan", sweep).output


def test_a_run_that_would_drop_finished_runs_is_refused(finished, sweep) -> None:
    result = kising("run", sweep, "--local-debug", "--set", "realizations=1")
    assert result.exit_code == 1
    assert "2 finished runs there would leave the tables" in result.output
    assert len(result.output.strip().splitlines()) == 1
    assert "finished, 4 of 4 runs done" in kising("status", finished).output
    assert kising("run", sweep, "--local-debug", "--set", "realizations=1", "--shrink").exit_code == 0
    assert len(pd.read_parquet(finished / "runs.parquet")) == 2


def test_plan_calibrates_this_machine(sweep) -> None:
    assert "never measured on this machine: learn exact random scaled" in kising("plan", sweep).output
    assert "never measured" not in kising("plan", sweep, "--calibrate").output
    assert "never measured" not in kising("plan", sweep).output


def test_status(finished) -> None:
    result = kising("status", finished)
    assert "finished, 4 of 4 runs done, 0 failed" in result.output
    os.unlink(finished / "progress.json")
    assert "4 of 4 runs done, not running" in kising("status", finished).output


def test_status_of_a_driver_that_was_killed(finished) -> None:
    progress = json.loads((finished / "progress.json").read_text())
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    progress |= {"state": "running", "done": 3, "pid": int(gone.stdout)}
    (finished / "progress.json").write_text(json.dumps(progress))
    result = kising("status", finished)
    # The rows that it has written count, not the last number that it told.
    assert "interrupted, 4 of 4 runs done" in result.output
    assert "to resume: kising run results/tiny" in result.output


def test_the_command_that_resumes_has_the_flags_of_this_one(sweep, tmp_path, monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("kising.sweep.task.perform", broken)
    flags = ["--mirror", str(tmp_path / "the copy"), "--stale", "keep"]
    result = kising("run", sweep, "--local-debug", "--fail-fast", "--set", "realizations=40", *flags)
    resume = f"kising run results/tiny --mirror '{tmp_path}/the copy' --stale keep"
    assert f"left; to resume: {resume}\n" in result.output
    assert f"failed; `{resume} --retry-failed` runs" in result.output


def test_verify_tells_by_its_exit_code(finished) -> None:
    assert kising("verify", finished).exit_code == 0
    (part,) = (finished / "parts").iterdir()
    part.write_bytes(part.read_bytes()[:-1])
    result = kising("verify", finished)
    assert result.exit_code == 1
    assert part.name in result.output


def test_report_writes_the_tables_anew(finished) -> None:
    (finished / "runs.parquet").unlink()
    result = kising("report", finished)
    assert result.exit_code == 0
    assert "RMSE of the learned" in result.output
    assert len(pd.read_parquet(finished / "runs.parquet")) == 4


def test_failed_runs_show_in_exit_code_and_words(sweep, monkeypatch) -> None:
    def never(run, threads, timeout, saved):
        raise ValueError("out of luck")

    monkeypatch.setattr("kising.sweep.task.perform", never)
    result = kising("run", sweep, "--local-debug")
    assert result.exit_code == 1
    assert "4 runs failed" in result.output
    assert "--retry-failed" in result.output
    runs = pd.read_parquet("results/tiny/runs.parquet")
    for output in (result.output, kising("status", "results/tiny").output):
        for row in runs.itertuples():
            place = (
                f"data.length={row[runs.columns.get_loc('data.length') + 1]}, realization {row.realization}"
            )
            assert f"failed: {row.run_id}, {place}: ValueError: out of luck" in output
    # Those of an earlier session are told of too, and those of a directory without progress.json.
    again = kising("run", sweep, "--local-debug", "--set", "realizations=3")
    assert "6 runs failed" in again.output
    status = kising("status", "results/tiny").output
    assert status.count("  failed: ") == 5
    assert "... and 1 more failed" in status
    os.unlink("results/tiny/progress.json")
    assert kising("status", "results/tiny").output.count("ValueError: out of luck") == 5


BAD = {
    "missing file": (["run", "nowhere.yaml"], 2, "nowhere.yaml"),
    "not a sweep's directory": (["run", "empty"], 1, "not a sweep's directory"),
    "status of nothing": (["status", "nowhere"], 1, "does not exist"),
    "verify of nothing": (["verify", "empty"], 1, "not a sweep's directory"),
    "unreadable yaml": (["run", "bad.yaml"], 2, "bad.yaml:2"),
    "unknown preset": (["run", "tiny.yaml", "--preset", "smal"], 2, "did you mean 'small'"),
    "unknown key set": (["run", "tiny.yaml", "--set", "model.visibel=3"], 2, "did you mean"),
    "output is a file": (["run", "tiny.yaml", "--out", "tiny.yaml"], 1, "is a file"),
    "no cluster there": (["run", "tiny.yaml", "--address", "127.0.0.1:1"], 1, "127.0.0.1:1"),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_get_one_clear_line(case: str, sweep, tmp_path) -> None:
    words, code, message = BAD[case]
    Path("empty").mkdir()
    Path("bad.yaml").write_text("name: x\n  seed: [1\n")
    result = kising(*words)
    assert result.exit_code == code, result.output
    assert message in result.output
    assert len(result.output.strip().splitlines()) == 1
    assert "Traceback" not in result.output


def test_two_drivers_on_one_directory(finished, sweep) -> None:
    with SweepDirectory(finished).lock("kising run"):
        result = kising("run", sweep, "--local-debug")
    assert result.exit_code == 1
    assert f"pid {os.getpid()}" in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_full_disk_is_one_line_and_loses_nothing(sweep, monkeypatch) -> None:
    import errno

    kising("run", sweep, "--local-debug", "--set", "realizations=1")
    with monkeypatch.context() as patch:

        def full(fd):
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr("os.fsync", full)
        result = kising("run", sweep, "--local-debug")
    assert result.exit_code == 1
    assert "no space left" in result.output
    assert "Traceback" not in result.output
    again = kising("run", sweep, "--local-debug")
    assert again.exit_code == 0
    assert "2 of 4 runs are finished already" in again.output


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["plan", "tiny.yaml"],
        ["status", "results/tiny"],
        ["status", str(ROOT / "docs" / "paper" / "data" / "fig5")],
    ],
)
def test_light_commands_load_nothing_heavy(words: list[str], finished) -> None:
    code = (
        "import sys\nfrom kising.cli import main\n"
        f"try: main({words!r})\nexcept SystemExit as e: assert not e.code, e.code\n"
        "print(sorted({'ray', 'numba', 'pandas', 'matplotlib', 'scipy'} & set(sys.modules)), file=sys.stderr)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stderr.strip() == "[]"
    assert answer.stdout


def test_every_shipped_sweep_is_valid_and_its_presets_too() -> None:
    from kising.sweep.spec import read_spec
    from kising.sweep.spec.loading import read_document

    files = sorted((ROOT / "sweeps").glob("*.yaml"))
    assert files
    for file in files:
        read_spec(file)
        for preset in read_document(file).value.get("presets", {}):
            read_spec(file, preset=preset)
