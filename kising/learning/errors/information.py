"""What is left of an information matrix, and the variances that follow from it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh
from scipy.linalg.lapack import dpotrf, dpotri

from kising.learning.layout import rows_of
from kising.learning.steps.prior import precisions
from kising.learning.steps.scaled import RIDGE
from kising.model import Array, Couplings

# A direction in which less than this share of the complete-data information is left is not determined by the
# recording. Neither is a coupling with more than a tenth of itself in such directions.
LEAST_SHARE = 1e-3
MOST_UNDETERMINED = 0.1

RowPlaces = Sequence[npt.NDArray[np.int64]]
"""Where the couplings that act on each spin lie."""


class Change(NamedTuple):
    """A change of some couplings: x[places] - x[weights] @ shift stands for x[places]."""

    places: npt.NDArray[np.int64]
    """(k,)"""
    weights: npt.NDArray[np.int64]
    """(k, p)"""
    shift: Array
    """(p,)"""

    def of_rows(self, directions: Array) -> Array:
        """Directions, one per column, in the couplings that are meant."""
        changed = directions.copy()
        changed[self.places] -= np.einsum("kpn,p->kn", directions[self.weights], self.shift)
        return changed

    def of_diagonal(self, covariance: Array) -> Array:
        """The diagonal of a covariance in the couplings that are meant; only its lower triangle is read."""
        diagonal: Array = np.diag(covariance).copy()
        mixed = covariance[self.weights, self.places[:, None]]
        among = covariance[self.weights[:, :, None], self.weights[:, None, :]]
        among = np.tril(among) + np.tril(among, -1).transpose(0, 2, 1)
        diagonal[self.places] += among @ self.shift @ self.shift - 2.0 * mixed @ self.shift
        return diagonal


def moved_biases(couplings: Couplings, starts: Iterable[int], shift: Array | None) -> Change | None:
    """h - F shift and b - G shift for the biases, where rows begin at `starts` with the couplings to (s, 1, u); None
    where nothing is moved.
    """
    if shift is None or not shift.any() or not couplings.h.size:
        return None
    places = np.array(list(starts), dtype=np.int64) + couplings.K.shape[0]
    return Change(places, places[:, None] + 1 + np.arange(len(shift)), shift)


def prior_information(widths: dict[str, float], couplings: Couplings, n_steps: int) -> Array:
    """What a prior adds to the information per step, for every coupling, row by row."""
    rows = rows_of(precisions(widths, couplings, n_steps))
    return np.concatenate([x.ravel() for x in rows])


def inverse_diagonal(complete: Array, missing: Array, rows: RowPlaces, change: Change | None = None) -> Array:
    """The diagonal of (complete - missing)⁻¹, after a change of couplings; infinite for couplings that are not
    determined. `complete` couples no two rows; a ridge is added to it.
    """
    complete[np.diag_indices_from(complete)] += RIDGE
    whole = _diagonal_by_rows(complete, rows, change)
    observed = _diagonal_by_factor(complete - missing, change)
    if observed is not None and np.all(LEAST_SHARE * observed < whole):
        return observed
    # Something is not determined. Sampling noise mixes a little of its directions into all other couplings, which are
    # therefore judged without them.
    share, directions = eigh(complete - missing, complete)
    squares = (directions if change is None else change.of_rows(directions)) ** 2
    determined = share > LEAST_SHARE
    found: Array = np.sum(squares[:, determined] / share[determined], axis=1)
    found[np.sum(squares[:, ~determined], axis=1) > MOST_UNDETERMINED * whole] = np.inf
    return found


def _diagonal_by_rows(complete: Array, rows: RowPlaces, change: Change | None) -> Array:
    """The diagonal of the inverse of a matrix that couples no two rows."""
    inverse = np.zeros_like(complete) if change is not None else None
    diagonal = np.empty(len(complete))
    for row in rows:
        own = np.linalg.inv(complete[np.ix_(row, row)])
        diagonal[row] = np.diag(own)
        if inverse is not None:
            inverse[np.ix_(row, row)] = own
    return diagonal if change is None or inverse is None else change.of_diagonal(inverse)


def _diagonal_by_factor(matrix: Array, change: Change | None) -> Array | None:
    """The diagonal of the inverse; None for a matrix that is not positive definite."""
    factor, failed = dpotrf(matrix, lower=1)
    if failed:
        return None
    inverse, _ = dpotri(factor, lower=1, overwrite_c=1)
    diagonal: Array = np.diag(inverse).copy() if change is None else change.of_diagonal(inverse)
    return diagonal
