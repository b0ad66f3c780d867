"""A recording as paths go through it: every time step of every segment."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.estimators.paths.blocks import Bounds
from kising.estimators.paths.network import Network, network_of
from kising.estimators.slices import Slices
from kising.estimators.steps import Steps
from kising.model import Array, Couplings, Spins

Mask = npt.NDArray[np.bool_]


class Timeline(NamedTuple):
    """All time steps, one segment after the other."""

    spins: Spins
    """(T, Nv); anything where an entry is missing"""
    inputs: Array
    """(T, p)"""
    bounds: Bounds
    """where segments begin, and T at the end"""
    missing: Mask
    """(T, Nv): entries that are missing; (0, Nv) where there are none"""
    memoryless: bool = False
    """whether visible spins act on nothing"""

    @classmethod
    def of(cls, slices: Slices) -> Timeline:
        """The time steps of the segments that slices come from."""
        steps = Steps.of(slices)
        firsts, lasts = steps.places[steps.begins], steps.places[steps.ends] + 2
        bounds = np.concatenate([[0], np.cumsum(lasts - firsts)])
        spins, inputs = slices.spins[: lasts[-1]], slices.inputs[: lasts[-1]]
        if len(spins) != bounds[-1]:
            kept = np.concatenate([np.arange(a, b) for a, b in zip(firsts, lasts, strict=True)])
            spins, inputs = spins[kept], inputs[kept]
        missing = spins == 0 if slices.has_gaps else np.zeros((0, spins.shape[1]), np.bool_)
        return cls(spins, inputs, bounds, missing, slices.memoryless)

    def network(self, couplings: Couplings) -> Network:
        """The network that this recording is followed by."""
        found = network_of(couplings)
        if self.memoryless:
            found.weights[:, : found.visible] = 0.0
        return found

    @property
    def summed(self) -> Mask:
        """The missing entries that others depend on, as `missing`: those to sum over, or to sample."""
        return self.missing[:0] if self.memoryless else self.missing

    @property
    def sources(self) -> Mask:
        """Whether a time step is followed by another of its segment, (T,): the steps of `estimators/steps.py`"""
        found = np.ones(len(self.spins), np.bool_)
        found[self.bounds[1:] - 1] = False
        return found

    def by_segment(self, rows: Array) -> list[Array]:
        """Rows of all time steps, apart for each segment."""
        return [rows[a:b] for a, b in pairwise(self.bounds.tolist())]

    def unknown(self, hidden: int) -> Mask:
        """Which entries of a state of all spins are not known, (T, Nv + hidden)."""
        found = np.ones((len(self.spins), self.spins.shape[1] + hidden), np.bool_)
        found[:, : self.spins.shape[1]] = self.missing if len(self.missing) else False
        return found
