"""The recording of a sweep (`data.file`): read, identified by its content, and what a sweep file takes from it.

The hash of the content is part of every point's id, so that rows of another recording are never mixed in. A spec that
was run has the hash and the sizes written out, so its plan is known even if the file was removed or has changed since.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kising.errors import InputError, RecordingError
from kising.messages import show
from kising.options import LEAVES, READING
from kising.sweep.spec.documents import Document, KeyPath, Problem, lookup, path_of
from kising.values import FilePath, RefusedError

if TYPE_CHECKING:
    from kising.options import Data
    from kising.recordings import Segments

FILE = path_of("data.file")
#: The options of reading that are paths.
_PATHS = tuple(name for name, leaf in READING.items() if isinstance(leaf.kind, FilePath))
#: What a recording decides.
SIZES = ("model.visible", "data.length")
#: In place of sizes that are unknown because the file cannot be read, which is reported.
_UNKNOWN = (1, 3)


def read_content(path: str, folds: int | None = None, reading: Mapping[str, str] | None = None) -> Segments:
    """The recording in a file, without spins that cannot be fitted (in any of the folds, if these are given);
    RecordingError if the file holds no recording. `reading` are arguments of `read_recording`.
    """
    reading = reading or {}
    files = [path, *(reading[name] for name in _PATHS if name in reading)]
    return _read(path, folds, tuple(reading.items()), tuple(_stamp(file) for file in files))


def _stamp(path: str) -> tuple[int, int]:
    """When a file was changed, and its size."""
    try:
        found = Path(path).stat()
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise RecordingError(f"{_shown(path)}: cannot read the recording: {reason}") from error
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=1)
def _read(
    path: str, folds: int | None, reading: tuple[tuple[str, str], ...], stamps: tuple[tuple[int, int], ...]
) -> Segments:
    # Every preset is checked on every reading: the file is read once.
    from kising.learning.folds import learnable
    from kising.recordings import fittable, read_recording

    try:
        found = fittable(read_recording(path, **dict(reading)))
        return found if folds is None else learnable(found, folds)
    except RecordingError:
        raise
    except InputError as error:
        raise RecordingError(f"{_shown(path)}: {error}") from error


def _shown(path: str) -> str:
    return path if path.isprintable() else show(path)


def content_hash(recording: Segments) -> str:
    """16 hexadecimal digits of the SHA-256 of everything that results depend on: spins, inputs, names, trials."""
    about = {
        "names": recording.names,
        "inputs": recording.covariate_names,
        "lengths": recording.lengths,
        "trials": [trial for trial, _ in recording.origins],
    }
    digest = hashlib.sha256(json.dumps(about).encode())
    for spins in recording.spins:
        digest.update(np.ascontiguousarray(spins, dtype=np.int8).tobytes())
    for inputs in recording.covariates or ():
        digest.update(np.ascontiguousarray(inputs, dtype="<f8").tobytes())
    return digest.hexdigest()[:16]


def recording_of(data: Data) -> Segments | None:
    """The recording of a checked spec; None where networks are simulated."""
    if data.file is None:
        return None
    try:
        reading = {name: getattr(data, leaf.key.removeprefix("data.")) for name, leaf in READING.items()}
        recording = read_content(data.file, data.folds, {k: v for k, v in reading.items() if v is not None})
    except RecordingError as error:
        if Path(data.file).exists():
            raise
        cure = "put it back, or give its new place with --set data.file=PATH"
        raise RecordingError(f"{error}; {cure}") from error
    if content_hash(recording) != data.hash:
        raise RecordingError(f"{data.file}: it changed while it was read; run the same command again")
    return recording


class Recorded(NamedTuple):
    """A document, and what its recording says."""

    document: Document
    """with what it takes from the recording: sizes, hash and number of realizations"""
    problems: list[Problem]
    inputs: int
    """number of known inputs; 0 where nothing was read"""


def with_recording(document: Document) -> Recorded:
    """Look up the recording of a document.

    If all that it takes from it is already written, nothing is read. A path is relative to the directory of the file
    that contains it.
    """
    given, raw = lookup(document.value, FILE)
    if not given or raw is None:
        return Recorded(document, [], 0)
    try:
        path = str(_base(document, FILE) / str(LEAVES["data.file"].kind.parse(raw)))
        reading = dict(_reading(document))
    except RefusedError:  # reported by its own check
        return Recorded(_filled(document, {"data.file": raw}, _UNKNOWN), [], 0)
    folds = _value(document, "data.folds") or LEAVES["data.folds"].default
    problems = list(_realizations(document, folds))
    known = [_value(document, key) for key in ("data.hash", *SIZES)]
    absent, inputs = _value(document, "data.absent") or 0.0, 0
    if all(known):
        digest, *sizes = known
    else:
        digest, sizes, absent = None, list(_UNKNOWN), 0.0
        try:
            recording = read_content(path, folds, reading)
        except RecordingError as error:
            problems.append(document.problem(FILE, str(error)))
        else:
            digest, sizes = content_hash(recording), [recording.n_visible, recording.n_steps]
            absent, inputs = recording.missing_share, recording.n_covariates
            problems += _too_short(document, recording, folds)
    changed = {"data.file": path, "data.hash": digest, "data.absent": absent, "realizations": folds}
    changed |= {READING[name].key: value for name, value in reading.items()}
    return Recorded(_filled(document, changed, tuple(sizes)), problems, inputs)


def _reading(document: Document) -> Iterator[tuple[str, str]]:
    """The options of reading that are given; paths are absolute."""
    for name, leaf in READING.items():
        path = path_of(leaf.key)
        given, raw = lookup(document.value, path)
        value = leaf.kind.parse(raw) if given else None
        if value is not None:
            yield name, str(_base(document, path) / value) if name in _PATHS else value


def _base(document: Document, key: KeyPath) -> Path:
    """The directory that a relative path starts from: that of the sweep file, or the current one."""
    from kising.sweep.spec.layers import OVERRIDE

    source = document.place(key).source
    return Path.cwd() if source in (None, OVERRIDE) else Path(str(source)).absolute().parent


def _value(document: Document, key: str) -> Any:
    """The value of a key; None if there is none, or an invalid one."""
    given, raw = lookup(document.value, path_of(key))
    try:
        return LEAVES[key].kind.parse(raw) if given else None
    except RefusedError:
        return None


def _realizations(document: Document, folds: int) -> list[Problem]:
    given, raw = lookup(document.value, ("realizations",))
    if not given or raw == folds:
        return []
    message = f"{show(raw)}: with data.file every fold is a realization, and there are {folds} folds; leave it out, "
    return [document.problem(("realizations",), message + "and set data.folds")]


def _too_short(document: Document, recording: Segments, folds: int) -> list[Problem]:
    from kising.learning.folds import too_short

    if not too_short(recording, folds):
        return []
    message = (
        f"{folds} folds of a recording of {recording.n_steps} steps are too short to learn from and to score"
    )
    return [
        document.problem(path_of("data.folds"), f"{message}; allowed: fewer folds, or a longer recording")
    ]


def _filled(document: Document, changed: dict[str, Any], sizes: tuple[Any, ...]) -> Document:
    value = dict(document.value)
    for key, entry in {**changed, **dict(zip(SIZES, sizes, strict=True))}.items():
        *sections, last = path_of(key)
        inner = value
        for name in sections:
            inner[name] = dict(inner[name]) if isinstance(inner.get(name), dict) else inner.get(name) or {}
            inner = inner[name]
            if not isinstance(inner, dict):
                break
        else:
            inner[last] = entry
    return document.replaced(value, {})
