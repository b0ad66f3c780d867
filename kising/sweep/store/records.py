"""The small JSON files of a sweep's directory: driver.json, progress.json, manifest.json and tables.json."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import socket
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from kising.regular_files import read_regular
from kising.sweep.store.atomic import atomic_write
from kising.version import __version__

PACKAGES: Final = ("numpy", "numba", "ray", "pyarrow", "pandas")
"""Packages whose versions the manifest records."""


_CHECKSUM: Final = "sha256"

LARGEST: Final = 16_000_000
"""Bytes of a record that are read: ten thousand nodes in progress.json."""

Pid = Annotated[int, Field(ge=1, lt=2**31)]
"""What the operating system takes for a process."""


class _Record(BaseModel):
    """A small JSON file; unknown fields are ignored, a missing or mistyped one makes it unreadable."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the record; None when it is missing or garbled."""
        try:
            return cls.model_validate_json(read_regular(path, LARGEST))
        except (OSError, ValueError, RecursionError):
            return None

    def write(self, path: Path, *, durable: bool) -> None:
        """Replace the record on disk."""
        atomic_write(path, self.model_dump_json(indent=1).encode() + b"\n", durable=durable)


class LockHolder(_Record):
    """driver.json: who holds the lock of the directory."""

    pid: Pid
    host: str
    since: str
    command: str


State = Literal["starting", "running", "finishing", "finished", "interrupted", "failed"]
"""Of a session: starting has not begun to run anything, finishing writes the tables."""


class NodeProgress(_Record):
    """One host in progress.json."""

    cores: float | None  # None: it is gone
    busy: int  # cores
    runs: int  # in flight
    finished: int  # runs, in this session
    rate: float | None  # runs per second, recently


class RunProgress(_Record):
    """One run in progress.json."""

    run_id: str
    label: str  # the parameters that tell it apart
    error: str | None  # of a failed run


class BatchProgress(_Record):
    """Runs in flight together in progress.json."""

    host: str
    runs: int
    seconds: float  # since it started
    run: RunProgress | None = None  # at work, or just finished


class Progress(_Record):
    """progress.json: what `kising status` shows, replaced about once a second. Counts are of planned runs."""

    state: State
    total: int
    done: int
    failed: int
    running: int
    rate: float | None  # runs per second
    eta: float | None  # seconds
    workers: int
    nodes: dict[str, NodeProgress]  # by host
    oldest: list[BatchProgress]  # those longest in flight, oldest first
    failures: list[RunProgress] = []  # the first few failed runs
    pid: Pid
    host: str
    beat: int = 0  # grows with every update
    updated: float  # seconds since 1970, by the clock of that host


class _Checked(_Record):
    """A record that carries the SHA-256 of its other fields.

    Older versions of kising wrote none, and no fields that are unknown here.
    """

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the record; None when it is missing, garbled, or not as it was written."""
        try:
            found = json.loads(read_regular(path, LARGEST))
            digest = found.pop(_CHECKSUM, None)
            intact = (
                digest == _digest(found) if digest is not None else found.keys() <= cls.model_fields.keys()
            )
            return cls.model_validate(found) if intact else None
        except (OSError, ValueError, RecursionError, AttributeError, TypeError):
            return None

    def write(self, path: Path, *, durable: bool) -> None:
        """Replace the record on disk."""
        fields = self.model_dump()
        text = json.dumps(fields | {_CHECKSUM: _digest(fields)}, indent=1)
        atomic_write(path, text.encode() + b"\n", durable=durable)


class TableDigests(_Checked):
    """tables.json: the SHA-256 of every table, as the last session wrote it."""

    tables: dict[str, str]


class Manifest(_Checked):
    """manifest.json: what made the results. No result depends on it: every session rewrites it."""

    numerics: int
    python: str
    packages: dict[str, str]
    commit: str | None  # of a source checkout; ends in -dirty when files differ from it
    host: str
    cpus: int
    platform: str
    created: str
    updated: str
    command: str

    @classmethod
    def of_this_process(cls, *, numerics: int, command: str, created: str | None) -> Manifest:
        """Describe this process and machine; `created` is the date of an older manifest, if there is one."""
        return cls(
            numerics=numerics,
            python=platform.python_version(),
            packages=_package_versions(),
            commit=_checkout_commit(),
            host=socket.gethostname(),
            cpus=os.cpu_count() or 1,
            platform=platform.platform(),
            created=created or now(),
            updated=now(),
            command=command,
        )


def _digest(fields: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def now() -> str:
    """Return the time as records state it."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _package_versions() -> dict[str, str]:
    versions = {"kising": __version__}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _checkout_commit() -> str | None:
    """Return the commit of the source checkout that kising runs from, if it runs from one."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    with suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return answer.stdout.strip() or None
    return None
