"""Checkpoints of `kising fit`: the state of learning in one file, with the identity of the fit that it belongs to.

    identity of the fit    SHA-256 of the data, the number of hidden spins, the options, the seed and the numerics
    file                   one line of JSON with that identity and the SHA-256 of the rest; then the state

A state of another fit, or a damaged one, is never continued.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kising.atomic import atomic_write
from kising.errors import CheckpointError
from kising.learning import checkpoint
from kising.learning.state import EMState
from kising.recordings import Segments
from kising.regular_files import read_regular
from kising.version import NUMERICS

FORMAT: Final = 1
SECONDS: Final = 30.0
"""between two checkpoints"""


def data_hash(segments: Segments) -> str:
    """SHA-256 of the spins, the inputs and the names of a recording."""
    digest = hashlib.sha256()
    arrays: tuple[npt.NDArray[Any], ...] = (*segments.spins, *(segments.covariates or ()))
    about = [segments.names, segments.covariate_names, [x.shape for x in arrays]]
    digest.update(json.dumps(about).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def identity(data: str, hidden: int, seed: int, options: Mapping[str, Any]) -> str:
    """What identifies a fit; two fits with the same identity are equal, bit for bit."""
    about = {"data": data, "hidden": hidden, "seed": seed, "options": dict(options), "numerics": NUMERICS}
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


@dataclass
class SavedState:
    """The checkpoint file of one fit."""

    path: Path
    identity: str
    report: Callable[[str], None]
    """takes a line where a file cannot be used"""
    seconds: float = field(default_factory=lambda: SECONDS)
    clock: Callable[[], float] = time.monotonic
    _due: float = field(init=False)

    def __post_init__(self) -> None:
        self._due = self.clock() + self.seconds

    def load(self) -> EMState | None:
        """The state to continue from; None if there is none."""
        try:
            found = read_regular(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.report(f"the checkpoint cannot be read ({error.strerror}): learning starts again")
            return None
        try:
            return _unpacked(found, self.identity)
        except CheckpointError as error:
            self.report(f"{error}: learning starts again")
            return None

    def observe(self, state: EMState) -> None:
        """Save the state if that is due, or if learning has ended: standard errors may still take long."""
        if state.outcome != "running" or self.clock() >= self._due:
            self.save(state)

    def save(self, state: EMState) -> None:
        """Save the state now."""
        saved = checkpoint.save(state)
        head = {"format": FORMAT, "identity": self.identity, "sha256": hashlib.sha256(saved).hexdigest()}
        atomic_write(self.path, json.dumps(head).encode() + b"\n" + saved)
        self._due = self.clock() + self.seconds

    def remove(self) -> None:
        """Remove the file: the fit is done."""
        with suppress(OSError):
            self.path.unlink()


def _unpacked(found: bytes, wanted: str) -> EMState:
    line, _, saved = found.partition(b"\n")
    try:
        head = json.loads(line) if len(line) < 1000 else None
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("sha256") != hashlib.sha256(saved).hexdigest():
        raise CheckpointError("the checkpoint is damaged")
    if head.get("format") != FORMAT or head.get("identity") != wanted:
        raise CheckpointError("the checkpoint is of other data, options or another version")
    try:
        return checkpoint.load(saved)
    except CheckpointError as error:
        raise CheckpointError("the checkpoint is damaged") from error
