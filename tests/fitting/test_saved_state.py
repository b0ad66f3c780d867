from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kising import draw_couplings, fit, simulate
from kising.blocks import BLOCKS
from kising.cli import main
from kising.fitting.saved_state import SavedState, identity
from kising.learning.checkpoint import save
from kising.learning.session import Session
from kising.recordings import as_segments

pytestmark = pytest.mark.usefixtures("plain_figures")

# The command with slow iterations, each of which prints a line, and checkpoints as often as EVERY says, in seconds.
SLOW = """
import os, sys, time
import kising.fitting.saved_state as saved
from kising.cli import main
saved.SECONDS = float(os.environ["EVERY"])
observe = saved.SavedState.observe
def slowly(self, state):
    observe(self, state)
    print("iteration", flush=True)
    time.sleep(0.05)
saved.SavedState.observe = slowly
sys.argv = ["kising", *sys.argv[1:]]
main()
"""
METHODS = {
    "exact": ["--tolerance", "1e-12", "--max-iterations", "60", "--estimator", "exact"],
    "gibbs": ["--noise", "1e-6", "--max-iterations", "60", "--estimator", "gibbs"],
    "paths": ["--noise", "1e-6", "--max-iterations", "60", "--hidden-couplings"],
}
OPTIONS = {
    "exact": {"tolerance": 1e-12, "max_iterations": 60, "estimator": "exact"},
    "gibbs": {"noise": 1e-6, "max_iterations": 60, "estimator": "gibbs"},
    "paths": {"noise": 1e-6, "max_iterations": 60, "hidden_couplings": True},
}


@pytest.fixture(scope="module")
def visible() -> np.ndarray:
    return simulate(draw_couplings(6, 2, seed=1), 1000, seed=2).visible


def start(recording: Path, method: str, every: float = 0.0) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-c",
        SLOW,
        "fit",
        str(recording),
        "--hidden",
        "2",
        "--seed",
        "3",
        *METHODS[method],
    ]
    pipe = subprocess.PIPE
    env = {**os.environ, "EVERY": str(every)}
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env)


def wait_for_checkpoint(folder: Path, child: subprocess.Popen[str], replaced: int = 5) -> None:
    """Until the checkpoint was replaced some times."""
    seen: set[int] = set()
    deadline = time.monotonic() + 120
    while len(seen) < replaced and time.monotonic() < deadline:
        assert child.poll() is None, child.communicate()
        if (folder / "checkpoint").exists():
            seen.add((folder / "checkpoint").stat().st_mtime_ns)
        time.sleep(0.01)


def check_result(folder: Path, visible: np.ndarray, method: str) -> None:
    expected = fit(visible, 2, seed=3, errors=True, **OPTIONS[method])
    with np.load(folder / "couplings.npz") as found:
        for name in BLOCKS:
            np.testing.assert_array_equal(found[name], getattr(expected.couplings, name))
        np.testing.assert_array_equal(found["J_error"], expected.standard_error.J)
        np.testing.assert_array_equal(found["trace_log_likelihood"], expected.trace.log_likelihood)
    assert not (folder / "checkpoint").exists()


@pytest.fixture(scope="module")
def gaps(visible: np.ndarray) -> np.ndarray:
    """The recording with one entry in ten missing."""
    return np.where(np.random.default_rng(4).random(visible.shape) < 0.1, np.nan, visible)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.slow
def test_the_same_command_goes_on_after_a_kill_bit_for_bit(method, visible, gaps, tmp_path) -> None:
    recording, folder = tmp_path / "data.npy", tmp_path / "data.fit"
    visible = gaps if method == "paths" else visible
    np.save(recording, visible)
    for _ in range(2):
        child = start(recording, method)
        wait_for_checkpoint(folder, child)
        child.kill()
        child.communicate()
        assert not (folder / "fit.json").exists()
    child = start(recording, method)
    _, remarks = child.communicate(timeout=120)
    assert child.returncode == 1  # these fits never converge
    assert "resuming from the checkpoint: fit, iteration " in remarks
    check_result(folder, visible, method)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_signal_saves_and_tells_how_to_go_on(number, code, visible, tmp_path) -> None:
    recording, folder = tmp_path / "data.npy", tmp_path / "data.fit"
    np.save(recording, visible)
    child = start(recording, "exact", every=1000.0)
    for _ in range(3):
        assert child.stdout.readline() == "iteration\n"
    assert not (folder / "checkpoint").exists()
    os.kill(child.pid, number)
    _, remarks = child.communicate(timeout=60)
    assert child.returncode == code
    assert f"stopped by {signal.Signals(number).name} after iteration " in remarks
    assert f"to resume: kising fit {recording} --hidden 2 --seed 3" in remarks
    assert "Traceback" not in remarks
    child = start(recording, "exact")
    printed, remarks = child.communicate(timeout=120)
    assert "resuming from the checkpoint" in remarks
    assert 0 < printed.count("iteration\n") < 60
    check_result(folder, visible, "exact")


class Killed(BaseException):
    """In the place of a kill: nothing of ours catches it."""


def fit_command(recording: Path, *options: str):
    command = ["fit", str(recording), "--hidden", "2", "--seed", "3", "--max-iterations", "40", *options]
    return CliRunner().invoke(main, command)


def raise_killed(*_: object, **__: object) -> None:
    raise Killed


