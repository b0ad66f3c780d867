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
Flags = npt.NDArray[np.bool_]


class Edges(NamedTuple):
    """Bonds in the order of visible spins, then of hidden spins."""

    start: Indices
    """the bonds of visible spin i are start[i] .. start[i+1]-1, (Nv+1,)"""
    hidden: Indices
    """the hidden spin a of a bond, (E,)"""
    kappa: Array
    """κ = e^{-2 K_ia}, (E,)"""
    slope: Array
    """½ sinh 2K_ia, (E,)"""
    square: Array
    """sinh² K_ia (1 + κ)², (E,)"""
    rest: Flags
    """whether the products of a visible spin are rescaled before this bond, (E,)"""
    rest_hidden: Flags
    """whether those of all hidden spins are rescaled before this visible spin, (Nv,)"""


def edges_of(K: Array, dtype: npt.DTypeLike, largest: float | None = None) -> Edges:
    """The non-zero bonds of K, their functions rounded to `dtype`.

    `largest` is the logarithm up to which a product is safe; None: no product can overflow.
    """
    i, a = np.nonzero(K)
    bond = K[i, a]
    start = np.searchsorted(i, np.arange(K.shape[0] + 1))
    kappa = np.exp(-2.0 * bond)
    values = (kappa, 0.5 * np.sinh(2.0 * bond), (np.sinh(bond) * (1.0 + kappa)) ** 2)
    kappa, slope, square = (x.astype(dtype) for x in values)
    rest, rest_hidden = np.zeros(len(i), np.bool_), np.zeros(len(K), np.bool_)
    if largest is not None:
        # A bond changes the logarithm of a visible spin's product by at most 4|K|, of a hidden spin's by 2|K|.
        for row in range(len(K)):
            part = slice(start[row], start[row + 1])
            rest[part] = _rests(4.0 * np.abs(bond[part]), largest)
        rest_hidden = _rests(2.0 * np.abs(K).max(axis=1), largest)
    return Edges(start.astype(np.int64), a.astype(np.int64), kappa, slope, square, rest, rest_hidden)


def _rests(sizes: Array, largest: float) -> Flags:
    """Where a running sum would pass `largest` and starts anew."""
    found = np.zeros(len(sizes), np.bool_)
    total = 0.0
    for place, size in enumerate(sizes):
        found[place] = total + size > largest
        total = size if found[place] else total + size
    return found
