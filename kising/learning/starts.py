"""Where learning starts (docs/maths.md, "Initial couplings"), and the seeds of what is drawn on the way.

`signs`    the paper's start: the sign of the true coupling times a random magnitude; a true zero starts at zero.
           It gives the learner part of the truth, and resolves the symmetries of hidden units.
`random`   uses no truth: J from a fit of the visible spins alone, K and L random, M random where it is learned.
"""

import numpy as np

from kising.errors import InputError
from kising.estimators.chunks import cut
from kising.estimators.slices import Slices, as_slices
from kising.learning.state import Problem
from kising.model import Array, BondScales, Couplings, Spins
from kising.seeds import Seed, random_stream

# Near K = L = 0 the likelihood is flat in both. Half a bond scale is far enough away for learning to leave at once.
SPREAD = 0.5
# Iterations in a row for which steps must have shrunk before they are accelerated. With acceleration from the first
# iteration, most fits of (20, 4, g=1, c=1) from a random start ended on a saddle; with this rule, none did.
PATIENCE = {"signs": 0, "random": 10}
VISIBLE_ITERATIONS = 30
VISIBLE_TOLERANCE = 1e-6


def draw_start(problem: Problem, start: str, seed: Seed) -> Couplings:
    """The couplings that learning starts from."""
    if start == "random":
        return from_data(
            problem.slices,
            problem.hidden,
            problem.scales,
            seed,
            bias=problem.bias,
            hidden_couplings=problem.hidden_couplings,
        )
    if problem.truth is None:
        raise InputError(
            "start='signs' takes the signs of the true couplings: give truth=, or start='random'"
        )
    return from_signs(problem.truth.only(problem.learned_blocks), problem.scales, seed)


def chain_seed(seed: Seed) -> Seed:
    """The seed of what a sampling learner draws after the start."""
    return _later(seed, 1)


def error_seed(seed: Seed) -> Seed:
    """The seed of what standard errors draw after learning."""
    return _later(seed, 2)


def seeds_of(seed: Seed, starts: int) -> list[Seed]:
    """The seeds of several starts; the first is the seed itself."""
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


def from_data(
    recording: Slices | Spins,
    hidden: int,
    scales: BondScales,
    seed: Seed,
    *,
    bias: bool = False,
    hidden_couplings: bool = False,
) -> Couplings:
    """J, h and F by maximum likelihood of the visible spins alone; K, L and M are N(0, (sd_X/2)²), b and G zero."""
    slices = as_slices(recording)
    nv, p = slices.n_visible, slices.n_inputs
    rng = random_stream(seed)
    K = SPREAD * scales.K * rng.standard_normal((nv, hidden))
    L = SPREAD * scales.L * rng.standard_normal((hidden, nv))
    M = SPREAD * scales.M * rng.standard_normal((hidden, hidden if hidden_couplings else 0))
    known = fit_visible(slices, bias=bias)
    return Couplings(
        known[:, :nv],
        K,
        L,
        h=known[:, nv : nv + bias].ravel(),
        b=np.zeros(hidden * bias),
        F=known[:, nv + bias :],
        G=np.zeros((hidden, p)),
        M=M,
    )


def fit_visible(recording: Slices | Spins, *, bias: bool = False) -> Array:
    """(J, h, F) that maximises Σ_t Σ_i [s_i⁺ θ_i - log 2cosh θ_i], θ = (J, h, F) x with x = (s, 1, u): by steps of
    G C⁻¹ / mean(1 - tanh² θ_i), C = mean x xᵀ.

    The mean stands for the weights of all slices. It is too small along directions in which a spin is freer than usual,
    and full steps of a spin that usually has no choice jump to and fro between two points, ever further apart. A row
    whose step has led to a steeper slope behind the maximum takes shorter ones from then on.
    """
    slices = as_slices(recording)
    n_slices = len(slices)
    nv, size = slices.n_visible, slices.n_visible + bias + slices.n_inputs
    J = np.zeros((nv, size))
    step, share, rise = np.zeros((nv, size)), np.ones(nv), np.zeros(nv)
    for _ in range(VISIBLE_ITERATIONS):
        slope = np.zeros((nv, size))
        second = np.zeros((size, size))
        freedom = np.zeros(nv)
        for part in cut(n_slices):
            window = slices.window(part, bias=bias)
            x = window.known_now
            expected = np.tanh(x @ J.T)
            surprise = window.after - expected
            if slices.has_gaps:
                surprise[window.after == 0] = 0.0
            slope += surprise.T @ x
            second += x.T @ x
            freedom += np.sum(1.0 - expected**2, axis=0)
        second[np.diag_indices(size)] += 1e-3 * n_slices / max(n_slices, 1000)
        # By the slopes at both ends of the last step: the share of it after which the slope would have vanished.
        fall = -np.sum(slope * step, axis=1)
        too_far = fall > rise
        share[too_far] *= rise[too_far] / (rise[too_far] + fall[too_far])
        step = np.linalg.solve(second, slope.T).T / np.maximum(freedom / n_slices, 0.05)[:, None]
        step *= share[:, None]
        rise = np.sum(slope * step, axis=1)
        J = J + step
        if np.sqrt(np.mean(step**2)) < VISIBLE_TOLERANCE:
            break
    return J
