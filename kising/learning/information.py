"""What is left of an information matrix, and the variances that follow from it."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh
from scipy.linalg.lapack import dpotrf, dpotri

from kising.learning.steps.scaled import RIDGE
from kising.model import Array

# A direction in which less than this share of the complete-data information is left is not determined by the
# recording. Neither is a coupling with more than a tenth of itself in such directions.
LEAST_SHARE = 1e-3
MOST_UNDETERMINED = 0.1

RowPlaces = Sequence[npt.NDArray[np.int64]]
"""Where the couplings that act on each spin lie."""


def inverse_diagonal(complete: Array, missing: Array, rows: RowPlaces) -> Array:
    """The diagonal of (complete - missing)⁻¹; infinite for couplings that are not determined. `complete` couples no two
    rows; a ridge is added to it.
    """
    complete[np.diag_indices_from(complete)] += RIDGE
    whole = _diagonal_by_rows(complete, rows)
    observed = _diagonal_by_factor(complete - missing)
    if observed is not None and np.all(LEAST_SHARE * observed < whole):
        return observed
    # Something is not determined. Sampling noise mixes a little of its directions into all other couplings, which are
    # therefore judged without them.
    share, directions = eigh(complete - missing, complete)
    squares = directions**2
    determined = share > LEAST_SHARE
    found: Array = np.sum(squares[:, determined] / share[determined], axis=1)
    found[np.sum(squares[:, ~determined], axis=1) > MOST_UNDETERMINED * whole] = np.inf
    return found


def _diagonal_by_rows(complete: Array, rows: RowPlaces) -> Array:
    """The diagonal of the inverse of a matrix that couples no two rows."""
    diagonal = np.empty(len(complete))
    for row in rows:
        diagonal[row] = np.diag(np.linalg.inv(complete[np.ix_(row, row)]))
    return diagonal


def _diagonal_by_factor(matrix: Array) -> Array | None:
    """The diagonal of the inverse; None for a matrix that is not positive definite."""
    factor, failed = dpotrf(matrix, lower=1)
    if failed:
        return None
    inverse, _ = dpotri(factor, lower=1, overwrite_c=1)
    diagonal: Array = np.diag(inverse).copy()
    return diagonal
