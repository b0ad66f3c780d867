"""Standard errors of networks with couplings M among hidden spins.

Slices are then not independent of each other given the visible spins, and the information that a recording holds about
the couplings is a sum over steps of what each adds to all before it:

    I = Σ_t ⟨ψ_t ψ_tᵀ⟩,    ψ_t = ∂ log P(s(t+1) | s(≤t)) / ∂θ

with the mean over outcomes s(t+1) given the past (`exact/tangent.py`, which draws some per step). The draws of all
steps make a matrix of N vectors ψ, at least LEAST_DRAWS for every coupling. The inverse of a mean of N outer products
of D numbers is too large by about N/(N - D): errors are corrected for that.

What the recording would tell if the hidden spins were observed, ⟨(1 - tanh² F_k) x xᵀ⟩ row by row, comes from sampled
paths. It only decides which couplings are not determined (`information.py`).
"""

import numpy as np

from kising.estimators.exact.paths import sample, score_chunks
from kising.estimators.parallel import one_blas_thread
from kising.estimators.registry import entry
from kising.estimators.slices import Slices
from kising.estimators.steps import Steps
from kising.learning.errors.information import inverse_diagonal, moved_biases, prior_information
from kising.learning.layout import Rows, from_rows
from kising.model import Array, Couplings
from kising.seeds import Seed

LEAST_DRAWS = 50
PATHS = 4


def exact_errors(couplings: Couplings) -> bool:
    """Whether the hidden spins of a network with M are few enough for this."""
    largest = entry("exact").largest_coupled
    return largest is None or couplings.K.shape[1] <= largest


def path_standard_errors(
    couplings: Couplings,
    slices: Slices,
    *,
    seed: Seed,
    shift: Array | None = None,
    widths: dict[str, float] | None = None,
) -> Couplings:
    """The standard error of every coupling of a network with M; infinite where the recording does not determine it.
    `shift` and `widths` are those of `standard_errors`.
    """
    (nv, nh), steps = couplings.K.shape, Steps.of(slices)
    size = sum(x.size for x in couplings)
    width = size // (nv + nh)
    draws = -(-LEAST_DRAWS * size // len(steps))
    observed = np.zeros((size, size))
    with one_blas_thread():
        for psi in score_chunks(couplings, slices, draws, seed=seed):
            observed += psi.T @ psi
        observed /= len(steps) * draws
        complete = _complete(couplings, steps, seed)
        rows = [np.arange(k, k + width) for k in range(0, size, width)]
        change = moved_biases(couplings, range(0, size, width), shift)
        missing = complete - observed
        if widths is not None:
            complete[np.diag_indices_from(complete)] += prior_information(widths, couplings, len(steps))
        variance = inverse_diagonal(complete, missing, rows, change) / len(steps)
    errors = np.sqrt(variance * (1.0 - (size + 1) / (len(steps) * draws)))
    joined = errors.reshape(nv + nh, width)
    return from_rows(Rows(joined[:nv], joined[nv:]), couplings)


def _complete(couplings: Couplings, steps: Steps, seed: Seed) -> Array:
    """The mean over steps of the complete-data information."""
    nv, nh = couplings.K.shape
    size = sum(x.size for x in couplings)
    width = size // (nv + nh)
    total = np.zeros((size, size))
    paths = sample(couplings, steps.slices, PATHS, seed=seed)
    for group in steps.groups():
        for part in group:
            found = steps.fields(couplings, part)
            for sigma in paths[:, part].astype(np.float64):
                x = np.hstack([found.known, sigma])
                m = np.tanh(found.theta + sigma @ couplings.K.T)
                expected = np.tanh(found.drive + sigma @ couplings.M.T)
                freedom = np.hstack([1.0 - m**2, (1.0 - expected**2) * ~steps.ends[part, None]])
                for row in range(nv + nh):
                    here = slice(row * width, (row + 1) * width)
                    total[here, here] += (x.T * freedom[:, row]) @ x
    return total / (PATHS * len(steps))
