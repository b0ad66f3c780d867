"""A recording as slices (s⁻, s, s⁺) = (s(t-1), s(t), s(t+1)), the units that estimators and learners work on.

A recording may have several segments (trials, or stretches between gaps). No slice crosses the border of a segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kising.errors import InputError
from kising.model import Array, Couplings, Spins
from kising.recordings import Segments, as_segments


class Window(NamedTuple):
    """Some slices, as arrays of floats. What is known of the inputs of a spin are spins, then 1 where biases are asked
    for, then inputs.
    """

    known_before: Array
    """(s⁻, 1, u⁻), (B, Nv+q)"""
    known_now: Array
    """(s, 1, u), (B, Nv+q)"""
    known_after: Array
    """s⁺ and what stands beside it, (B, Nv+q)"""
    n_visible: int

    @property
    def after(self) -> Array:
        """s⁺, (B, Nv)"""
        return self.known_after[:, : self.n_visible]


@dataclass(frozen=True, eq=False)
class Slices:
    """The slices of a recording, in the order of its segments."""

    spins: Spins
    """(ΣT, Nv): all segments, one after the other; 0 where an entry is missing"""
    inputs: Array
    """(ΣT, p): known inputs"""
    centres: npt.NDArray[np.int64] | None
    """(n,): where the middle of each slice lies in `spins`; None: everywhere but at both ends"""
    has_gaps: bool = False
    """whether a 0 in `spins` is a missing entry, and there are some"""
    memoryless: bool = False
    """whether visible spins act on nothing, whatever J and L are (`learning/baselines.py`)"""

    @classmethod
    def of(cls, segments: Sequence[Spins], inputs: Sequence[Array] | None = None) -> Slices:
        """The slices of segments whose values were checked before."""
        given = inputs if inputs is not None else [np.zeros((len(x), 0)) for x in segments]
        gaps = not all(x.all() for x in segments)
        if len(segments) == 1:
            return cls(segments[0], given[0], None, gaps)
        ends = np.cumsum([0, *(len(x) for x in segments)])
        inner = [np.arange(a + 1, b - 1) for a, b in pairwise(ends)]
        return cls(np.concatenate(segments), np.concatenate(given), np.concatenate(inner), gaps)

    def __len__(self) -> int:
        return len(self.spins) - 2 if self.centres is None else len(self.centres)

    @property
    def n_visible(self) -> int:
        """Number of visible spins."""
        return int(self.spins.shape[1])

    @property
    def n_inputs(self) -> int:
        """Number of known inputs."""
        return int(self.inputs.shape[1])

    def coupled_by(self, couplings: Couplings) -> bool:
        """Whether slices depend on each other: through M, or through missing entries, of which two slices share one."""
        return couplings.couples_slices or self.has_gaps

    @cached_property
    def largest_inputs(self) -> Array:
        """max |u_k| over the recording, (p,)"""
        largest: Array = np.max(np.abs(self.inputs), axis=0, initial=0.0)
        return largest

    @property
    def middle(self) -> npt.NDArray[np.int64]:
        """Where the middle of each slice lies in `spins`, (n,)"""
        return np.arange(1, len(self.spins) - 1) if self.centres is None else self.centres

    @property
    def after(self) -> Spins:
        """s⁺ of every slice, (n, Nv)"""
        return self.spins[2:] if self.centres is None else self.spins[self.centres + 1]

    def first(self, n: int) -> Slices:
        """The first n slices, or all where there are fewer."""
        if self.centres is None:
            return replace(self, spins=self.spins[: n + 2], inputs=self.inputs[: n + 2])
        return replace(self, centres=self.centres[:n])

    def beyond(self, n: int) -> Slices:
        """All but the first n slices."""
        if self.centres is None:
            return replace(self, spins=self.spins[n:], inputs=self.inputs[n:])
        return replace(self, centres=self.centres[n:])

    def window(self, part: slice, *, bias: bool, dtype: npt.DTypeLike = np.float64) -> Window:
        """The slices of a range, as numbers of this type."""
        if self.centres is None and not self.memoryless:
            # Three views of one array: a copy of s⁺ alone would cost more than the fields do.
            steps = self.known(slice(part.start, part.stop + 2), bias=bias, dtype=dtype)
            return Window(steps[:-2], steps[1:-1], steps[2:], self.n_visible)
        t = self.middle[part]
        before, now, after = (self.known(t + k, bias=bias, dtype=dtype) for k in (-1, 0, 1))
        if self.memoryless:
            after[:, : self.n_visible] = self.spins[t + 1]
        return Window(before, now, after, self.n_visible)

    def known(
        self, steps: slice | npt.NDArray[np.int64], *, bias: bool, dtype: npt.DTypeLike = np.float64
    ) -> Array:
        """What acts at some time steps: (s, 1, u), or (0, 1, u) without memory, (B, Nv+q)"""
        spins = self.spins[steps]
        if self.memoryless:
            spins = np.zeros_like(spins)
        if not bias and not self.n_inputs:
            return spins.astype(dtype)
        # One array, written once: fields then cost a chunk's products a few more columns, and no pass of their own.
        n, nv = spins.shape
        known = np.empty((n, nv + bias + self.n_inputs), dtype)
        known[:, :nv] = spins
        known[:, nv : nv + bias] = 1.0
        known[:, nv + bias :] = self.inputs[steps]
        return known


def as_slices(recording: Slices | Spins) -> Slices:
    """The slices of one array of spins; slices as they are."""
    return recording if isinstance(recording, Slices) else Slices.of([recording])


def slices_of(
    data: Any, couplings: Couplings, covariates: Any = None, *, missing: str = "sample"
) -> tuple[Slices, Segments]:
    """The slices of a recording in any form, for a network with these couplings, and its segments."""
    nv, p = couplings.K.shape[0], couplings.F.shape[1]
    segments = as_segments(data, covariates, missing=missing, width=nv)
    if segments.n_visible != nv:
        raise InputError(f"the recording has {segments.n_visible} visible spins, the couplings {nv}")
    if segments.n_covariates != p:
        raise InputError(
            f"covariates: the couplings have weights for {p} inputs; {segments.n_covariates} are given"
        )
    return Slices.of(segments.spins, segments.covariates), segments
