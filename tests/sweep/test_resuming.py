"""The command that resumes a sweep keeps what the directory alone does not know."""

from __future__ import annotations

from pathlib import Path

import pytest

from kising.sweep.resuming import flags_of, recorded_resume_command, resume_command
from kising.sweep.store.directory import SweepDirectory


@pytest.mark.parametrize(
    ("recorded", "flags"),
    [
        ("kising run a.yaml", ""),
        ("kising run a.yaml --cpus 3 --preset hour --retry-failed --page", ""),
        ("kising run a.yaml --mirror s3://b/p --cpus 3", " --mirror s3://b/p"),
        ("kising run --stale=keep --address auto a.yaml", " --address auto --stale keep"),
        ("kising run a.yaml --mirror '/my disk/copy'", " --mirror '/my disk/copy'"),
        ("kising run a.yaml --stale redo --stale keep", " --stale keep"),
        ("run_sweep", ""),
        ("it's no command line", ""),
    ],
)
def test_flags_are_taken_from_the_recorded_command(tmp_path: Path, recorded: str, flags: str) -> None:
    directory = SweepDirectory.create(tmp_path / "r")
    assert recorded_resume_command(directory) == f"kising run {directory.path}"
    directory.write_manifest(numerics=1, command=recorded)
    assert recorded_resume_command(directory) == f"kising run {directory.path}{flags}"


def test_a_command_says_itself_again() -> None:
    flags = {"--mirror": "gs://b/my results", "--address": "head:6379", "--stale": "redo"}
    command = resume_command(Path("my results"), flags)
    assert command == (
        "kising run 'my results' --address head:6379 --mirror 'gs://b/my results' --stale redo"
    )
    assert flags_of(command) == flags
    assert resume_command(Path("r"), {"--mirror": None, "--stale": None}) == "kising run r"
