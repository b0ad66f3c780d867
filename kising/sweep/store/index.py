"""Which run stands where: of all rows in all parts, the one of each run that counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kising.sweep.store.parts import Damaged


class Scan(NamedTuple):
    """What the parts hold, one entry a run, ascending in `ids`."""

    ids: NDArray[np.uint64]
    failed: NDArray[np.bool_]
    numerics: NDArray[np.int64]
    rows: int  # in all parts, duplicates included
    parts: int
    damaged: tuple[Damaged, ...]  # a writable store has set them aside
    strays: tuple[str, ...]  # names in parts/ that are not parts': left alone, not read

    def find(self, ids: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return for each id its place in the arrays of this scan, -1 where the parts do not hold it."""
        return find(self.ids, ids)


class PartIndex(NamedTuple):
    """What one part says of its rows, in their order."""

    ids: NDArray[np.uint64]
    failed: NDArray[np.bool_]
    numerics: NDArray[np.int64]
    committed: NDArray[np.int64]


class PartRows(NamedTuple):
    """The identities of the rows of one part, for verification."""

    name: str
    ids: NDArray[np.uint64]
    point_ids: list[str]
    realizations: NDArray[np.int64]
    points: list[tuple[str, dict[str, object]]]  # every distinct (point_id, parameter values)


class Winners(NamedTuple):
    """The row that counts of every run, ascending in `ids`: number of its part, number in that part."""

    ids: NDArray[np.uint64]
    failed: NDArray[np.bool_]
    numerics: NDArray[np.int64]
    part: NDArray[np.int32]
    row: NDArray[np.int64]


def winners(parts: dict[int, PartIndex]) -> Winners:
    """Choose of each run's rows the one that counts: done beats failed, and of equals the later wins."""
    none = PartIndex(np.empty(0, np.uint64), np.empty(0, bool), np.empty(0, np.int64), np.empty(0, np.int64))
    indexes = [none, *parts.values()]
    ids, failed, numerics, committed = (np.concatenate(arrays) for arrays in zip(*indexes, strict=True))
    lengths = [len(index.ids) for index in parts.values()]
    part = np.repeat(np.fromiter(parts, dtype=np.int32, count=len(parts)), lengths)
    row = np.concatenate([np.empty(0, np.int64), *(np.arange(length) for length in lengths)])
    order = np.lexsort((committed, ~failed, ids))
    is_last = np.ones(order.size, dtype=bool)
    is_last[:-1] = ids[order][1:] != ids[order][:-1]
    last = order[is_last]
    return Winners(ids[last], failed[last], numerics[last], part[last], row[last])


def find(ascending: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the place of each wanted value in `ascending`, -1 where it is not."""
    if not ascending.size:
        return np.full(wanted.shape, -1, dtype=np.intp)
    places = np.minimum(np.searchsorted(ascending, wanted), ascending.size - 1)
    return np.where(ascending[places] == wanted, places, -1)
