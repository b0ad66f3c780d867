"""A mirror in a mounted directory."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from kising.errors import StoreError
from kising.regular_files import read_regular
from kising.sweep.store.atomic import TEMPORARY_PREFIX, atomic_write, make_directory
from kising.sweep.store.mirror.places import ConflictError, UnreachableError

_LOCK_SECONDS = 10.0


class FolderPlace:
    """Files below a directory; conditional writes hold a lock while they look and write."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def overlaps(self, folder: Path) -> bool:
        """Whether one of the two directories is the other, or lies inside it."""
        here, there = self._root.resolve(), folder.resolve()
        return here.is_relative_to(there) or there.is_relative_to(here)

    def get(self, key: str) -> tuple[bytes, str] | None:
        """See `Place`."""
        try:
            data = read_regular(self._root / key)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreachable(error) from error
        return data, _tag(data)

    def put(self, key: str, data: bytes) -> None:
        """See `Place`."""
        try:
            make_directory((self._root / key).parent)
            atomic_write(self._root / key, data)
        except StoreError as error:
            raise UnreachableError(str(error)) from error

    def create(self, key: str, data: bytes) -> str:
        """See `Place`."""
        return self._write_if(key, data, None)

    def replace(self, key: str, data: bytes, tag: str) -> str:
        """See `Place`."""
        return self._write_if(key, data, tag)

    def remove(self, key: str) -> None:
        """See `Place`."""
        try:
            (self._root / key).unlink(missing_ok=True)
        except OSError as error:
            raise self._unreachable(error) from error

    def list(self, folder: str) -> set[str]:
        """See `Place`."""
        try:
            names = os.listdir(self._root / folder)
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise self._unreachable(error) from error
        return {name for name in names if not name.startswith(TEMPORARY_PREFIX)}

    def _write_if(self, key: str, data: bytes, tag: str | None) -> str:
        try:
            make_directory(self._root)
            with FileLock(self._root / f".{key}.lock", timeout=_LOCK_SECONDS):
                found = self.get(key)
                if (found[1] if found else None) != tag:
                    raise ConflictError(key)
                self.put(key, data)
        except OSError as error:  # a Timeout of the lock is one too
            raise self._unreachable(error) from error
        except StoreError as error:
            raise UnreachableError(str(error)) from error
        return _tag(data)

    def _unreachable(self, error: OSError) -> UnreachableError:
        with suppress(OSError):
            if not self._root.exists():
                return UnreachableError(f"{self._root} is gone: is it mounted?")
        return UnreachableError(f"{error.filename or self._root}: {error.strerror or error}")


def _tag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
