"""log Z of a slice by importance sampling, where its 2^Nh states are too many to sum (docs/maths.md, "Exact averages").

Hidden spins are drawn one by one from given magnetisations, q(σ) = Π_a (1 + σ_a μ_a)/2, and

    Z = Σ_σ w(σ) = ⟨ w/q ⟩_q          w(σ) = exp[ Σ_a g_a σ_a - Σ_i log 2cosh f_i(σ) ]

is estimated by the mean over draws. The closer q is to the true distribution, the smaller is the error, which follows
from the scatter of w/q: for log Z it is sd(w/q) / (mean(w/q) √draws). The mean of w/q is unbiased; its log is too
small by half the square of that error.
"""

import numpy as np

from kising.estimators.chunks import Chunk
from kising.kernels.counter import philox, uniform
from kising.kernels.jit import kernel
from kising.model import Array, Couplings

# A draw must be able to go against its magnetisation, however close to ±1 that is. Where important states are
# drawn too seldom, the scatter of a few hundred draws misses them and the error comes out too small: by half at 0.98,
# not at all at 0.9.
LARGEST_MAGNETISATION = 0.9
# Word of the counter's last place: what a number is for.
PROPOSAL = 2


def log_z(
    couplings: Couplings, chunk: Chunk, mu: Array, *, first: int, key: np.uint64, draws: int
) -> tuple[Array, Array]:
    """log Z of the chunk's slices, whose first is number `first` of the recording, and its standard error."""
    K = couplings.K
    mu = np.clip(mu, -LARGEST_MAGNETISATION, LARGEST_MAGNETISATION)
    logs = np.empty((draws, len(mu)))
    sigma = np.empty(mu.shape)
    for draw in range(draws):
        _propose(mu, first, draw, key, sigma)
        f = np.abs(chunk.theta + sigma @ K.T)
        weight = np.sum(chunk.g * sigma, axis=1) - np.sum(f + np.log1p(np.exp(-2.0 * f)), axis=1)
        logs[draw] = weight - np.sum(np.log(0.5 + 0.5 * sigma * mu), axis=1)
    top = logs.max(axis=0)
    ratio = np.exp(logs - top)
    mean = ratio.mean(axis=0)
    return top + np.log(mean), ratio.std(axis=0, ddof=1) / (mean * np.sqrt(draws))


@kernel
def _propose(mu: Array, first: int, draw: int, key: np.uint64, sigma: Array) -> None:
    n, nh = mu.shape
    for t in range(n):
        for a in range(nh):
            place = np.uint64(draw) << np.uint64(16) | np.uint64(a)
            word = philox(key, np.uint64(first + t), place, np.uint64(0), np.uint64(PROPOSAL))[0]
            sigma[t, a] = 1.0 if 2.0 * uniform(word) - 1.0 < mu[t, a] else -1.0
