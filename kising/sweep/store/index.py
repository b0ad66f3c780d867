"""Where each run is: of all rows in all parts, the one of each run that counts. Run ids here are integers."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kising.sweep.store.inventory import Inventory
from kising.sweep.store.parts import Damaged

ID_DIGITS: Final = 16
_NIBBLES: Final = np.full(256, 255, dtype=np.uint8)
_NIBBLES[np.frombuffer(b"0123456789abcdef", dtype=np.uint8)] = np.arange(16)


class Scan(NamedTuple):
    """What the parts hold, one entry per run, ascending in `ids`."""

    ids: NDArray[np.uint64]
    failed: NDArray[np.bool_]
    numerics: NDArray[np.int64]
    rows: int  # in all parts, duplicates included
    parts: int
    damaged: tuple[Damaged, ...]  # a writable store has set them aside
    strays: tuple[str, ...]  # names in parts/ that are not those of parts: left alone, not read
    inventory: Inventory  # as it was found; a writable store has mended the log

    def find(self, ids: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return for each id its place in the arrays of this scan, -1 for runs that the parts do not hold."""
        return find(self.ids, ids)


class PartIndex(NamedTuple):
    """The index columns of one part, in the order of its rows."""

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
    """The row of each run that counts, ascending in `ids`: number of its part, number in that part."""

    ids: NDArray[np.uint64]
    failed: NDArray[np.bool_]
    numerics: NDArray[np.int64]
    part: NDArray[np.int32]
    row: NDArray[np.int64]


def winners(parts: dict[int, PartIndex]) -> Winners:
    """Choose the row of each run that counts.

    Among rows of the same numerics done beats failed, and of equals the later wins. Among those of different numerics
    the later wins: a run that was redone and failed has failed, and one that was taken over since is done, though its
    numerics are older.
    """
    none = PartIndex(np.empty(0, np.uint64), np.empty(0, bool), np.empty(0, np.int64), np.empty(0, np.int64))
    indexes = [none, *parts.values()]
    ids, failed, numerics, committed = (np.concatenate(arrays) for arrays in zip(*indexes, strict=True))
    lengths = [len(index.ids) for index in parts.values()]
    part = np.repeat(np.fromiter(parts, dtype=np.int32, count=len(parts)), lengths)
    row = np.concatenate([np.empty(0, np.int64), *(np.arange(length) for length in lengths)])
    order = np.lexsort((committed, ~failed, numerics, ids))
    best = order[_are_last(ids[order], numerics[order])]
    order = best[np.lexsort((committed[best], ids[best]))]
    last = order[_are_last(ids[order])]
    return Winners(ids[last], failed[last], numerics[last], part[last], row[last])


def _are_last(*sorted_keys: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Which entries are the last with their keys."""
    found = np.ones(sorted_keys[0].size, dtype=bool)
    found[:-1] = np.any([key[1:] != key[:-1] for key in sorted_keys], axis=0)
    return found


def find(ascending: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the place of each wanted value in `ascending`, -1 for those that are not in it."""
    if not ascending.size:
        return np.full(wanted.shape, -1, dtype=np.intp)
    places = np.minimum(np.searchsorted(ascending, wanted), ascending.size - 1)
    return np.where(ascending[places] == wanted, places, -1)


def ids_from_bytes(digits: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Turn an (n, 16) array of ASCII hexadecimal digits into n integers; ValueError names a bad one."""
    nibbles = _NIBBLES[digits]
    bad = np.flatnonzero((nibbles > 15).any(axis=1))
    if bad.size:
        raise ValueError(f"run_id {bytes(digits[bad[0]])!r} is not {ID_DIGITS} lower-case hexadecimal digits")
    pairs = (nibbles[:, 0::2] << 4) | nibbles[:, 1::2]
    return np.ascontiguousarray(pairs).view(">u8")[:, 0].astype(np.uint64)


def id_text(run_id: int | np.uint64) -> str:
    """Write an integer run id as its 16 hexadecimal digits."""
    return f"{int(run_id):016x}"
