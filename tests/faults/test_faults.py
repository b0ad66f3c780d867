"""Faults besides kills: failing disks, signals, clocks, foreign files, two drivers."""

from __future__ import annotations

import ast
import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from support.children import python
from support.drivers import ForkingServer
from support.judging import count_wrong
from support.nodes import PATHS
from support.victims import SHORT

import kising
import kising.run
from kising import run_sweep
from kising.cli import main
from kising.errors import LockedError, StoreError
from kising.sweep.store.checkpoints import FORMAT
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.run_store import Store

TINY = {
    "name": "tiny",
    "seed": 5,
    "realizations": 2,
    "model": {"visible": 5, "hidden": 2},
    "learner": {"estimator": "exact", "max_iterations": 4},
    "axes": {"data.length": [100, 200]},
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    return run_sweep(TINY, out=tmp_path_factory.mktemp("reference") / "tiny", in_process=True).runs


def assert_whole(rows: pd.DataFrame, reference: pd.DataFrame) -> None:
    assert list(rows["run_id"]) == list(reference["run_id"])
    assert count_wrong(rows, reference) == 0


def finish(out: Path, reference: pd.DataFrame) -> None:
    """Run the same command again, and check the results."""
    assert_whole(run_sweep(TINY, out=out, in_process=True).runs, reference)
    assert SweepDirectory(out).temporaries() == []


class RefusingDisk:
    """Makes the operating system refuse the nth change of the disk and, if it `lasts`, all later ones."""

    def __init__(self, code: int, nth: int, *, lasts: bool) -> None:
        self.count = 0
        self._code, self._nth, self._lasts = code, nth, lasts

    def step(self) -> None:
        self.count += 1
        if self.count == self._nth or (self._lasts and self.count > self._nth > 0):
            raise OSError(self._code, os.strerror(self._code))

    def install(self, patch: pytest.MonkeyPatch) -> None:
        disk, real_open = self, os.open

        class Handle(io.BufferedWriter):
            def write(self, data: Any) -> int:
                disk.step()
                return super().write(data)

        def open_(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            if flags & os.O_CREAT:
                disk.step()
            return real_open(path, flags, *rest, **options)

        def before(real: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*arguments: Any, **options: Any) -> Any:
                disk.step()
                return real(*arguments, **options)

            return wrapped

        patch.setattr(os, "open", open_)
        patch.setattr(os, "fdopen", lambda descriptor, mode: Handle(io.FileIO(descriptor, mode)))
        for name in ("fsync", "replace", "mkdir"):
            patch.setattr(os, name, before(getattr(os, name)))


def refusal(out: Path) -> str | None:
    """Run a sweep, and return its message if it cannot go on."""
    try:
        run_sweep(TINY, out=out, in_process=True)
    except StoreError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("code", "lasts", "stride", "words"),
    [
        (errno.ENOSPC, False, 61, "no space left"),
        (errno.EROFS, True, 71, "read-only"),
        pytest.param(errno.ENOSPC, False, 1, "no space left", marks=pytest.mark.faults),
        pytest.param(errno.EROFS, True, 1, "read-only", marks=pytest.mark.faults),
    ],
)
@pytest.mark.slow
def test_a_disk_that_refuses_any_of_its_changes_loses_nothing(
    tmp_path: Path, reference: pd.DataFrame, code: int, lasts: bool, stride: int, words: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        counter = RefusingDisk(code, 0, lasts=False)
        counter.install(patch)
        run_sweep(TINY, out=tmp_path / "counted", in_process=True)
    assert counter.count > 30
    refused = 0
    for nth in range(1, counter.count + 1, stride):
        out = tmp_path / f"r{nth}"
        with pytest.MonkeyPatch.context() as patch:
            RefusingDisk(code, nth, lasts=lasts).install(patch)
            message = refusal(out)
        if message is not None:
            refused += 1
            assert words in message
            assert "\n" not in message
        finish(out, reference)
    # A sweep ignores the rest: the costs of runs, for the next plan.
    assert refused * stride > 0.7 * counter.count


@pytest.mark.parametrize("content", [None, b"\x00garbled{"])
def test_only_parts_are_trusted(tmp_path: Path, reference: pd.DataFrame, content: bytes | None) -> None:
    out = tmp_path / "r"
    run_sweep({**TINY, "realizations": 1}, out=out, in_process=True)
    for name in ("manifest.json", "progress.json", "driver.json", "runs.parquet", "sweep.yaml"):
        if content is None:
            (out / name).unlink(missing_ok=True)
        else:
            (out / name).write_bytes(content)
    finish(out, reference)
    manifest = SweepDirectory(out).read_manifest()
    assert manifest is not None
    assert manifest.packages["kising"] == kising.__version__
    assert CliRunner().invoke(main, ["verify", str(out)]).exit_code == 0


def test_foreign_files_among_the_parts_are_left_alone(tmp_path: Path, reference: pd.DataFrame) -> None:
    out = tmp_path / "r"
    run_sweep({**TINY, "realizations": 1}, out=out, in_process=True)
    (part,) = (out / "parts").iterdir()
    elsewhere = tmp_path / part.name
    os.rename(part, elsewhere)
    part.symlink_to(elsewhere)  # a link is not a part
    (out / "parts" / "notes.txt").write_text("mine")
    (out / "parts" / part.name.replace("part-0", "part-1")).mkdir()
    messages: list[str] = []
    spec, path = kising.run.locate(TINY, out)
    results = kising.run.run(spec, path, kising.run.Session(in_process=True, say=messages.append))
    assert results.outcome.done == 4
    assert_whole(results.runs, reference)
    assert sum("is not a part: left alone, not read" in line for line in messages) == 3
    assert (out / "parts" / "notes.txt").read_text() == "mine"
    assert elsewhere.exists()


def test_a_clock_that_jumps_back_changes_nothing(
    tmp_path: Path, reference: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_ns = time.time_ns
    readings = 0

    def backwards() -> int:
        """Every reading of the clock is an hour before the last."""
        nonlocal readings
        readings += 1
        return real_ns() - readings * 3600 * 10**9

    with monkeypatch.context() as patch:
        patch.setattr("kising.sweep.task.NUMERICS", 0)
        patch.setattr("kising.run.NUMERICS", 0)
        run_sweep(TINY, out=tmp_path / "r", in_process=True)
    monkeypatch.setattr(time, "time_ns", backwards)
    monkeypatch.setattr(time, "time", lambda: backwards() / 10**9)
    # The later rows, which are valid, are older by the clock than those they replace.
    results = run_sweep(TINY, out=tmp_path / "r", in_process=True, stale="redo")
    assert readings
    assert_whole(results.runs, reference)
    finish(tmp_path / "r", reference)


@pytest.fixture(scope="module")
def learn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ForkingServer, Path, pd.DataFrame]]:
    place = tmp_path_factory.mktemp("signals")
    file = place / "learn.yaml"
    file.write_text(SHORT["learn"].replace("realizations: 10", "realizations: 2"))
    whole = run_sweep(file, out=place / "whole", in_process=True).runs
    with ForkingServer([file]) as server:
        yield server, file, whole


@pytest.mark.parametrize(
    "numbers",
    [[signal.SIGINT], [signal.SIGTERM], [signal.SIGHUP], [signal.SIGINT, signal.SIGINT]],
    ids=["Ctrl-C", "SIGTERM", "SIGHUP", "Ctrl-C twice"],
)
def test_signals_stop_a_sweep_and_it_resumes(
    learn: tuple[ForkingServer, Path, pd.DataFrame], tmp_path: Path, numbers: list[signal.Signals]
) -> None:
    server, file, whole = learn
    out = tmp_path / "r"
    signals = [(0.1 + 0.1 * place, int(number)) for place, number in enumerate(numbers)]
    status, sent = server.run_driver(file, out, signals=signals, at_work=True)
    assert sent
    assert os.waitstatus_to_exitcode(status) == 128 + numbers[0]
    errors = server.errors(out)
    assert f"stopped by {numbers[0].name} with" in errors
    assert f"to resume: kising run {out}" in errors
    assert "Traceback" not in errors
    table = pd.read_parquet(out / "runs.parquet")
    held = Store.open(SweepDirectory(out), writable=False).scan().ids.size
    assert len(table) == held < len(whole)
    progress = SweepDirectory(out).read_progress()
    assert progress is not None
    assert progress.state == "interrupted"
    status, _ = server.run_driver(file, out)
    assert status == 0, server.errors(out)
    assert_whole(pd.read_parquet(out / "runs.parquet"), whole)


@contextmanager
def holder(path: Path, prelude: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of a directory."""
    code = f"""
        import sys
        from pathlib import Path
        {prelude}
        from kising.sweep.store.directory import SweepDirectory
        with SweepDirectory.create(Path({str(path)!r})).lock("kising run"):
            print("held", flush=True)
            sys.stdin.read()
    """
    with python(code) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        yield child


def test_a_second_driver_on_another_host_is_refused_by_name(tmp_path: Path, reference: pd.DataFrame) -> None:
    out = tmp_path / "r"
    with holder(out, "import socket; socket.gethostname = lambda: 'node17'") as child:
        with pytest.raises(LockedError, match=rf"pid {child.pid} on node17 has been running it since"):
            run_sweep(TINY, out=out, in_process=True)
        assert not (out / "parts").exists()
    finish(out, reference)


def test_a_file_system_without_flock_still_has_one_driver(
    tmp_path: Path, reference: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def missing(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", missing)
    out = tmp_path / "r"
    prelude = "import errno, fcntl; exec('def missing(*a): raise OSError(errno.ENOSYS, \"no\")'); fcntl.flock = missing"
    with holder(out, prelude) as child:
        with pytest.raises(LockedError, match=f"pid {child.pid} "):
            run_sweep(TINY, out=out, in_process=True)
        child.kill()
        child.wait()
        finish(out, reference)  # its holder is dead; nothing has to be cleaned up


def test_a_driver_whose_lock_was_removed_stops(
    tmp_path: Path, reference: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    import kising.sweep.task as task

    real = task.perform

    def remove_lock(run: Any, *rest: Any) -> Any:
        (tmp_path / "r" / ".lock").unlink(missing_ok=True)
        return real(run, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(task, "perform", remove_lock)
        with pytest.raises(LockedError, match="removed or replaced"):
            run_sweep(TINY, out=tmp_path / "r", in_process=True)
    assert not list((tmp_path / "r" / "parts").iterdir())
    finish(tmp_path / "r", reference)


def test_a_checkpoint_from_elsewhere_is_not_trusted(tmp_path: Path, reference: pd.DataFrame) -> None:
    out = tmp_path / "r"
    states = out / "checkpoints"
    states.mkdir(parents=True)
    for number, run_id in enumerate(reference["run_id"]):
        header = json.dumps(
            {"format": FORMAT, "run_id": run_id, "numerics": 1, "seconds": 1.0, "cpu_seconds": 1.0}
        )
        (states / f"{run_id}.state").write_bytes(b"0" * 64 + b"\n" + header.encode() + b"\n" + b"x" * number)
    messages: list[str] = []
    spec, path = kising.run.locate(TINY, out)
    results = kising.run.run(spec, path, kising.run.Session(in_process=True, say=messages.append))
    assert sum("starts over" in line for line in messages) == 4
    assert_whole(results.runs, reference)
    assert list(states.iterdir()) == []


OUT_OF_MEMORY = """
    from support import sample_work
    from kising.sweep.drive.conductor import conduct
    from kising.sweep.execute.ray_cluster import RayCluster
    from kising.sweep.execute.ray_executor import RayExecutor
    from kising.sweep.execute.protocol import Need

    executor = RayExecutor(sample_work.work, RayCluster.start(cpus=1))
    source, rows = [sample_work.FakeRun(n, "hog" if n == 1 else "square") for n in range(3)], []
    conduct(source, executor, rows.extend, cost=lambda run: 1.0, need=lambda run: Need(), total=len(source))
    executor.close()
    for row in sorted(rows, key=lambda row: row["run_id"]):
        print(row["status"], row.get("error"))
"""


@pytest.mark.faults
def test_a_run_that_takes_all_memory_fails_alone_and_says_how_much() -> None:
    found = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free, total = (int(found[name].split()[0]) for name in ("MemAvailable", "MemTotal"))
    if free < 6_000_000:
        pytest.skip("this test fills 4 GB")
    environment = {
        **os.environ,
        "PYTHONPATH": PATHS,
        "RAY_memory_usage_threshold": f"{1 - (free - 4_000_000) / total:.4f}",
        "RAY_memory_monitor_refresh_ms": "100",
    }
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(OUT_OF_MEMORY)],
        capture_output=True,
        text=True,
        env=environment,
    )
    first, second, third = child.stdout.splitlines()
    assert (first, third) == ("done None", "done None")
    assert re.fullmatch(
        r"failed out of memory 3 times, the last time at [\d.]+ ?GB; it asks for no memory: set resources.memory",
        second,
    )


def test_nothing_on_disk_can_run_code() -> None:
    """Batches are unpickled in workers, from Ray's own connections. Files are read by loaders that cannot run code."""
    package = Path(kising.__file__).parent
    unpickled, loads = set(), []
    for file in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name.partition(".")[0] for alias in node.names}
                names.add((getattr(node, "module", None) or "").partition(".")[0])
                assert not {"marshal", "shelve", "dill", "joblib", "Unpickler", "loads"} & names, file
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            called = f"{ast.unparse(node.func.value)}.{node.func.attr}"
            forbidden = {"pickle.load", "pickle.Unpickler", "pd.read_pickle"}
            forbidden |= {"yaml.load", "yaml.unsafe_load", "yaml.full_load"}
            assert called not in forbidden, file
            if called == "pickle.loads":
                unpickled.add(str(file.relative_to(package)))
            if called in {"np.load", "numpy.load"}:
                loads.append({keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords})
    assert unpickled == {"sweep/execute/worker.py"}
    assert loads
    assert all(options.get("allow_pickle") == "False" for options in loads)
