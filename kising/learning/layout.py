"""The couplings in other shapes: as one vector, or as rows that share their inputs."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kising.blocks import BLOCKS, TABLE, Block
from kising.estimators.gradient import Gradient
from kising.model import Array, BondScales, Couplings

# For couplings as they are, not in units of the bond scale.
UNIT = BondScales(*(1.0 for _ in BLOCKS))


def slopes(gradient: Gradient) -> Couplings:
    """The blocks of a gradient, without what comes along with it."""
    return Couplings(*(getattr(gradient, name) for name in BLOCKS))


def flatten(couplings: Couplings, scales: BondScales) -> Array:
    """The couplings as one vector, in units of the bond scale."""
    return np.concatenate([(x / sd).ravel() for x, sd in zip(couplings, scales, strict=True)])


def unflatten(vector: Array, like: Couplings, scales: BondScales) -> Couplings:
    """The inverse of `flatten`."""
    ends = np.cumsum([x.size for x in like])[:-1]
    return Couplings(
        *(
            part.reshape(x.shape) * sd
            for part, x, sd in zip(np.split(vector, ends), like, scales, strict=True)
        )
    )


def places(couplings: Couplings) -> list[slice]:
    """Where each block lies in the vector of `flatten`."""
    ends = np.cumsum([0, *(x.size for x in couplings)])
    return [slice(int(a), int(b)) for a, b in pairwise(ends)]


class Rows(NamedTuple):
    """One row for every spin: all couplings that act on it, those from known inputs first."""

    visible: Array
    """(J, h, F, K), for the visible spins: (Nv, Nv+q+Nh), q the number of fields"""
    hidden: Array
    """(L, b, G, M), for the hidden spins: (Nh, Nv+q), with M (Nh, Nv+q+Nh)"""


def _row_blocks(spins: str) -> list[Block]:
    """The blocks that act on visible or on hidden spins, in the order of their rows."""
    return sorted(
        (block for block in TABLE if block.rows == spins), key=lambda block: block.columns == "hidden"
    )


def rows_of(couplings: Couplings) -> Rows:
    """The couplings, row by row."""
    joined = []
    for spins in Rows._fields:
        blocks = [getattr(couplings, block.name) for block in _row_blocks(spins)]
        n = len(blocks[0])
        joined.append(np.hstack([x.reshape(n, _width(x, n)) for x in blocks]))
    return Rows(*joined)


def _width(block: Array, n: int) -> int:
    """Columns of a block in rows of n spins; a vector of biases has one, an empty one none."""
    return int(block.shape[1]) if block.ndim == 2 else block.size // n if n else 0


def from_rows(rows: Rows, like: Couplings) -> Couplings:
    """The inverse of `rows_of`, in the shapes of the couplings given."""
    found: dict[str, Array] = {}
    for spins, joined in zip(Rows._fields, rows, strict=True):
        blocks = {block.name: getattr(like, block.name) for block in _row_blocks(spins)}
        ends = np.cumsum([0, *(_width(x, len(joined)) for x in blocks.values())])
        for (name, x), (a, b) in zip(blocks.items(), pairwise(ends), strict=True):
            found[name] = joined[:, a:b].reshape(x.shape)
    return Couplings(**found)


def present(couplings: Couplings) -> dict[str, bool]:
    """For each block, whether it is learned: it is empty where it is not."""
    return {name: bool(x.size) for name, x in couplings._asdict().items()}
