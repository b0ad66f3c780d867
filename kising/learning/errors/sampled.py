"""Standard errors from sampled paths: where hidden spins act on each other, or entries are missing.

If all spins were observed, the score and the information of a step would be, row by row,

    S_k(t) = (z_k(t+1) - tanh H_k(t+1)) x(t)         B of row k: (1 - tanh² H_k(t+1)) x xᵀ,   x = (s, 1, u, σ)

What is left of the information when they are not is (Louis 1982) Σ_t ⟨B⟩ minus the covariance of Σ_t S(t) given what is
known. The unknown spins of neighbouring steps depend on each other, and so do their scores: covariances between steps
count as well. Time is cut into blocks, longer than these correlations last, and with S_b the score of a block

    Cov Σ_b S_b = Σ_b Cov(S_b, S_b) + Cov(S_b, S_b+1) + Cov(S_b+1, S_b)

over samples of whole paths. Blocks that do not touch have no covariance but for noise, and are left out.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kising.estimators.parallel import one_blas_thread
from kising.estimators.paths.network import Network
from kising.estimators.paths.sampled import swept
from kising.estimators.paths.statistics import window
from kising.estimators.paths.timeline import Timeline
from kising.estimators.sampling import Sampling
from kising.estimators.slices import Slices
from kising.learning.errors.information import inverse_diagonal, moved_biases, prior_information
from kising.learning.layout import Rows, from_rows, rows_of
from kising.model import Array, Couplings, Spins
from kising.seeds import Seed

# Sweeps before the first sample, and from one to the next.
SETTLING = 60
SPACING = 3
# Samples from which the length of blocks follows, and from which ⟨B⟩ is taken.
FEW = 12
# Steps from which the length of blocks follows; blocks whose scores are made together; scores held at a time.
EXAMINED = 10_000
TOGETHER = 256
MOST_NUMBERS = 20_000_000
# Scores of blocks, over all samples, for every coupling; and how many samples there may be.
SCORES_PER_COUPLING = 60
SAMPLES = (48, 600)
# A block is this many times as long as correlations last.
TIMES_CORRELATION = 4
BLOCK = (6, 256)
# Correlations below this may be noise, and so may those of spins that vary less than this share of others.
LEAST_CORRELATION = 0.1
LEAST_VARIANCE = 0.01


def sampled_standard_errors(
    couplings: Couplings,
    slices: Slices,
    *,
    seed: Seed,
    shift: Array | None = None,
    widths: dict[str, float] | None = None,
) -> Couplings:
    """The standard error of every coupling; infinite where the recording does not determine it. `shift` and
    `widths` are those of `standard_errors`.
    """
    timeline = Timeline.of(slices)
    network = timeline.network(couplings)
    columns = _learned_columns(couplings)
    size = sum(x.size for x in couplings)
    n_steps = int(np.sum(timeline.sources))
    last = len(timeline.spins) - 1
    length = max(_block_length(network, timeline, seed), -(-last * size // MOST_NUMBERS))
    n_blocks = -(-last // length)
    samples = int(np.clip(SCORES_PER_COUPLING * size // n_blocks, *SAMPLES))
    with one_blas_thread():
        complete, missing = np.zeros((size, size)), np.zeros((size, size))
        mean = np.zeros((n_blocks, size))
        for k, states in enumerate(_states(network, timeline, samples, seed)):
            scores = []
            for start in range(0, last, TOGETHER * length):
                part = slice(start, min(start + TOGETHER * length, last))
                x, residual, freedom = _step_scores(network, timeline, states, part)
                if k < FEW:
                    _add_complete(complete, x, freedom, columns)
                scores.append(_block_scores(x, residual, columns, length))
            found = np.concatenate(scores)
            mean += found
            _add_products(missing, found)
        centre = np.zeros_like(missing)
        _add_products(centre, mean / samples)
        missing = (missing - samples * centre) / (samples - 1)
        places = np.cumsum([0, *(len(chosen) for chosen in columns)])
        rows = [np.arange(a, b) for a, b in pairwise(places)]
        change = moved_biases(couplings, places[:-1].tolist(), shift)
        complete /= FEW * n_steps
        if widths is not None:
            complete[np.diag_indices_from(complete)] += prior_information(widths, couplings, n_steps)
        variance = inverse_diagonal(complete, missing / n_steps, rows, change) / n_steps
    return _as_couplings(np.sqrt(variance), couplings)


Columns = list[npt.NDArray[np.int64]]


def _learned_columns(couplings: Couplings) -> Columns:
    """For every spin, the entries of x = (z, 1, u) whose couplings to it are learned, as in the rows of `layout`."""
    nv, nh = couplings.K.shape
    n = nv + nh
    bias = [n] if couplings.h.size or couplings.b.size else []
    known = [*range(nv), *bias, *range(n + 1, n + 1 + couplings.F.shape[1])]
    hidden = list(range(nv, n))
    visible_row = np.array([*known, *hidden])
    hidden_row = np.array([*known, *hidden] if couplings.M.size else known)
    return [visible_row] * nv + [hidden_row] * nh


def _as_couplings(errors: Array, like: Couplings) -> Couplings:
    """A vector of all rows as couplings."""
    shapes = rows_of(like)
    cut = shapes.visible.size
    return from_rows(
        Rows(errors[:cut].reshape(shapes.visible.shape), errors[cut:].reshape(shapes.hidden.shape)), like
    )


def _states(network: Network, timeline: Timeline, samples: int, seed: Seed) -> Iterator[Spins]:
    """Sampled states of all spins: always the same array, changed in place."""
    sampling = Sampling(sweeps=max(8, SPACING * samples), settling=SETTLING, seed=seed)
    for k, states in enumerate(swept(network, timeline, sampling, threads=1)):
        if k % SPACING == 0 and k < SPACING * samples:
            yield states


def _step_scores(
    network: Network, timeline: Timeline, states: Spins, part: slice
) -> tuple[Array, Array, Array]:
    """x, z(t+1) - tanh H and 1 - tanh² H of some steps; both 0 where these cross the border of a segment."""
    x, expected, counts = window(network, timeline, states, part)
    weights = np.repeat(counts, (network.visible, network.hidden), axis=1)
    after = states[part.start + 1 : part.stop + 1]
    return x, weights * (after - expected), weights * (1.0 - expected**2)


def _block_length(network: Network, timeline: Timeline, seed: Seed) -> int:
    """From how long unknown spins stay correlated, given what is known."""
    unknown = timeline.unknown(network.hidden)
    unknown[timeline.bounds[1:] - 1, network.visible :] = False
    unknown = unknown[:EXAMINED]
    drawn = np.array(
        [states[:EXAMINED].copy() for states in _states(network, timeline, FEW, seed)], np.float64
    )
    varying = (drawn - drawn.mean(axis=0)) * unknown
    squares = np.sum(varying**2, axis=(0, 1))
    varying = varying[:, :, squares > LEAST_VARIANCE * np.max(squares)]
    varying /= np.sqrt(np.sum(varying**2, axis=(0, 1)))
    time = 1.0
    for lag in range(1, min(BLOCK[1], len(unknown) - 1)):
        # Of any two spins: along a ring, what one spin was is passed on to the next.
        share = np.max(np.abs(_correlations(varying, lag)), initial=0.0)
        if share < LEAST_CORRELATION:
            break
        time += share
    return int(np.clip(TIMES_CORRELATION * time, *BLOCK))


def _correlations(varying: Array, lag: int) -> Array:
    """Σ_t of all samples of δ_j(t) δ_k(t + lag), where Σ_t δ_j(t)² is 1."""
    n_units = varying.shape[2]
    earlier, later = varying[:, :-lag].reshape(-1, n_units), varying[:, lag:].reshape(-1, n_units)
    found: Array = earlier.T @ later
    return found


def _block_scores(x: Array, residual: Array, columns: Columns, length: int) -> Array:
    """The scores of all blocks, (blocks, number of couplings)."""
    n_blocks = -(-len(x) // length)
    padded = [np.zeros((n_blocks * length, a.shape[1])) for a in (x, residual)]
    for room, a in zip(padded, (x, residual), strict=True):
        room[: len(a)] = a
    inputs, surprise = (a.reshape(n_blocks, length, -1) for a in padded)
    scores = np.matmul(surprise.transpose(0, 2, 1), inputs)
    return np.concatenate([scores[:, k, chosen] for k, chosen in enumerate(columns)], axis=1)


def _add_products(total: Array, scores: Array) -> None:
    """Σ_b S_b S_bᵀ and the products of neighbours, both ways."""
    total += scores.T @ scores
    across = scores[:-1].T @ scores[1:]
    total += across + across.T


def _add_complete(total: Array, x: Array, freedom: Array, columns: Columns) -> None:
    first = 0
    for k, chosen in enumerate(columns):
        here = slice(first, first + len(chosen))
        inputs = x[:, chosen]
        total[here, here] += (inputs.T * freedom[:, k]) @ inputs
        first = here.stop
