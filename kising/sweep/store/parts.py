"""Parts as files: their names, checksums, listing, quarantine, and which of them to merge.

A part is called part-<number>-<SHA-256 of its bytes>.parquet, so a flipped bit or a missing tail is found before a
byte is parsed. Numbers count up from 1, whatever the clock says. Older versions of kising put the UTC time and a random
number there: the number of such a part is its time in microseconds since 1970. kising.sweep.store.parquet knows what
the bytes mean.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from kising.errors import StoreError
from kising.sweep.store.atomic import atomic_write, explain, is_temporary, make_directory, sync_directory
from kising.sweep.store.directory import SweepDirectory

FAN_IN: Final = 8
"""Parts of one size class that are merged into one of the next: a row is rewritten about log_8 n times."""

FULL_PART: Final = 65_536
"""Rows from which a part is no longer merged: this bounds the memory that reading one takes."""

LAST_NUMBER: Final = 2**62
"""The largest number of a part: more commits than any disk holds."""

_NAME: Final = re.compile(r"part-(?:(\d{12,19})|([1-9]\d{7}T\d{12}Z)-[0-9a-f]{8})-([0-9a-f]{32})\.parquet")
_STAMP: Final = "%Y%m%dT%H%M%S%fZ"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Damaged(NamedTuple):
    """A part that must not be read as data, and why."""

    name: str
    reason: str


class Listing(NamedTuple):
    """The names in parts/: parts by their numbers, then all others; temporary files are left out."""

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
    for name in sorted(rows, key=_order):
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

    def list(self) -> Listing:
        """List parts/."""
        parts, strays = [], []
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    # Only regular files are parts: a link or a pipe could lead anywhere.
                    if number_of(entry.name) is not None and entry.is_file(follow_symlinks=False):
                        parts.append(entry.name)
                    elif not is_temporary(entry.name):
                        strays.append(entry.name)
        except FileNotFoundError:
            return Listing([], [])
        except OSError as error:
            raise explain(error, "list the parts", self.folder) from error
        return Listing(sorted(parts, key=_order), sorted(strays))

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
        check_bytes(name, data)
        return data

    def publish(self, data: bytes | memoryview, number: int) -> Path:
        """Write a part, whole and durably, or not at all."""
        return atomic_write(self.folder / f"part-{number:012d}-{checksum(data)}.parquet", data)

    def remove(self, names: Iterable[str]) -> None:
        """Remove parts whose rows are in other parts too."""
        try:
            for name in names:
                (self.folder / name).unlink(missing_ok=True)
            sync_directory(self.folder)
        except OSError as error:
            raise explain(error, "remove merged parts", self.folder) from error

    def quarantined(self) -> tuple[str, ...]:
        """The names of the parts that were set aside, sorted."""
        try:
            names = os.listdir(self._quarantine)
        except OSError:
            return ()
        return tuple(sorted(name for name in names if not name.endswith(".reason.txt")))

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


def check_bytes(name: str, data: bytes) -> None:
    """Raise NotDataError unless a part has the checksum that its name says."""
    match = _NAME.fullmatch(name)
    if match is None or checksum(data) != match[3]:
        raise NotDataError(f"its {len(data)} bytes do not have the checksum in its name")


def number_of(name: str) -> int | None:
    """The number of a part; None if this is not the name of a part."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    if match[1]:
        number = int(match[1])
        return number if number <= LAST_NUMBER else None
    with suppress(ValueError):
        moment = datetime.strptime(match[2], _STAMP).replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    return None


def is_numbered(name: str) -> bool:
    """Whether this part was written by a kising that keeps a log."""
    match = _NAME.fullmatch(name)
    return match is not None and match[1] is not None


def next_number(names: Iterable[str]) -> int:
    """The number of the next part, given the names of all others."""
    last = max(names, key=_order, default=None)
    number = 1 + (number_of(last) or 0 if last is not None else 0)
    if number > LAST_NUMBER:
        raise StoreError(
            f"{last}: no number is left after that of this part: kising did not write it; remove it"
        )
    return number


def _order(name: str) -> tuple[int, str]:
    return number_of(name) or 0, name
