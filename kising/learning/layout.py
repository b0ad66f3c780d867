"""The couplings in other shapes: as one vector, or as rows that share their inputs."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kising.blocks import BLOCKS, TABLE, shapes
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
    """One row for every spin: all couplings that act on it, block after block."""

    visible: Array
    """(J, K), for the visible spins: (Nv, Nv+Nh)"""
    hidden: Array
    """L, for the hidden spins: (Nh, Nv)"""


def rows_of(couplings: Couplings) -> Rows:
    """The couplings, row by row."""
    blocks = list(zip(TABLE, couplings, strict=True))
    return Rows(*(np.hstack([x for block, x in blocks if block.rows == spins]) for spins in Rows._fields))


def from_rows(rows: Rows) -> Couplings:
    """The inverse of `rows_of`."""
    widths = {name: shape[1] for name, shape in shapes(len(rows.visible), len(rows.hidden)).items()}
    found: dict[str, Array] = {}
    for spins, joined in zip(Rows._fields, rows, strict=True):
        names = [block.name for block in TABLE if block.rows == spins]
        ends = np.cumsum([0, *(widths[name] for name in names)])
        found |= {name: joined[:, a:b] for name, (a, b) in zip(names, pairwise(ends), strict=True)}
    return Couplings(**found)
