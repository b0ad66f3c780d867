"""The plan of a sweep: its runs in a fixed order, with ids and seeds that depend on content alone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kising.options import Keep
from kising.sweep.points import Point, Points, point_id_of, short_digest
from kising.sweep.spec import SweepSpec

__all__ = ["Plan", "Point", "Points", "Run", "point_id_of", "run_id_of"]

_RUN_ID = re.compile("[0-9a-f]{16}")
NOTHING: Final = Keep()


def run_id_of(point_id: str, realization: int) -> str:
    """Return the id of a realization of a point."""
    return short_digest(f'["run","{point_id}",{realization}]')


@dataclass(frozen=True)
class Run:
    """The ``realization``-th independent network of a point.

    The seeds are entropy for ``numpy.random.SeedSequence``. They depend on the sweep's seed, the model and
    the realization only: points that differ in data length or learner share network, data and start, and a
    shorter recording is a prefix of a longer one.
    """

    run_id: str
    point: Point
    realization: int
    keep: Keep = NOTHING
    """optional artifacts"""

    @property
    def network_seed(self) -> tuple[int, ...]:
        """Entropy of the couplings."""
        return self._seed("network")

    @property
    def data_seed(self) -> tuple[int, ...]:
        """Entropy of the recording."""
        return self._seed("data")

    @property
    def missing_seed(self) -> tuple[int, ...]:
        """Entropy of which entries are missing."""
        return self._seed("missing")

    @property
    def start_seed(self) -> tuple[int, ...]:
        """Entropy of where learning starts."""
        return self._seed("start")

    def _seed(self, purpose: str) -> tuple[int, ...]:
        content = f'["{purpose}",{self.point.seed},{self.point.model_json},{self.realization}]'
        digest = hashlib.sha256(content.encode()).digest()
        return tuple(int.from_bytes(digest[i : i + 4], "big") for i in range(0, len(digest), 4))


class Plan:
    """Every run of a sweep: for each point in order, realizations 0, 1, 2, ..."""

    def __init__(self, spec: SweepSpec) -> None:
        self.spec = spec
        self.points = Points(spec)

    @classmethod
    def of(cls, spec: SweepSpec) -> Plan:
        """Return the plan of a spec; points and runs are made when asked for."""
        return cls(spec)

    @property
    def n_runs(self) -> int:
        """The number of runs."""
        return len(self.points) * self.spec.realizations

    def run(self, index: int) -> Run:
        """Return the run at ``index`` of the plan."""
        if not 0 <= index < self.n_runs:
            raise IndexError(f"run {index} of a plan of {self.n_runs}")
        number, realization = divmod(index, self.spec.realizations)
        point = self.points[number]
        return self._run(point, realization)

    def runs(self) -> Iterator[Run]:
        """Yield every run in the order of the plan."""
        for point in self.points:
            for realization in range(self.spec.realizations):
                yield self._run(point, realization)

    def _run(self, point: Point, realization: int) -> Run:
        keep = self.spec.keep if realization < self.spec.keep.realizations else NOTHING
        return Run(run_id_of(point.point_id, realization), point, realization, keep)

    @cached_property
    def ids(self) -> NDArray[np.uint64]:
        """The run ids in the order of the plan, as numbers: eight bytes per run, without making runs."""
        realizations = range(self.spec.realizations)
        ids = (int(run_id_of(point_id, r), 16) for point_id in self.points.ids() for r in realizations)
        return np.fromiter(ids, dtype=np.uint64, count=self.n_runs)

    def order(self, run_ids: Sequence[str] | NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the index of each run id in the plan, -1 where it has none.

        Ids are 16 hex digits each, or an array of the numbers that they spell.
        """
        known = np.ones(len(run_ids), dtype=bool)
        if isinstance(run_ids, np.ndarray):
            wanted = run_ids
        else:
            known = np.array([_RUN_ID.fullmatch(run_id) is not None for run_id in run_ids], dtype=bool)
            numbers = (int(run_id, 16) if ok else 0 for run_id, ok in zip(run_ids, known, strict=True))
            wanted = np.fromiter(numbers, dtype=np.uint64, count=len(run_ids))
        sorter, ordered = self._sorted
        spot = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
        return np.where(known & (ordered[spot] == wanted), sorter[spot], -1)

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        sorter = np.argsort(self.ids, kind="stable")
        return sorter, self.ids[sorter]
