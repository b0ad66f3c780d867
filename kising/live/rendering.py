"""Keeps the report of a sweep that may still run up to date in memory. Nothing is written to the sweep's directory."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from kising.errors import KisingError
from kising.report.build import render
from kising.report.results import load_results
from kising.sweep.store.directory import SweepDirectory

#: Seconds between two looks at the parts.
LOOK_SECONDS: Final = 1.0
#: Drawing takes at most this share of the time.
SHARE: Final = 0.2


class Rendered(NamedTuple):
    """A report in memory."""

    version: int
    html: str
    files: Mapping[str, str]
    """the numbers of its figures, as CSV, by name"""


class Renderer:
    """Renders the report again whenever rows were committed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: object = None
        self.latest = Rendered(0, "", {})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep_up, daemon=True)

    def start(self) -> None:
        """Begin to watch the directory."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()

    def look(self) -> bool:
        """Render if the parts have changed; tell whether they had."""
        now = self._parts()
        if not now or now == self._seen:
            return False
        try:
            html, files = render(self._path, load_results(self._path))
        except (KisingError, OSError):  # the parts change, or the sweep is being edited: look again
            return False
        self._seen = now
        self.latest = Rendered(self.latest.version + 1, html, files)
        return True

    def _keep_up(self) -> None:
        took = 0.0
        while not self._stopped.wait(max(LOOK_SECONDS, took / SHARE)):
            start = time.monotonic()
            self.look()
            took = time.monotonic() - start

    def _parts(self) -> object:
        """What changes when rows are committed, or the sweep is edited."""
        directory = SweepDirectory(self._path)
        try:
            names = tuple(sorted(path.name for path in directory.parts.iterdir()))
            return names and (names, directory.sweep_file.stat().st_mtime_ns)
        except OSError:
            return ()
