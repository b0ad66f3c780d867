"""Files that are written whole or not at all: `kising.atomic`, by the name that the store knows it under."""

from kising.atomic import (
    TEMPORARY_PREFIX,
    AtomicFile,
    atomic_write,
    explain,
    is_temporary,
    make_directory,
    sync_directory,
)

__all__ = [
    "TEMPORARY_PREFIX",
    "AtomicFile",
    "atomic_write",
    "explain",
    "is_temporary",
    "make_directory",
    "sync_directory",
]
