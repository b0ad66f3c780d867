"""The log of committed parts, parts.log, by which missing parts are noticed.

One line per event, appended; the whole log is rewritten where it is not whole, and when it has grown long:

    <first 16 digits of the SHA-256 of the rest> <number of the line> <event> <part> <rows in it>

A part is written before its line, and its last line before it is removed. So after a kill a part may lack its line,
but a part that is in the log and not in parts/ was removed by another program. A kill in the middle of a line leaves
a torn end, which the next driver cuts off. Any other line without its checksum is damage: what the other lines say
stays, and the parts in parts/ are added again. Only the driver writes here, under the lock of the directory.
"""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from kising.atomic import append, atomic_write, explain
from kising.regular_files import read_regular

Event = Literal["commit", "merged", "aside", "lost"]
"""commit: it holds rows that count. merged: they are in a later part. aside: it was moved to quarantine/. lost: it had
vanished, and the driver knows."""

LogState = Literal["whole", "torn", "damaged", "missing"]

LONGEST: Final = 10_000
"""Lines after which the log is rewritten, without the parts that are gone: reading it takes milliseconds."""

_NOT_A_FILE: Final = {errno.EINVAL, errno.EISDIR, errno.ENXIO, errno.ELOOP, errno.EIO}
_LINE: Final = re.compile(rb"([0-9a-f]{16}) (\d{1,15}) (commit|merged|aside|lost) (\S{1,200}) (\d{1,15})")


class Entry(NamedTuple):
    """One line."""

    event: Event
    name: str
    rows: int


class LogView(NamedTuple):
    """The content of the log."""

    rows: Mapping[str, int]
    """of the parts that are there, by name"""
    known: frozenset[str]
    """every part that it names, gone ones too"""
    lines: int
    state: LogState
    """torn: a kill cut its last line short"""


def view(data: bytes | None) -> LogView:
    """Read the bytes of a log; None: there is none."""
    if data is None:
        return LogView({}, frozenset(), 0, "missing")
    *lines, tail = data.split(b"\n")
    rows: dict[str, int] = {}
    known: set[str] = set()
    damaged = False
    for number, line in enumerate(lines):
        match = _LINE.fullmatch(line)
        if match is None or match[1] != _sum(line[17:]):
            damaged = True
            continue
        damaged |= int(match[2]) != number  # a line is missing, or there twice
        name = match[4].decode("ascii", "replace")
        known.add(name)
        if match[3] == b"commit":
            rows[name] = int(match[5])
        else:
            rows.pop(name, None)
    state: LogState = "damaged" if damaged else "torn" if tail else "whole"
    return LogView(rows, frozenset(known), len(lines), state)


def read_bytes(path: Path) -> bytes | None:
    """The bytes of a log; None if there is none."""
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            return b"?\n"  # damaged: the next driver puts a log in its place
        raise explain(error, "read the log of parts", path) from error


class PartLog:
    """The log as its driver sees it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loaded = False
        self._rows: dict[str, int] = {}
        self._known: set[str] = set()
        self._lines = 0
        self._size = -1  # of the file, in bytes; -1: write it anew

    def view(self) -> LogView:
        """What the file says when this is first called; later on, what was noted, whatever became of the file."""
        if self._loaded:
            state: LogState = "whole" if self._size >= 0 else "damaged"
            return LogView(dict(self._rows), frozenset(self._known), self._lines, state)
        data = read_bytes(self._path)
        found = view(data)
        self._loaded = True
        self._rows, self._lines, self._known = dict(found.rows), found.lines, set(found.known)
        # One that is not whole is written anew with the next event.
        self._size = len(data) if data is not None and found.state == "whole" else -1
        return found

    def note(self, entries: Sequence[Entry]) -> None:
        """Append a line per entry, durably. If the disk refuses, they are written with the next ones."""
        self.view()
        for event, name, rows in entries:
            self._known.add(name)
            if event == "commit":
                self._rows[name] = rows
            else:
                self._rows.pop(name, None)
        if self._size < 0 or self._lines >= LONGEST:
            self._write_anew()
        elif entries:
            text = b"".join(_line(self._lines + i, entry) for i, entry in enumerate(entries))
            size, self._size = self._size, -1
            if append(self._path, text, size=size):
                self._size = size + len(text)
                self._lines += len(entries)
            else:
                self._write_anew()

    def _write_anew(self) -> None:
        self._size = -1
        entries = [Entry("commit", name, rows) for name, rows in self._rows.items()]
        text = b"".join(_line(i, entry) for i, entry in enumerate(entries))
        atomic_write(self._path, text)
        self._size, self._lines = len(text), len(entries)


def _line(number: int, entry: Entry) -> bytes:
    rest = f"{number} {entry.event} {entry.name} {entry.rows}".encode()
    return _sum(rest) + b" " + rest + b"\n"


def _sum(rest: bytes) -> bytes:
    return hashlib.sha256(rest).hexdigest()[:16].encode()
