"""What a file holds: a table or named arrays, and the recording, spikes or covariates in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kising.errors import InputError
from kising.messages import show_key
from kising.recordings.files.archives import COVARIATES, choose, choose_inputs, input_names
from kising.recordings.files.spikes import TIME_NAMES, UNIT_NAMES, Spikes, spikes_of_table
from kising.recordings.files.tables import Table, column_called, recording_of, table_of
from kising.recordings.forms import Pieces, pieces_of

TEXT = (".csv", ".tsv", ".txt")
KINDS = (".npy", ".npz", *TEXT, ".parquet", ".mat")
_CURES = {
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), "pickles are never loaded; save arrays with np.savez"),
    **dict.fromkeys((".h5", ".hdf5", ".nwb"), "export the array with np.save, or the table as .csv"),
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "save the sheet as .csv"),
    **dict.fromkeys((".gz", ".zip", ".bz2", ".xz"), "unpack it first"),
}

Contents = Table | dict[str, Any]


def load(path: Path, key: str | None, delimiter: str | None) -> Contents:
    """Read a file with the reader for its ending."""
    kind = path.suffix.lower()
    if kind not in KINDS:
        cure = f"; {_CURES[kind]}" if kind in _CURES else ""
        raise InputError(f"recordings are {', '.join(KINDS)} files{cure}")
    if key is not None and kind not in (".npz", ".mat"):
        raise InputError(f"key={key!r}: it chooses an array of a .npz or .mat file; leave it out")
    if delimiter is not None and kind not in TEXT:
        raise InputError(f"delimiter={delimiter!r}: it belongs to text files; leave it out")
    if kind in TEXT:
        from kising.recordings.files.text import read_text

        return read_text(path, delimiter)
    if kind == ".parquet":
        import pandas as pd

        return table_of(pd.read_parquet(path))
    if kind == ".mat":
        from kising.recordings.files.matlab import read_mat

        return read_mat(path, key)
    from kising.recordings.files.npy import read_npy, read_npz

    return read_npy(path) if kind == ".npy" else read_npz(path)


def recording_in(contents: Contents, key: str | None) -> Pieces:
    """The recording in a file."""
    names = contents.names if isinstance(contents, Table) else list(contents)
    if key is None and None not in (column_called(names, UNIT_NAMES), column_called(names, TIME_NAMES)):
        raise InputError(
            "this looks like spike times, with a unit and a time per spike: give bin, for example 20ms"
        )
    if isinstance(contents, Table):
        return recording_of(contents)
    chosen = choose(contents, key)
    found = pieces_of(chosen.data)
    return replace(found, names=found.names or chosen.names, notes=(*chosen.notes, *found.notes))


def covariates_in(contents: Contents, key: str | None) -> Any:
    """The covariates that a file of arrays holds together with its recording."""
    if not isinstance(contents, dict) or key == COVARIATES or COVARIATES not in contents:
        return None
    names = input_names(contents)
    found = contents[COVARIATES]
    if names is None or not hasattr(found, "ndim"):
        return found
    array = found[:, None] if found.ndim == 1 else found
    return replace(pieces_of(array, "the covariates"), names=names)


def inputs_in(contents: Contents) -> Pieces:
    """The covariates in a separate file."""
    if isinstance(contents, Table):
        return recording_of(contents, guess=False)
    chosen = choose_inputs(contents)
    return replace(pieces_of(chosen.data, "the covariates"), names=chosen.names)


def spikes_in(contents: Contents, key: str | None) -> Spikes:
    """The spikes in a file: two columns of a table or array, or two arrays called unit and time."""
    if isinstance(contents, dict) and key is None:
        names = list(contents)
        found = [column_called(names, words) for words in (UNIT_NAMES, TIME_NAMES)]
        if None not in found:
            columns = [np.ravel(contents[names[k]]) for k in found if k is not None]
            if len(columns[0]) != len(columns[1]):
                raise InputError(
                    f"there are {len(columns[0])} units and {len(columns[1])} times: give one of each per spike"
                )
            return spikes_of_table(Table(tuple(names[k] for k in found if k is not None), columns, None))
    return spikes_of_table(table_in(contents, key))


def table_in(contents: Contents, key: str | None = None) -> Table:
    """The table in a file; a two-dimensional array is one without names."""
    if isinstance(contents, Table):
        return contents
    array = choose(contents, key).data
    if getattr(array, "ndim", 0) != 2 or array.dtype.kind not in "biuf":
        shape = getattr(array, "shape", "a list")
        raise InputError(f"expected a table of numbers with one row per event; found {show_key(str(shape))}")
    return Table(None, list(np.asarray(array).T), None)
