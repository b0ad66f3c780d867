"""Copies what is new in a sweep's directory to its mirror, and fetches what only the mirror holds.

A thread of the driver looks at the directory about once a second: parts, then the log that holds them, then
checkpoints. A part is never changed and is named by its content, so whatever was copied stays right, and nothing needs
a rename. Parts that were merged are removed from the mirror after the log that says so is there. The sweep never waits
for any of this before its end.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kising.errors import InputError, KisingError, LockedError, StoreError
from kising.messages import agree, plural
from kising.regular_files import read_regular
from kising.sweep.store.atomic import atomic_write, make_directory
from kising.sweep.store.directory import SweepDirectory
from kising.sweep.store.mirror.folders import FolderPlace
from kising.sweep.store.mirror.lease import Lease
from kising.sweep.store.mirror.places import ConflictError, Place, UnreachableError, open_place
from kising.sweep.store.part_log import read_bytes, view
from kising.sweep.store.parts import NotDataError, PartFiles, check_bytes, number_of

LOOK_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 10.0
"""between two attempts at a mirror that does not answer"""
LAST_SECONDS: Final = 60.0
"""that the end of a sweep waits for a mirror that does not answer"""

MARKER: Final = "kising-mirror.json"
FORMAT: Final = 1
_STATE: Final = re.compile(r"[0-9a-f]{16}\.state")

Say = Callable[[str], object]


@contextmanager
def mirrored(url: str | None, directory: SweepDirectory, name: str, say: Say) -> Iterator[Mirror | None]:
    """Keep the mirror of a sweep called `name` up to date inside; no URL: there is none."""
    if url is None:
        yield None
        return
    place = open_place(url)
    if isinstance(place, FolderPlace) and place.overlaps(directory.path):
        raise InputError(
            f"--mirror {url}: a mirror and {directory.path} cannot be one inside the other: choose a place on another "
            "disk"
        )
    mirror = Mirror(url, place, directory, name, say)
    mirror.start()
    try:
        yield mirror
    except BaseException:
        mirror.abandon()
        raise
    mirror.close()


class Mirror:
    """The mirror of one directory, whose lock the driver holds."""

    def __init__(self, url: str, place: Place, directory: SweepDirectory, name: str, say: Say) -> None:
        self.url = url
        self._place, self._directory, self._name, self._say = place, directory, name, say
        self._files = PartFiles(directory)
        self._lease = Lease(place, say=say)
        self._connected = False
        self._copied_parts: set[str] = set()
        self._copied: dict[str, str] = {}  # what the mirror holds of other files, by key: a digest
        self._silent_since: float | None = None
        self._lost: KisingError | None = None  # why nothing more is written to the mirror
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kising-mirror", daemon=True)

    def start(self) -> None:
        """Take the lease, fetch what only the mirror holds, and begin to copy.

        A mirror that does not answer is no obstacle where there are results already; where there are none, it may
        hold them. Parts without a log are no results: the mirror may have dropped out while it was fetched, now or
        the last time.
        """
        try:
            self._connect()
            self._fetch()
        except UnreachableError as error:
            if not (self._directory.parts_log.exists() and self._files.list().parts):
                raise StoreError(
                    f"the mirror {self.url} does not answer, and it may hold what {self._directory.path} lacks: {error}"
                ) from error
            self._fell_silent(error)
        self._thread.start()

    def __call__(self, snapshot: object = None) -> None:
        """Raise LockedError if another driver has taken the mirror. As an observer of the sweep, this ends it."""
        if self._lost is not None:
            raise self._lost

    def close(self) -> None:
        """Copy what is left, with the tables, and give the lease back; StoreError if the mirror is not complete."""
        self._stop_thread()
        self()
        end = time.monotonic() + LAST_SECONDS
        while True:
            try:
                self._copy(tables=True)
                break
            except UnreachableError as error:
                self._fell_silent(error)
                if time.monotonic() > end:
                    raise StoreError(
                        f"the mirror {self.url} does not answer and is not complete: {error}; the results in "
                        f"{self._directory.path} are, and the same command copies them"
                    ) from error
                time.sleep(LOOK_SECONDS)
        self._lease.release()

    def abandon(self) -> None:
        """Copy what can be copied at once, and give the lease back."""
        self._stop_thread()
        try:
            if self._lost is None:
                self._copy()
                self._lease.release()
        except KisingError as error:
            self._say(f"the mirror {self.url} is not complete: {error}")

    def _stop_thread(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        wait = LOOK_SECONDS
        while not self._closed.wait(wait):
            try:
                self._copy()
                wait = LOOK_SECONDS
            except UnreachableError as error:
                self._fell_silent(error)
                wait = RETRY_SECONDS
            except (LockedError, InputError) as error:
                self._lost = error
                return
            except StoreError as error:  # the directory cannot be read: the driver will notice too
                self._say(f"not copied to the mirror: {error}")
                wait = RETRY_SECONDS

    def _fell_silent(self, error: UnreachableError) -> None:
        self._connected = False  # it may come back without what it had
        if self._silent_since is None:
            self._silent_since = time.monotonic()
            self._say(
                f"the mirror {self.url} does not answer: {error}; the sweep continues; what it writes now is copied "
                "later"
            )

    def _answered(self) -> None:
        if self._silent_since is not None:
            silence, self._silent_since = time.monotonic() - self._silent_since, None
            self._say(f"the mirror {self.url} answers again, after {silence:.0f} s, and has everything")

    def _connect(self) -> None:
        """Check that the mirror is of this sweep, take its lease, and list it."""
        about = json.dumps({"format": FORMAT, "sweep": self._name}).encode()
        if self._place.get(MARKER) is None:
            self._check_unused()
        try:
            self._place.create(MARKER, about)
        except ConflictError:
            found = self._place.get(MARKER)
            if found is not None and found[0] != about:
                raise InputError(
                    f"--mirror {self.url}: this mirror is not of the sweep {self._name!r}: its {MARKER} says "
                    f"{found[0][:200].decode(errors='replace')}; choose another place"
                ) from None
        self._lease.take()
        self._copied_parts = {name for name in self._place.list("parts") if number_of(name) is not None}
        self._copied = dict.fromkeys((f"checkpoints/{name}" for name in self._states_there()), "")
        self._connected = True

    def _check_unused(self) -> None:
        """Refuse a place that is no mirror and has files that a mirror would replace: they are somebody else's."""
        directory = self._directory
        files = (directory.sweep_file, directory.manifest_file, directory.parts_log, directory.tables_file)
        for path in (*files, directory.runs_file):
            if self._place.get(path.name) is not None:
                raise InputError(
                    f"--mirror {self.url}: there is a {path.name} and no {MARKER}: this is not a mirror, and its files "
                    "would be replaced; choose another place"
                )

    def _states_there(self) -> set[str]:
        return {name for name in self._place.list("checkpoints") if _STATE.fullmatch(name)}

    def _fetch(self) -> None:
        """Bring here what only the mirror holds."""
        directory = self._directory
        log = None if directory.parts_log.exists() else self._place.get("parts.log")
        log_now = view(read_bytes(directory.parts_log) if log is None else log[0])
        gone = log_now.known - log_now.rows.keys()
        fetched = 0
        for name in sorted(self._copied_parts - set(self._files.list().parts) - gone):
            found = self._place.get(f"parts/{name}")
            if found is None:
                continue
            try:
                check_bytes(name, found[0])
            except NotDataError as error:
                self._say(f"{self.url}/parts/{name}: not used, its runs are run again: {error}")
                continue
            make_directory(directory.parts)
            atomic_write(directory.parts / name, found[0])
            fetched += 1
        for name in self._states_there():
            if not (directory.checkpoints / name).exists() and (
                state := self._place.get(f"checkpoints/{name}")
            ):
                make_directory(directory.checkpoints)
                atomic_write(directory.checkpoints / name, state[0])
        # The sweep as run tells which runs were dropped on purpose, and the manifest when it began.
        for path in (directory.sweep_file, directory.manifest_file):
            if not path.exists() and (found := self._place.get(path.name)):
                atomic_write(path, found[0])
        # Last: parts that it tells of and that are not here would count as vanished, and `start` takes a directory
        # with a log for one that lacks nothing.
        if log is not None:
            atomic_write(directory.parts_log, log[0])
        if fetched:
            verb = agree(fetched, "was", "were")
            self._say(f"{plural(fetched, 'part')} {verb} fetched from the mirror {self.url}")

    def _copy(self, *, tables: bool = False) -> None:
        """Bring the mirror up to date."""
        if not self._connected:
            self._connect()
        self._lease.renew()
        directory = self._directory
        log = read_bytes(directory.parts_log)
        for name in self._files.list().parts:
            if name not in self._copied_parts and (data := _content(directory.parts / name)) is not None:
                self._lease.renew()
                self._place.put(f"parts/{name}", data)
                self._copied_parts.add(name)
        for path in (directory.sweep_file, directory.manifest_file):
            self._put_if_new(path.name, _content(path))
        seen = view(log)
        # A log must not tell of parts that the mirror lacks: some were merged while the others were copied.
        if log is not None and seen.rows.keys() <= self._copied_parts:
            self._put_if_new("parts.log", log)
            for name in sorted(self._copied_parts & (seen.known - seen.rows.keys())):
                self._place.remove(f"parts/{name}")
                self._copied_parts.remove(name)
        self._copy_checkpoints()
        if tables:
            for path in (*sorted(directory.path.glob("*.parquet")), directory.tables_file):
                self._lease.renew()
                self._put_if_new(path.name, _content(path))
        self._answered()

    def _copy_checkpoints(self) -> None:
        folder = self._directory.checkpoints
        here = {path.name for path in folder.glob("*.state") if _STATE.fullmatch(path.name)}
        for name in sorted(here):
            self._put_if_new(f"checkpoints/{name}", _content(folder / name))
        for key in [key for key in self._copied if key.startswith("checkpoints/")]:
            if key.removeprefix("checkpoints/") not in here:
                self._place.remove(key)
                del self._copied[key]

    def _put_if_new(self, key: str, data: bytes | None) -> None:
        if data is None:
            return
        digest = hashlib.sha256(data).hexdigest()
        if self._copied.get(key) != digest:
            self._lease.renew()
            self._place.put(key, data)
            self._copied[key] = digest


def _content(path: Path) -> bytes | None:
    """The bytes of a file; None if it is gone by now."""
    try:
        return read_regular(path)
    except OSError:
        return None
