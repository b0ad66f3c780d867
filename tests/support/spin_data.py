"""Spins to store in every form, and a stand-in for pynapple's time series."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def random_spins(steps: int = 200, spins: int = 5, *, seed: int = 1) -> np.ndarray:
    """(steps, spins) of ±1, int8, in which every spin changes often."""
    return np.where(np.random.default_rng(seed).random((steps, spins)) < 0.4, 1, -1).astype(np.int8)


@dataclass(frozen=True)
class Epochs:
    """The documented interface of pynapple's IntervalSet."""

    start: np.ndarray
    end: np.ndarray


class TimeSeries:
    """The documented interface of pynapple's TsdFrame: t, values (or d), columns, time_support, numpy's protocols."""

    def __init__(self, t, d, columns=None, epochs=None) -> None:
        self.t = np.asarray(t, float)
        self.values = np.asarray(d)
        self.columns = np.arange(self.values.shape[1]) if columns is None else np.asarray(columns)
        ends = [(self.t[0], self.t[-1])] if epochs is None else epochs
        self.time_support = Epochs(*np.asarray(ends, float).T)

    @property
    def d(self) -> np.ndarray:
        return self.values

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def ndim(self) -> int:
        return self.values.ndim

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.asarray(self.values, dtype=dtype)
