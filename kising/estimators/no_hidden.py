"""Averages where there are no hidden spins: nothing is averaged, m_i = tanh θ_i.

Learning is then one logistic regression per visible spin, a concave problem: the baseline for all other models.
"""

import numpy as np

from kising.estimators.chunks import Chunk, Estimate
from kising.estimators.estep import EStep
from kising.model import Couplings


def estimate(couplings: Couplings, chunk: Chunk, out: Estimate, *, estep: EStep, first: int) -> None:
    """Fill `out`: log Z = -Σ_i log 2cosh θ_i."""
    size = np.abs(chunk.theta)
    out.m[:] = np.tanh(chunk.theta)
    out.log_z[:] = -np.sum(size + np.log1p(np.exp(-2.0 * size)), axis=1)
    out.converged[:] = True
    out.iterations[:] = 1
