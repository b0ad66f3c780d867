"""The bonds of K as one list: dense and sparse couplings go through the same loops.

A bond with K_ia = 0 passes no message: x = tanh(K) m = 0 multiplies everything by one. Leaving it out changes
neither the fixed point nor the moments. It has one effect: the mean square change that decides convergence
is taken over the bonds of the list.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kising.model import Array

Indices = npt.NDArray[np.int64]


class Edges(NamedTuple):
    """Bonds in the order of visible spins, then of hidden spins."""

    start: Indices
    """the bonds of visible spin i are start[i] .. start[i+1]-1, (Nv+1,)"""
    hidden: Indices
    """the hidden spin a of a bond, (E,)"""
    t: Array
    """tanh K_ia, (E,)"""
    slope: Array
    """½ sinh 2K_ia, (E,)"""
    square: Array
    """sinh² K_ia, (E,)"""


def edges_of(K: Array, dtype: npt.DTypeLike) -> Edges:
    """The non-zero bonds of K, their functions rounded to `dtype`."""
    i, a = np.nonzero(K)
    bond = K[i, a]
    start = np.searchsorted(i, np.arange(K.shape[0] + 1))
    values = (np.tanh(bond), 0.5 * np.sinh(2.0 * bond), np.sinh(bond) ** 2)
    t, slope, square = (x.astype(dtype) for x in values)
    return Edges(start.astype(np.int64), a.astype(np.int64), t, slope, square)
