"""Parts as files: their names, checksums, listing, quarantine, and which of them to merge.

A part is called part-<UTC time>-<random>-<SHA-256 of its bytes>.parquet, so a flipped bit or a missing tail
is found before a byte is parsed. kising.sweep.store.parquet knows what the bytes mean.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from kising.errors import StoreError
from kising.sweep.store.atomic import TEMPORARY_PREFIX, atomic_write, explain, make_directory, sync_directory
from kising.sweep.store.directory import SweepDirectory

FAN_IN: Final = 8
"""Parts of one size class that are merged into one of the next: a row is rewritten about log_8 n times."""

FULL_PART: Final = 65_536
"""Rows from which a part is no longer merged: this bounds the memory that reading one takes."""

# Years up to 2999: after any stamp there is room for a later one.
_NAME: Final = re.compile(r"part-([12]\d{7}T\d{12}Z)-[0-9a-f]{8}-([0-9a-f]{32})\.parquet")
_STAMP: Final = "%Y%m%dT%H%M%S%fZ"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Damaged(NamedTuple):
    """A part that must not be read as data, and why."""

    name: str
    reason: str


class Listing(NamedTuple):
    """The names in parts/, sorted; temporary files are left out."""

    parts: list[str]
    strays: list[str]


class NotDataError(Exception):
    """The part must not be read as data; the message says why."""


class PartsChangedError(Exception):
    """A listed part is gone, as happens when another process compacts: list again."""


def checksum(data: bytes | memoryview) -> str:
    """Return the 32 hexadecimal digits of SHA-256 that a part of these bytes carries in its name."""
    return hashlib.sha256(data).hexdigest()[:32]


def parts_to_merge(rows: Mapping[str, int]) -> list[str]:
    """Choose the parts to merge next, given the rows of each; none if each size class has few enough.

    A class spans a factor of FAN_IN in rows, so a merged part is in a higher class than its inputs: at most
    FAN_IN - 1 parts of each class are left, and each row is rewritten once per class.
    """
    classes: dict[int, list[str]] = {}
    for name in sorted(rows):
        if rows[name] < FULL_PART:
            size = (max(rows[name], 1).bit_length() - 1) // (FAN_IN.bit_length() - 1)
            classes.setdefault(size, []).append(name)
    for _, names in sorted(classes.items()):
        if len(names) >= FAN_IN:
            chosen: list[str] = []
            for name in names[:FAN_IN]:
                if sum(rows[other] for other in chosen) < FULL_PART:
                    chosen.append(name)
            return chosen
    return []


class PartFiles:
    """The files in parts/ of one sweep's directory."""

    def __init__(self, directory: SweepDirectory) -> None:
        self.folder = directory.parts
        self._quarantine = directory.quarantine
        self._newest: int | None = None  # stamp

    def list(self) -> Listing:
        """List parts/."""
        parts, strays = [], []
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    # Only regular files are parts: a link or a pipe could lead anywhere.
                    if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                        parts.append(entry.name)
                    elif not entry.name.startswith(TEMPORARY_PREFIX):
                        strays.append(entry.name)
        except FileNotFoundError:
            return Listing([], [])
        except OSError as error:
            raise explain(error, "list the parts", self.folder) from error
        return Listing(sorted(parts), sorted(strays))

    def list_settled(self) -> Listing:
        """List parts/ while another process may be compacting.

        One listing can miss both a merged part and its inputs; two equal ones in a row missed nothing.
        """
        found = self.list()
        while (again := self.list()) != found:
            found = again
        return found

    def read(self, name: str) -> bytes:
        """Return the bytes of a part after checking their checksum."""
        path = self.folder / name
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise PartsChangedError(name) from error
        except OSError as error:
            if error.errno == errno.EIO:
                raise NotDataError("the disk reports an input/output error") from error
            raise explain(error, "read this part", path) from error
        match = _NAME.fullmatch(name)
        if match is None or checksum(data) != match[2]:
            raise NotDataError(f"its {len(data)} bytes do not have the checksum in its name")
        return data

    def next_stamp(self) -> int:
        """Return the time in microseconds since 1970, or just after the newest part if the clock went back."""
        if self._newest is None:
            self._newest = max(map(_stamp, self.list().parts), default=0)
        self._newest = max(time.time_ns() // 1000, self._newest + 1)
        return self._newest

    def publish(self, data: bytes | memoryview, stamp: int) -> Path:
        """Write a part, whole and durably, or not at all."""
        moment = (_EPOCH + timedelta(microseconds=stamp)).strftime(_STAMP)
        name = f"part-{moment}-{secrets.token_hex(4)}-{checksum(data)}.parquet"
        return atomic_write(self.folder / name, data)

    def remove(self, names: Iterable[str]) -> None:
        """Remove parts whose rows are in other parts too."""
        try:
            for name in names:
                (self.folder / name).unlink(missing_ok=True)
            sync_directory(self.folder)
        except OSError as error:
            raise explain(error, "remove merged parts", self.folder) from error

    def set_aside(self, part: Damaged) -> None:
        """Move a damaged part to quarantine/ with its reason.

        If the disk refuses, the part stays where it is, and is not read as data there either.
        """
        with suppress(StoreError, OSError):
            make_directory(self._quarantine)
            target = self._quarantine / part.name
            while target.exists():
                target = target.with_name(f"{part.name}.{secrets.token_hex(4)}")
            with suppress(StoreError):  # a full disk has room for a rename
                atomic_write(target.with_name(f"{target.name}.reason.txt"), f"{part.reason}\n".encode())
            os.replace(self.folder / part.name, target)
            sync_directory(self._quarantine)
            sync_directory(self.folder)


def _stamp(name: str) -> int:
    """Return the microseconds since 1970 in a part's name, 0 if they are not a date."""
    match = _NAME.fullmatch(name)
    with suppress(ValueError):
        if match:
            moment = datetime.strptime(match[1], _STAMP).replace(tzinfo=UTC)
            return (moment - _EPOCH) // timedelta(microseconds=1)
    return 0
