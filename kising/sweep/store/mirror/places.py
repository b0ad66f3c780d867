"""Where a mirror can be, and what it can do: whole files by name, two kinds of conditional write, and lists."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from kising.errors import InputError, StoreError

SCHEMES = ("s3", "gs", "az")
_FORMS = "give s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or a directory"


class UnreachableError(StoreError):
    """The place does not answer, or refuses; what was asked may or may not have been done."""


class ConflictError(Exception):
    """A conditional write found something else than it was told to expect."""


class Place(Protocol):
    """Files by name, each written whole or not at all. Everything raises UnreachableError."""

    def get(self, key: str) -> tuple[bytes, str] | None:
        """The content of a file, and a tag that changes with it; None if there is no such file."""

    def put(self, key: str, data: bytes) -> None:
        """Write a file, in the place of any older one."""

    def create(self, key: str, data: bytes) -> str:
        """Write a file and return its tag; ConflictError if it exists."""

    def replace(self, key: str, data: bytes, tag: str) -> str:
        """Write a file and return its tag; ConflictError unless the one that is there has this tag."""

    def remove(self, key: str) -> None:
        """Remove a file, if it is there."""

    def list(self, folder: str) -> set[str]:
        """The names of the files in a folder."""


def open_place(url: str) -> Place:
    """The place of a URL: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or a mounted directory."""
    from kising.sweep.store.mirror.folders import FolderPlace

    if not url.strip() or not url.isprintable() or _is_short_of_slashes(url):
        raise InputError(f"--mirror {url!r}: {_FORMS}")
    if "://" not in url:
        return FolderPlace(Path(os.path.abspath(url)))
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InputError(f"--mirror {url}: {error}") from error
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise InputError(f"--mirror {url}: write file:///path, or the path alone")
        return FolderPlace(Path(unquote(parts.path)))
    if parts.scheme not in SCHEMES or not parts.netloc:
        raise InputError(f"--mirror {url}: {_FORMS}")
    from kising.sweep.store.mirror.buckets import BucketPlace

    return BucketPlace(parts.geturl())  # with the scheme in small letters


def _is_short_of_slashes(url: str) -> bool:
    """Whether this is the name of a bucket written as `s3:bucket`, which would be a directory on this very disk."""
    return "://" not in url and url.partition(":")[0].lower() in (*SCHEMES, "file") and ":" in url
