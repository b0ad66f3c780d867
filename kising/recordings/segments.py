"""A checked recording: uninterrupted stretches of ±1 spins, and what the user should know about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kising.errors import InputError
from kising.messages import did_you_mean, nearest
from kising.recordings.columns import column_notes, constant_after_start
from kising.recordings.wording import counted, spins_listed

Spins = npt.NDArray[np.int8]
Array = npt.NDArray[np.float64]

#: A slice is three steps long, so a shorter segment has none.
SHORTEST = 3


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Segments:
    """A checked recording, in segments. No slice crosses the border of a segment."""

    spins: tuple[Spins, ...]
    """one (T_k, Nv) array of ±1 per segment, C-contiguous; 0 where an entry is missing"""
    names: tuple[str, ...]
    """Nv names of spins"""
    covariates: tuple[Array, ...] | None = None
    """one (T_k, p) array of known inputs per segment, or None"""
    covariate_names: tuple[str, ...] = ()
    """p names of inputs"""
    columns: tuple[int, ...] = ()
    """for each spin, its column in the original data"""
    origins: tuple[tuple[int, int], ...] = ()
    """for each segment, the trial it comes from and its first step in that trial, both counted from 0"""
    notes: tuple[str, ...] = ()
    """what was left out or looks wrong, each with its cure"""

    @property
    def n_visible(self) -> int:
        """Nv, the number of spins."""
        return len(self.names)

    @property
    def n_covariates(self) -> int:
        """p, the number of known inputs."""
        return len(self.covariate_names)

    @property
    def lengths(self) -> tuple[int, ...]:
        """T_k, the steps of each segment."""
        return tuple(map(len, self.spins))

    @property
    def n_steps(self) -> int:
        """Σ_k T_k"""
        return sum(self.lengths)

    @property
    def n_slices(self) -> int:
        """Σ_k max(T_k - 2, 0), the number of triples (s(t-1), s(t), s(t+1))"""
        return sum(max(length - 2, 0) for length in self.lengths)

    @property
    def trials(self) -> tuple[int, ...]:
        """The trial of every segment; without origins, every segment is a separate trial."""
        if len(self.origins) == len(self.spins):
            return tuple(trial for trial, _ in self.origins)
        return tuple(range(len(self.spins)))

    @property
    def missing(self) -> tuple[npt.NDArray[np.bool_], ...] | None:
        """for each segment, which entries are missing, (T_k, Nv); None where none are"""
        return tuple(x == 0 for x in self.spins) if self.n_missing else None

    @property
    def n_missing(self) -> int:
        """Number of missing entries."""
        return sum(x.size - int(np.count_nonzero(x)) for x in self.spins)

    @property
    def missing_share(self) -> float:
        """The fraction of entries that are missing."""
        return self.n_missing / (self.n_visible * self.n_steps)

    def without(self, columns: Iterable[str | int]) -> Segments:
        """The same recording without some spins, given by name or by position in `names`."""
        if isinstance(columns, str):
            raise InputError(f"columns={columns!r}: give a list, [{columns!r}]")
        dropped = {self._position(column) for column in columns}
        kept = [i for i in range(self.n_visible) if i not in dropped]
        if not kept:
            raise InputError("columns: nothing would be left; a recording needs at least one spin")
        spins = tuple(np.ascontiguousarray(segment[:, kept]) for segment in self.spins)
        names = tuple(self.names[i] for i in kept)
        outdated = column_notes(self.spins, self.names)
        return replace(
            self,
            spins=spins,
            names=names,
            columns=tuple(self.columns[i] for i in kept),
            notes=(*(x for x in self.notes if x not in outdated), *column_notes(spins, names)),
        )

    def _position(self, column: str | int) -> int:
        if isinstance(column, str):
            if column not in self.names:
                raise InputError(
                    f"there is no spin {column!r}{did_you_mean(nearest(column, self.names))}; "
                    f"the first ones are {', '.join(self.names[:5])}"
                )
            return self.names.index(column)
        if not 0 <= column < self.n_visible:
            raise InputError(f"column {column}: positions go from 0 to {self.n_visible - 1}")
        return int(column)

    def __repr__(self) -> str:
        lengths = self.lengths
        parts = [f"{self.n_steps} steps of {counted(self.n_visible, 'spin')}"]
        if len(lengths) != 1:
            shortest, longest = min(lengths), max(lengths)
            span = f"{longest}" if shortest == longest else f"{shortest} to {longest}"
            parts.append(f"{len(lengths)} segments of {span} steps")
        if self.n_missing:
            parts.append(f"{self.n_missing:,} missing entr{'y' if self.n_missing == 1 else 'ies'}")
        if self.covariates is not None:
            parts.append(counted(self.n_covariates, "covariate"))
        if self.notes:
            parts.append(f"{counted(len(self.notes), 'note')}: see .notes")
        return f"Segments({'; '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            _same(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)
        )

    __hash__ = None  # type: ignore[assignment]  # arrays can change


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other)


def fittable(segments: Segments) -> Segments:
    """Leave out the spins that cannot be fitted, with a note: those that never change after the first two steps.

    Every likelihood is largest at an infinite bias for them. `columns` and `names` say which spins remain.
    """
    constant = constant_after_start(segments.spins)
    if not constant.any():
        return segments
    if constant.all():
        raise InputError(
            "no spin changes after the first two steps of a segment: nothing can be fitted; record for longer, or "
            "choose bins in which spins are sometimes active and sometimes not"
        )
    positions = np.flatnonzero(constant).tolist()
    left = segments.without(positions)
    note = (
        f"left out: {spins_listed([segments.names[i] for i in positions])} never changed, so the bias would run "
        f"to infinity; {left.n_visible} of {segments.n_visible} spins are fitted"
    )
    return replace(left, notes=(*left.notes, note))
