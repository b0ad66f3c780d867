"""Every error that kising raises on purpose, under one base class.

A mistake in the request is an `InputError`, which is a `ValueError` too. All other errors mean that a machine, a disk
or a cluster failed.
"""

from collections.abc import Sequence
from typing import Any

#: str() of a SpecError lists this many mistakes and counts the rest.
MAX_SHOWN_PROBLEMS = 100


class KisingError(Exception):
    """The base class of all errors of kising."""


class InputError(KisingError, ValueError):
    """A mistake in the request: an argument, an option, a file. The message names the culprit and the cure."""


class RecordingError(InputError):
    """A file that is not a recording, or one that cannot be fitted as asked."""


class RecordingWarning(UserWarning):
    """Something in a recording looks wrong, or was left out; the message has the cure."""


class SpecError(InputError):
    """A sweep that cannot be run as written; `problems` holds every mistake, `str()` shows one per line."""

    def __init__(self, problems: Sequence[Any]) -> None:
        super().__init__(problems)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:MAX_SHOWN_PROBLEMS]]
        more = len(self.problems) - len(lines)
        return "\n".join(lines + [f"... and {more} more"] * (more > 0))


class StoreError(KisingError):
    """A sweep's directory cannot be read or written; the message says what to do."""


class LockedError(StoreError):
    """Another driver holds the directory."""


class StaleError(StoreError):
    """Finished runs were made by other numerics, and the request does not say what to do with them."""


class ShrinkError(StoreError):
    """A sweep would drop finished runs from the tables of its directory, and the request does not allow it."""


class ExecutorError(KisingError):
    """Batches cannot be run: Ray is missing, unreachable or broken."""


class CheckpointError(KisingError, ValueError):
    """Bytes that are not a saved state of learning."""
