"""A recording as steps (s(t), s(t+1)), for networks with couplings M among hidden spins.

With M the hidden spins of a segment depend on each other through time, and the estimators follow whole segments. A
segment of T time steps has T - 1 steps t = 1..T-1. In step t the known inputs x(t) = (s(t), 1, u(t)) and σ(t) act on
s(t+1) and, but in the last step, on σ(t+1):

    f_i(t) = θ_i(t) + Σ_b K_ib σ_b(t)       θ_i = h_i + Σ_k F_ik u_k + Σ_j J_ij s_j
    B_a(t+1) = d_a(t) + Σ_b M_ab σ_b(t)     d_a = b_a + Σ_k G_ak u_k + Σ_j L_aj s_j

σ(1) is uniform. Arrays have one row per step, all segments one after the other. The first step of a segment is the one
that the slices (s(t-1), s(t), s(t+1)) of other networks leave out: the rows of a segment but its first are its slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.estimators.chunks import CHUNK_SLICES, known_weights
from kising.estimators.slices import Slices, as_slices
from kising.model import Array, Couplings, Spins

Flags = npt.NDArray[np.bool_]


class StepFields(NamedTuple):
    """The fields of some consecutive steps."""

    known: Array
    """x(t) = (s, 1, u), (B, Nv+q)"""
    after: Array
    """s(t+1), (B, Nv)"""
    theta: Array
    """θ, (B, Nv)"""
    drive: Array
    """d, (B, Nh)"""


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of a recording, in the order of its segments."""

    slices: Slices
    places: npt.NDArray[np.int64]
    """where x(t) of each step lies in `slices.spins`, (n,)"""
    begins: Flags
    """whether a step is the first of its segment, (n,)"""
    ends: Flags
    """whether it is the last, (n,): σ(t+1) is then driven, but acts on nothing that was observed"""

    @classmethod
    def of(cls, recording: Slices | Spins) -> Steps:
        """The steps of the segments that slices come from."""
        slices = as_slices(recording)
        middle = slices.middle
        # Where slices are not centred on consecutive steps, a segment begins.
        firsts = np.r_[0, np.flatnonzero(np.diff(middle) != 1) + 1]
        places = np.insert(middle, firsts, middle[firsts] - 1)
        begins = np.zeros(len(places), dtype=np.bool_)
        begins[firsts + np.arange(len(firsts))] = True
        return cls(slices, places, begins, np.r_[begins[1:], True])

    def __len__(self) -> int:
        return len(self.places)

    def fields(self, couplings: Couplings, part: slice, visible: Spins | None = None) -> StepFields:
        """The fields of a range of steps; `visible`, (B, Nv), stands for s where entries are missing."""
        bias = bool(couplings.h.size)
        t = self.places[part]
        known = self.slices.known(t, bias=bias)
        if visible is not None and not self.slices.memoryless:
            known[:, : self.slices.n_visible] = visible
        return StepFields(
            known,
            after=self.slices.spins[t + 1].astype(np.float64),
            theta=known @ known_weights(couplings.J, couplings.h, couplings.F, bias=bias).T,
            drive=known @ known_weights(couplings.L, couplings.b, couplings.G, bias=bias).T,
        )

    def first(self, couplings: Couplings, states: Spins) -> tuple[StepFields, Array]:
        """The fields of the first steps, and σ there; `states` has the hidden spins of each step, or all its spins."""
        nv, nh = couplings.K.shape
        visible = states[:, :nv] if states.shape[1] > nh else None
        hidden = states[:, states.shape[1] - nh :].astype(np.float64)
        return self.fields(couplings, slice(0, len(states)), visible), hidden

    def groups(self) -> list[list[slice]]:
        """Whole segments that are gone through together, each group cut into chunks: by the recording alone, never by
        threads, so that sums are always taken in one order. A long segment is a group of its own.
        """
        borders = [0]
        for stop in map(int, np.flatnonzero(self.ends) + 1):
            if stop - borders[-1] >= CHUNK_SLICES or stop == len(self):
                borders.append(stop)
        return [list(_chunks(a, b)) for a, b in pairwise(borders)]


def _chunks(start: int, stop: int) -> Iterator[slice]:
    for first in range(start, stop, CHUNK_SLICES):
        yield slice(first, min(first + CHUNK_SLICES, stop))
