"""Recordings from files: the path is checked first, and every failure is one line that names the file."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kising.errors import InputError, RecordingError
from kising.messages import show
from kising.recordings.build import assemble, check_missing
from kising.recordings.files.contents import (
    Contents,
    covariates_in,
    inputs_in,
    load,
    recording_in,
    spikes_in,
    table_in,
)
from kising.recordings.files.durations import seconds
from kising.recordings.files.spikes import binned
from kising.recordings.files.windows import windows_of
from kising.recordings.segments import Segments

#: Longer paths are shortened in messages.
SHOWN_PATH = 500


def read_recording(
    path: str | Path,
    *,
    key: str | None = None,
    bin: str | float | None = None,  # noqa: A002
    trials: Any = None,
    covariates: Any = None,
    missing: str = "sample",
    delimiter: str | None = None,
) -> Segments:
    """Read a recording from a .npy, .npz, .csv, .tsv, .txt, .parquet or .mat file (docs/recordings.md).

    Rows are time steps and columns are spins. `key` chooses one array of a .npz or .mat file. `delimiter` is the
    character between the cells of a text file; None: it is recognised. With `bin`, such as "20ms", the file holds spike
    times, one row (unit, time) per spike, and `trials` may give the start and stop of each trial: an array of pairs in
    seconds, a pair (onsets, duration), or the path of such a table. `covariates` are known inputs, or the path of a
    table of them. Missing entries are kept and averaged over later; with `missing="drop"`, steps with missing entries
    are left out. Every failure raises a RecordingError.
    """
    with one_line_errors(path):
        check_missing(missing)
        width = None if bin is None else seconds(bin, "bin")
        if trials is not None and width is None:
            raise InputError(
                "trials: they cut spike times; give bin too, or add a column 'trial' to the table"
            )
        contents = _loaded(path, key, delimiter)
        inputs = _covariates(covariates) if covariates is not None else covariates_in(contents, key)
        if width is None:
            return assemble(recording_in(contents, key), inputs, missing=missing)
        windows = None if trials is None else _windows(trials)
        return assemble(binned(spikes_in(contents, key), width, windows), inputs, missing=missing)


@contextmanager
def one_line_errors(path: str | Path) -> Iterator[None]:
    """Turn every error into a RecordingError of one line that begins with the path."""
    try:
        yield
    except RecordingError:
        raise  # a file inside: its own line is better
    except InputError as error:
        raise RecordingError(f"{_shown(path)}: {error}") from error
    except Exception as error:
        # Damaged files make the libraries that read them raise errors of every kind.
        reason = (
            getattr(error, "strerror", None) or " ".join(str(error).split())[:200] or type(error).__name__
        )
        raise RecordingError(f"{_shown(path)}: cannot read a recording: {reason}") from error


def _loaded(path: str | Path, key: str | None = None, delimiter: str | None = None) -> Contents:
    """The contents of a regular file; opening anything else might wait forever."""
    kind = Path(path).stat()
    if stat.S_ISDIR(kind.st_mode):
        raise InputError("this is a directory; give a file in it")
    if not stat.S_ISREG(kind.st_mode):
        raise InputError(
            "this is not a regular file but a pipe, socket or device; save the recording in a file first"
        )
    if not kind.st_size:
        raise InputError("the file is empty")
    return load(Path(path), key, delimiter)


def _windows(trials: Any) -> Any:
    if not isinstance(trials, (str, Path)):
        return windows_of(trials)
    with one_line_errors(trials):
        return windows_of(table_in(_loaded(trials)))


def _covariates(covariates: Any) -> Any:
    if not isinstance(covariates, (str, Path)):
        return covariates
    with one_line_errors(covariates):
        return inputs_in(_loaded(covariates))


def _shown(path: str | Path) -> str:
    text = str(path)
    return text if text.isprintable() and len(text) <= SHOWN_PATH else show(text)
