"""Known inputs during learning: divided by their standard deviation and, where there are biases, minus their mean.

An input with large values makes the steps of its weights tiny, and one far from zero is nearly a second bias, which
learning cannot tell from the first. With ū and d the mean and the standard deviation of input u over the recording,

    u' = (u - ū)/d      F' = F d      h' = h + F ū             and G', b' likewise

is the same network: its fields are equal. Couplings and errors are returned for the inputs as they were given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import overload

import numpy as np

from kising.estimators.slices import Slices
from kising.model import Array, Couplings
from kising.recordings import Segments


@dataclass(frozen=True)
class InputUnits:
    """How inputs are measured while couplings are learned."""

    spread: Array
    """standard deviation of every input, (p,); 1 for one that is constant"""
    centre: Array
    """what is subtracted from every input, (p,): its mean, or zero where no biases are learned"""

    @classmethod
    def of(cls, recording: Segments, *, bias: bool) -> InputUnits:
        """Those of a recording."""
        if recording.covariates is None:
            return cls(np.ones(0), np.zeros(0))
        inputs = np.concatenate(recording.covariates)
        spread = np.std(inputs, axis=0)
        mean = np.mean(inputs, axis=0)
        # The standard deviation of a constant is not quite zero, because of rounding.
        varies = spread > 1e-12 * np.abs(mean)
        return cls(np.where(varies, spread, 1.0), mean if bias else np.zeros_like(mean))

    @property
    def shift(self) -> Array:
        """ū/d, (p,): h = h' - F' ū/d"""
        return self.centre / self.spread

    def slices(self, recording: Segments) -> Slices:
        """The slices of a recording, with inputs measured in this way."""
        if recording.covariates is None:
            return Slices.of(recording.spins)
        return Slices.of(recording.spins, [(u - self.centre) / self.spread for u in recording.covariates])

    @overload
    def inside(self, couplings: Couplings) -> Couplings: ...

    @overload
    def inside(self, couplings: None) -> None: ...

    def inside(self, couplings: Couplings | None) -> Couplings | None:
        """The couplings for inputs measured in this way: (h', b', F', G')."""
        if couplings is None or not self.spread.size:
            return couplings
        biases = {
            name: x + weights @ self.centre
            for name, x, weights in (("h", couplings.h, couplings.F), ("b", couplings.b, couplings.G))
            if x.size
        }
        return couplings._replace(F=couplings.F * self.spread, G=couplings.G * self.spread, **biases)

    def outside(self, couplings: Couplings) -> Couplings:
        """The couplings for inputs as they were: the inverse of `inside`."""
        if not self.spread.size:
            return couplings
        F, G = couplings.F / self.spread, couplings.G / self.spread
        biases = {
            name: x - weights @ self.centre
            for name, x, weights in (("h", couplings.h, F), ("b", couplings.b, G))
            if x.size
        }
        return couplings._replace(F=F, G=G, **biases)

    @overload
    def outside_errors(self, errors: Couplings) -> Couplings: ...

    @overload
    def outside_errors(self, errors: None) -> None: ...

    def outside_errors(self, errors: Couplings | None) -> Couplings | None:
        """Errors of weights for inputs as they were. Errors of h and b stay as they are: `standard_errors` gives those
        of the biases outside, which need covariances.
        """
        if errors is None or not self.spread.size:
            return errors
        return errors._replace(F=errors.F / self.spread, G=errors.G / self.spread)

    @overload
    def outside_noise(self, errors: Couplings) -> Couplings: ...

    @overload
    def outside_noise(self, errors: None) -> None: ...

    def outside_noise(self, errors: Couplings | None) -> Couplings | None:
        """Monte-Carlo errors for inputs as they were."""
        return None if errors is None else self.outside_errors(shifted_noise(errors, self.shift))


def shifted_noise(errors: Couplings, shift: Array) -> Couplings:
    """Monte-Carlo errors, with those of h = h' - F' ū/d and b in the place of h' and b': errors of h' and F', about the
    mean, count as independent.
    """
    if not shift.any():
        return errors
    noise = {
        name: np.sqrt(x**2 + weights**2 @ shift**2)
        for name, x, weights in (("h", errors.h, errors.F), ("b", errors.b, errors.G))
        if x.size
    }
    return errors._replace(**noise)
