from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from kising.sweep.store import records as module
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.records import BatchProgress, Manifest, NodeProgress, Progress

PROGRESS = Progress(
    state="running",
    total=10,
    done=3,
    failed=1,
    running=2,
    rate=0.5,
    eta=None,
    workers=2,
    nodes={"here": NodeProgress(cores=4.0, busy=2, runs=2, finished=3, rate=0.5)},
    oldest=[BatchProgress(host="here", runs=2, seconds=3.5)],
    pid=1,
    host="here",
    updated=1.5,
)


class TestRecords:
    def test_progress_round_trip(self, tmp_path: Path) -> None:
        sweep = SweepDirectory(tmp_path)
        assert sweep.read_progress() is None
        sweep.write_progress(PROGRESS)
        assert sweep.read_progress() == PROGRESS

    def test_fields_of_a_newer_kising_are_ignored_and_missing_ones_are_not(self, tmp_path: Path) -> None:
        sweep = SweepDirectory(tmp_path)
        sweep.write_progress(PROGRESS)
        found = json.loads(sweep.progress_file.read_text())
        sweep.progress_file.write_text(json.dumps(found | {"mood": "fine"}))
        assert sweep.read_progress() == PROGRESS
        changes: list[object] = [found | {"done": "3"}, found | {"state": "odd"}, {"done": 3}, [], None]
        for changed in changes:
            sweep.progress_file.write_text(json.dumps(changed))
            assert sweep.read_progress() is None

    def test_a_garbled_manifest_is_no_manifest_and_never_an_error(self, tmp_path: Path) -> None:
        sweep = SweepDirectory(tmp_path)
        sweep.write_manifest(numerics=1, command="kising run x")
        good = sweep.manifest_file.read_bytes()
        generator = random.Random(5)
        for _ in range(200):
            data = bytearray(good)
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
            sweep.manifest_file.write_bytes(bytes(data[: generator.randrange(len(data) - 1)]))
            assert sweep.read_manifest() is None
            sweep.manifest_file.write_bytes(bytes(data))
            assert sweep.read_manifest() is None or isinstance(sweep.read_manifest(), Manifest)

    def test_manifest_says_what_ran_and_keeps_its_creation(self, tmp_path: Path) -> None:
        sweep = SweepDirectory(tmp_path)
        first = sweep.write_manifest(numerics=7, command="kising run x")
        assert first.numerics == 7
        assert {"kising", "numpy", "pyarrow"} <= set(first.packages)
        assert sweep.read_manifest() == first
        older = first.model_copy(update={"created": "long ago"})
        older.write(sweep.manifest_file, durable=False)
        assert sweep.write_manifest(numerics=8, command="again").created == "long ago"
        sweep.manifest_file.write_bytes(b"\x00\xff")
        assert sweep.write_manifest(numerics=8, command="again").created != "long ago"

    def test_commit_of_a_checkout(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        package = tmp_path / "kising" / "sweep" / "store"
        package.mkdir(parents=True)
        monkeypatch.setattr(module, "__file__", str(package / "records.py"))
        assert module._checkout_commit() is None
        git = [
            "git",
            "-C",
            str(tmp_path),
            "-c",
            "user.name=n",
            "-c",
            "user.email=e@example.org",
            "-c",
            "commit.gpgsign=false",
        ]
        (tmp_path / "file").write_text("1")
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "add", "file"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", "m"], check=True)
        head = subprocess.run(
            [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
        ).stdout.strip()
        assert module._checkout_commit() == head
        (tmp_path / "file").write_text("2")
        assert module._checkout_commit() == f"{head}-dirty"
        # Installed somewhere below a checkout of something else, kising has no commit.
        monkeypatch.setattr(
            module, "__file__", str(tmp_path / "venv" / "lib" / "kising" / "sweep" / "store" / "records.py")
        )
        (tmp_path / "venv" / "lib").mkdir(parents=True)
        assert module._checkout_commit() is None
