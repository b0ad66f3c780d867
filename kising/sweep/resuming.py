"""The command that resumes a sweep where it ran, with the copies that it kept."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kising.sweep.store.directory import SweepDirectory

#: Flags of `kising run` without which the directory alone would be run elsewhere, without its copy, or be refused.
FLAGS: Final = ("--address", "--mirror", "--stale")


def resume_command(path: Path, flags: Mapping[str, str | None]) -> str:
    """The command that continues in a directory; flags that are None were not given."""
    given = [word for flag in FLAGS if (value := flags.get(flag)) is not None for word in (flag, value)]
    return shlex.join(["kising", "run", str(path), *given])


def recorded_resume_command(directory: SweepDirectory) -> str:
    """The same, with the flags of the last session."""
    return resume_command(directory.path, recorded_flags(directory))


def recorded_flags(directory: SweepDirectory) -> dict[str, str]:
    """The flags of the command that the manifest says the last session was started with."""
    manifest = directory.read_manifest()
    return flags_of(manifest.command) if manifest is not None else {}


def flags_of(command: str) -> dict[str, str]:
    """The flags in a command line that resuming needs; of one that is given twice, the last."""
    try:
        words = shlex.split(command)
    except ValueError:  # not a command line: whoever called `run` may have recorded anything
        return {}
    found = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        flag, equals, value = word.partition("=")
        if flag in FLAGS:
            found[flag] = value if equals else following
    return found
