"""Where learning starts (maths.md, "Initial couplings").

`signs`    the paper's: the sign of the true coupling times a random magnitude; a true zero starts at zero.
           It tells the learner part of the truth, and resolves the symmetries of hidden units.
`random`   nothing of the truth: J from a fit of the visible spins alone, K and L random.
"""

import numpy as np

from kising.estimators.chunks import cut
from kising.model import Array, BondScales, Couplings, Spins
from kising.seeds import Seed, random_stream

STARTS = ("signs", "random")
# Near K = L = 0 the likelihood is flat in both; half a bond's scale is far enough from it for learning to set
# off at once.
SPREAD = 0.5
# How long steps must have shrunk before they are accelerated (`em.Learning.patience`). Accelerated from the
# first, most fits of (20, 4, g=1, c=1) from a random start ended on a saddle; with this patience, none of
# those tried did.
PATIENCE = {"signs": 0, "random": 10}
VISIBLE_ITERATIONS = 30
VISIBLE_TOLERANCE = 1e-6


def chain_seed(seed: Seed) -> Seed:
    """The seed of what a sampling learner draws after the start."""
    return _later(seed, 1)


def error_seed(seed: Seed) -> Seed:
    """The seed of what standard errors draw after learning."""
    return _later(seed, 2)


def seeds_of(seed: Seed, starts: int) -> list[Seed]:
    """The seeds of several starts, the first of which is the seed itself."""
    return [seed, *(_later(seed, 2 + k) for k in range(1, starts))]


def _later(seed: Seed, place: int) -> Seed:
    if isinstance(seed, np.random.SeedSequence):
        return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, place))
    return (seed, place) if isinstance(seed, int) else (*seed, place)


def from_signs(truth: Couplings, scales: BondScales, seed: Seed) -> Couplings:
    """sign(X) |N(0, sd_X²)| for each true coupling X."""
    rng = random_stream(seed)
    return Couplings(
        *(np.sign(x) * np.abs(sd * rng.standard_normal(x.shape)) for x, sd in zip(truth, scales, strict=True))
    )


def from_data(visible: Spins, hidden: int, scales: BondScales, seed: Seed) -> Couplings:
    """J by maximum likelihood of the visible spins alone; K and L are N(0, (sd_X/2)²)."""
    nv = visible.shape[1]
    rng = random_stream(seed)
    K = SPREAD * scales.K * rng.standard_normal((nv, hidden))
    L = SPREAD * scales.L * rng.standard_normal((hidden, nv))
    return Couplings(fit_visible(visible), K, L)


def fit_visible(visible: Spins) -> Array:
    """J that maximises Σ_t Σ_i [s_i⁺ θ_i - log 2cosh θ_i], θ = J s: by steps of G C⁻¹ / mean(1 - tanh² θ_i),
    C = mean s sᵀ.
    """
    nv = visible.shape[1]
    n_slices = visible.shape[0] - 2
    J = np.zeros((nv, nv))
    for _ in range(VISIBLE_ITERATIONS):
        slope = np.zeros((nv, nv))
        second = np.zeros((nv, nv))
        freedom = np.zeros(nv)
        for part in cut(n_slices):
            spins = visible[part.start + 1 : part.stop + 2].astype(np.float64)
            now, after = spins[:-1], spins[1:]
            expected = np.tanh(now @ J.T)
            slope += (after - expected).T @ now
            second += now.T @ now
            freedom += np.sum(1.0 - expected**2, axis=0)
        second[np.diag_indices(nv)] += 1e-3 * n_slices / max(n_slices, 1000)
        step = np.linalg.solve(second, slope.T).T / np.maximum(freedom / n_slices, 0.05)[:, None]
        J = J + step
        if np.sqrt(np.mean(step**2)) < VISIBLE_TOLERANCE:
            break
    return J
