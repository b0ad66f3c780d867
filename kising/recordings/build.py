"""From data in any form to checked segments."""

from __future__ import annotations

from typing import Any

import numpy as np

from kising.errors import InputError
from kising.recordings.columns import column_notes
from kising.recordings.covariates import cut_covariates, matched_covariates
from kising.recordings.forms import Pieces, pieces_of
from kising.recordings.gaps import DROP, SAMPLE, gap_notes, stretches_of
from kising.recordings.segments import SHORTEST, Segments
from kising.recordings.sizes import check_width, common_width, distinct_names, transposition_notes
from kising.recordings.spins import as_signs


def as_segments(
    data: Any, covariates: Any = None, *, missing: str = "sample", width: int | None = None
) -> Segments:
    """A recording in any form, checked, as segments of ±1 spins.

    `data` are ±1, 0/1 or booleans: a (T, Nv) array, a list of such arrays with one per trial, a (trials, T, Nv)
    array, a DataFrame with one column per spin (an index level called `trial` separates trials), or a time series like
    pynapple's TsdFrame. `covariates` are known inputs in the same forms, with the same number of rows.

    NaN and masked entries are missing. They are kept as gaps, to be averaged over like hidden spins; with
    `missing="drop"`, steps with gaps are left out and split segments. `width` is the expected number of spins, if it is
    known; no notes about single spins are made then. Data that cannot be a recording raise an InputError; what only
    looks wrong is described in `notes`. An int8 array of ±1 is used without a copy.
    """
    check_missing(missing)
    if isinstance(data, Segments):
        if covariates is not None:
            raise InputError("covariates: give them together with the data that these segments were made of")
        check_width(data.n_visible, width, data.lengths)
        return data
    return assemble(pieces_of(data), covariates, missing=missing, width=width)


def check_missing(missing: str) -> None:
    """Refuse an unknown treatment of missing entries."""
    if missing not in (SAMPLE, DROP):
        raise InputError(
            f"missing={missing!r}: must be {SAMPLE!r}, which keeps gaps to be sampled, or {DROP!r}, which leaves out "
            "steps with gaps"
        )


def assemble(
    source: Pieces, covariates: Any = None, *, missing: str = SAMPLE, width: int | None = None
) -> Segments:
    """Check the pieces of a recording and make segments of them."""
    arrays = [piece.values for piece in source.pieces]
    lengths = [len(x) for x in arrays]
    nv = common_width(source)
    check_width(nv, width, lengths)
    names, notes = distinct_names(source.names or tuple(map(str, range(nv))))
    if width is None and not source.oriented:
        notes += transposition_notes(lengths, nv)
    signs = as_signs(arrays, names, source.where)
    inputs, input_names = matched_covariates(covariates, lengths)
    stretches = [stretches_of(piece, missing) for piece in signs]
    notes += gap_notes(signs, stretches, names, missing)
    kept = [(k, a, b) for k, found in enumerate(stretches) for a, b in found if b - a >= SHORTEST]
    spins = tuple(np.ascontiguousarray(signs[k].spins[a:b]) for k, a, b in kept)
    return Segments(
        spins=spins,
        names=names,
        covariates=None if inputs is None else cut_covariates(inputs, input_names, kept, source.where),
        covariate_names=input_names,
        columns=tuple(range(nv)),
        origins=tuple((source.pieces[k].trial, source.pieces[k].first + a) for k, a, _ in kept),
        notes=(*source.notes, *notes, *(column_notes(spins, names) if width is None else ())),
    )