def test_a_checkpoint_of_another_fit_is_ignored_with_a_line(visible, tmp_path, monkeypatch) -> None:
    recording = tmp_path / "data.npy"
    np.save(recording, visible)
    with monkeypatch.context() as patch:
        patch.setattr("kising.learning.session.standard_errors", raise_killed)
        with pytest.raises(Killed):
            fit_command(recording, "--prior", "3")
    again = fit_command(recording)
    assert (
        "the checkpoint is of other data, options or another version: learning starts again" in again.stderr
    )
    with np.load(tmp_path / "data.fit" / "couplings.npz") as found:
        np.testing.assert_array_equal(found["J"], fit(visible, 2, seed=3, max_iterations=40).couplings.J)


def test_a_kill_during_the_standard_errors_costs_no_learning(visible, tmp_path, monkeypatch) -> None:
    recording = tmp_path / "data.npy"
    np.save(recording, visible)
    with monkeypatch.context() as patch:
        patch.setattr("kising.learning.session.standard_errors", raise_killed)
        with pytest.raises(Killed):
            fit_command(recording)
    with monkeypatch.context() as patch:
        patch.setattr("kising.learning.session.Session.advance", raise_killed)
        again = fit_command(recording)
    assert "resuming from the checkpoint: fit, iteration " in again.stderr
    expected = fit(visible, 2, seed=3, max_iterations=40, errors=True)
    with np.load(tmp_path / "data.fit" / "couplings.npz") as found:
        np.testing.assert_array_equal(found["J_error"], expected.standard_error.J)


def test_a_fit_that_crawled_is_resumed_too(visible, tmp_path, monkeypatch) -> None:
    recording = tmp_path / "data.npy"
    np.save(recording, visible)
    crawling = ("--estimator", "bp", "--tolerance", "1e-300", "--max-iterations", "400")
    with monkeypatch.context() as patch:
        patch.setattr("kising.learning.session.standard_errors", raise_killed)
        with pytest.raises(Killed):
            fit_command(recording, *crawling)
    with monkeypatch.context() as patch:
        patch.setattr("kising.learning.session.Session.advance", raise_killed)
        again = fit_command(recording, *crawling)
    assert again.exit_code == 1, again.stderr
    assert "resuming from the checkpoint: fit, iteration " in again.stderr
    assert "more iterations would not help" in again.stdout
    assert (tmp_path / "data.fit" / "fit.json").exists()


def test_pilots_are_not_made_twice(visible, tmp_path, monkeypatch) -> None:
    recording = tmp_path / "data.npy"
    np.save(recording, visible)
    expected = fit(visible, 2, seed=3, max_iterations=40, starts=2)
    real = Session.advance

    def killed_later(session, state):
        # Pilots have fewer slices or iterations; learning itself is killed in its third iteration.
        if session.learner.starts == 2 and session.given_start is None and state.iteration == 2:
            raise Killed
        return real(session, state)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "advance", killed_later)
        with pytest.raises(Killed):
            fit_command(recording, "--starts", "2")
    with monkeypatch.context() as patch:
        patch.setattr("kising.learning.session.likeliest_start", raise_killed)
        fit_command(recording, "--starts", "2")
    with np.load(tmp_path / "data.fit" / "couplings.npz") as found:
        np.testing.assert_array_equal(found["J"], expected.couplings.J)


def damaged(found: bytes, kind: str) -> bytes:
    if kind == "bit":
        return found[:-200] + bytes([found[-200] ^ 1]) + found[-199:]
    return {"cut": found[: len(found) // 2], "empty": b"", "nested": b"[" * 100_000, "text": b"{}\nx"}[kind]


@pytest.mark.parametrize("kind", ["bit", "cut", "empty", "nested", "text"])
def test_a_damaged_checkpoint_is_ignored_with_a_line(kind, visible, tmp_path) -> None:
    lines: list[str] = []
    state = fit(visible, 1, seed=3).state
    saved = SavedState(tmp_path / "checkpoint", "mine", lines.append)
    assert saved.load() is None
    assert not lines
    saved.save(state)
    back = saved.load()
    assert back is not None
    assert save(back) == save(state)
    assert SavedState(tmp_path / "checkpoint", "other", lines.append).load() is None
    assert "other data" in lines.pop()
    path = tmp_path / "checkpoint"
    path.write_bytes(damaged(path.read_bytes(), kind))
    assert saved.load() is None
    assert lines == ["the checkpoint is damaged: learning starts again"]


def test_states_are_saved_when_due_and_at_the_end(visible, tmp_path) -> None:
    now = [0.0]
    saved = SavedState(tmp_path / "checkpoint", "mine", print, seconds=30.0, clock=lambda: now[0])
    ended = fit(visible, 1, seed=3).state
    running = fit(visible, 1, seed=3, max_iterations=2).state
    object.__setattr__(running, "outcome", "running")
    saved.observe(running)
    assert not saved.path.exists()
    now[0] = 31.0
    saved.observe(running)
    assert saved.path.exists()
    saved.remove()
    saved.observe(running)
    assert not saved.path.exists()
    saved.observe(ended)
    assert saved.path.exists()


def test_the_identity_depends_on_all_that_a_fit_depends_on(visible) -> None:
    from kising.fitting.saved_state import data_hash

    one, other = as_segments(visible), as_segments(-visible)
    apart = as_segments([visible[:500], visible[500:]])
    inputs = as_segments(visible, covariates=np.arange(len(visible)) * 1.0)
    assert len({data_hash(x) for x in (one, other, apart, inputs)}) == 4
    args = [
        ("a", 1, 1, {"l1": 0.0}),
        ("b", 1, 1, {"l1": 0.0}),
        ("a", 2, 1, {"l1": 0.0}),
        ("a", 1, 2, {"l1": 0.0}),
    ]
    assert len({identity(*each) for each in [*args, ("a", 1, 1, {"l1": 1.0})]}) == 5
