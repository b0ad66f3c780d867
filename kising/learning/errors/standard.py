"""Standard errors of learned couplings, from the observed information (docs/maths.md, "Learning", has the gradient).

Slices are independent given the visible spins, so the information that a recording holds is a sum over them. If the
hidden spins of a slice were seen, its score and information would be, row by row of (J, K) and of L,

    S_ij = (s_i⁺ - tanh f_i) x_j,  x = (s, σ)         B of row i: (1 - tanh² f_i) x xᵀ
    S_aj = (σ_a - tanh B_a) s_j⁻                      B of row a: (1 - tanh² B_a) s⁻ s⁻ᵀ

Biases and weights of inputs are further columns of J and L: with them, s stands for (s, 1, u) here.

What is left of the information when they are not seen is (Louis 1982)

    I = Σ_t ( ⟨B⟩ - ⟨S Sᵀ⟩ + ⟨S⟩⟨S⟩ᵀ )

with averages over the hidden spins given the visible ones, from the chains of estimator `gibbs`. Rows are separate in
B, and coupled by the covariance of S: all couplings share one matrix, and a standard error is the root of the diagonal
of its inverse. In the covariance of S only the hidden spins vary, so that with

    M_ik = Cov(tanh f_i, tanh f_k)      J with J:  Σ_t M_ik s_j s_l

and likewise for the others, the cost of the large products does not grow with the number of samples.
"""

from typing import NamedTuple

import numpy as np

from kising.estimators.chunks import Chunk, empty_estimate, fields
from kising.estimators.gibbs.chains import first_chains, sweep
from kising.estimators.parallel import one_blas_thread
from kising.estimators.slices import Slices, as_slices
from kising.kernels.counter import key_of
from kising.learning.errors.information import inverse_diagonal, moved_biases
from kising.learning.errors.paths import exact_errors, path_standard_errors
from kising.learning.errors.sampled import sampled_standard_errors
from kising.learning.layout import Rows, from_rows, rows_of
from kising.learning.steps.prior import precisions
from kising.model import Array, Couplings, Spins
from kising.seeds import Seed

SAMPLES = 32
# Sweeps before the first sample, and from one to the next: samples that resemble each other make their covariance too
# small.
SETTLING = 20
SPACING = 2
# The arrays of a chunk hold this many numbers, or half as many as the matrix where that is more, because every chunk
# passes over the whole matrix. It decides how many slices a chunk has.
LEAST_CHUNK_NUMBERS = 4_000_000


class _Samples(NamedTuple):
    """Hidden states of a chunk's slices."""

    sigma: Array
    """(n, B, Nh)"""
    m: Array
    """tanh f_i there, (n, B, Nv)"""


def standard_errors(
    couplings: Couplings,
    recording: Slices | Spins,
    *,
    seed: Seed,
    samples: int = SAMPLES,
    shift: Array | None = None,
    widths: dict[str, float] | None = None,
) -> Couplings:
    """The standard error of every coupling, in its own unit, as if the couplings given were the most likely ones;
    infinite where the recording does not determine it.

    With `widths` of a prior, errors are the standard deviations of the posterior: the precision of the prior is added
    to the information.

    With `shift`, (p,), errors of biases are those of h - F shift and b - G shift: the biases of inputs that were
    centred by subtracting it.
    """
    slices = as_slices(recording)
    if slices.has_gaps or (couplings.couples_slices and not exact_errors(couplings)):
        return sampled_standard_errors(couplings, slices, seed=seed, shift=shift, widths=widths)
    if couplings.couples_slices:
        return path_standard_errors(couplings, slices, seed=seed, shift=shift, widths=widths)
    complete, missing = information(couplings, slices, seed=seed, samples=samples)
    sizes = _sizes(couplings)
    if widths is not None:
        complete[np.diag_indices_from(complete)] += _in_order(precisions(widths, couplings, len(slices)))
    with one_blas_thread():
        J, K, L = _places(sizes)
        rows = [*(np.r_[j, k] for j, k in zip(J, K, strict=True)), *(np.r_[row] for row in L)]
        change = moved_biases(couplings, [row.start for row in (*J, *L)], shift)
        errors = np.sqrt(inverse_diagonal(complete, missing, rows, change) / len(slices))
    nv, known, nh = sizes
    on_J, on_K, on_L = np.split(errors, [nv * known, nv * (known + nh)])
    joined = Rows(np.hstack([on_J.reshape(nv, known), on_K.reshape(nv, nh)]), on_L.reshape(nh, known))
    return from_rows(joined, couplings)


def _in_order(couplings: Couplings) -> Array:
    """A number for every coupling, in the order of the information."""
    visible, hidden = rows_of(couplings)
    nh = couplings.K.shape[1]
    known = visible.shape[1] - nh
    return np.concatenate([visible[:, :known].ravel(), visible[:, known:].ravel(), hidden.ravel()])


class _Sizes(NamedTuple):
    """Of a network."""

    nv: int
    known: int
    """known inputs of a spin: Nv, one more with biases, and p"""
    nh: int


def _sizes(couplings: Couplings) -> _Sizes:
    nv, nh = couplings.K.shape
    return _Sizes(nv, nv + (1 if couplings.h.size else 0) + couplings.F.shape[1], nh)


def information(
    couplings: Couplings, recording: Slices | Spins, *, seed: Seed, samples: int = SAMPLES
) -> tuple[Array, Array]:
    """The complete-data information per slice, and the part of it that is missing: first for couplings of visible
    spins to what is known, (J, h, F), then for K, then for (L, b, G), each row by row.
    """
    slices = as_slices(recording)
    n_slices = len(slices)
    nv, known, nh = sizes = _sizes(couplings)
    size = sum(x.size for x in couplings)
    complete, missing = np.zeros((size, size)), np.zeros((size, size))
    key = key_of(seed)
    numbers = max(LEAST_CHUNK_NUMBERS, size * size // 2)
    length = max(1, numbers // (samples * nv * (nh + 1) + nv * known * (nh + 1)))
    with one_blas_thread():
        for start in range(0, n_slices, length):
            part = slice(start, min(start + length, n_slices))
            chunk = fields(couplings, slices, part)
            drawn = _draw(couplings, chunk, samples, first=start, key=key)
            _add_complete(complete, chunk, drawn, sizes)
            if nh:
                _add_missing(missing, chunk, drawn, sizes)
    return complete / n_slices, missing / n_slices


def _draw(couplings: Couplings, chunk: Chunk, samples: int, *, first: int, key: np.uint64) -> _Samples:
    nv, nh = couplings.K.shape
    n = len(chunk.g)
    if nh == 0:
        return _Samples(np.empty((1, n, 0)), np.tanh(chunk.theta)[None])
    chains = first_chains(n, nh, key, first=first)
    out = empty_estimate(n, nv, nh, keep_pairs=False)
    sigma = np.empty((samples, n, nh))
    for k in range(SETTLING + SPACING * samples):
        sweep(couplings, chunk, chains, out, first=first, key=key, iteration=k)
        if k >= SETTLING and (k - SETTLING) % SPACING == 0:
            sigma[(k - SETTLING) // SPACING] = chains
    return _Samples(sigma, np.tanh(chunk.theta + sigma @ couplings.K.T))


def _add_complete(total: Array, chunk: Chunk, drawn: _Samples, sizes: _Sizes) -> None:
    """⟨B⟩, summed over slices: one square per row of (J, K), and one per row of L."""
    sigma, m = drawn
    samples = len(sigma)
    nv, _, nh = sizes
    J, K, L = _places(sizes)
    now, before = chunk.known_now, chunk.known_before
    freedom = 1.0 - m**2
    alone = freedom.mean(axis=0)
    with_one = np.matmul(freedom.transpose(1, 2, 0), sigma.transpose(1, 0, 2)) / samples
    flat = sigma.reshape(samples * sigma.shape[1], nh)
    for i in range(nv):
        here, there = J[i], K[i]
        total[here, here] += now.T @ (alone[:, i, None] * now)
        mixed = now.T @ with_one[:, i]
        total[here, there] += mixed
        total[there, here] += mixed.T
        total[there, there] += flat.T @ (freedom[:, :, i].reshape(-1, 1) * flat) / samples
    expected = np.tanh(chunk.b)
    for a in range(nh):
        total[L[a], L[a]] += before.T @ ((1.0 - expected[:, a, None] ** 2) * before)


def _add_missing(total: Array, chunk: Chunk, drawn: _Samples, sizes: _Sizes) -> None:
    """The covariance of the score given the visible spins, summed over slices."""
    sigma, m = drawn
    samples, n, _ = sigma.shape
    nv, known, nh = sizes
    J, K, L = _places(sizes)
    allK = slice(nv * known, nv * (known + nh))
    # What varies of the score of J_ij, K_ia and L_aj: -tanh f_i, (s_i⁺ - tanh f_i) σ_a and σ_a.
    r = _varying(-m)
    rs = _varying(((chunk.after - m)[:, :, :, None] * sigma[:, :, None, :]).reshape(samples, n, nv * nh))
    s = _varying(sigma)
    r_r, r_rs, r_s, rs_s, s_s = (_covariance(x, y) for x, y in ((r, r), (r, rs), (r, s), (rs, s), (s, s)))
    now, before = chunk.known_now, chunk.known_before
    for i in range(nv):
        to_J = now.T @ (r_r[:, i, i:, None] * now[:, None, :]).reshape(n, -1)
        to_K = now.T @ r_rs[:, i]
        to_L = now.T @ (r_s[:, i, :, None] * before[:, None, :]).reshape(n, -1)
        _add_both(total, J[i], slice(J[i].start, nv * known), to_J)
        _add_both(total, J[i], allK, to_K)
        _add_both(total, J[i], slice(L[0].start, L[-1].stop), to_L)
        for a in range(nh):
            here = slice(K[i].start + a, K[i].start + a + 1)
            to_L = (rs_s[:, i * nh + a, :].T @ before).reshape(1, -1)
            _add_both(total, here, slice(L[0].start, L[-1].stop), to_L)
    flat = rs.reshape(samples * n, nv * nh)
    total[allK, allK] += flat.T @ flat / (samples - 1)
    for a in range(nh):
        to_L = before.T @ (s_s[:, a, a:, None] * before[:, None, :]).reshape(n, -1)
        _add_both(total, L[a], slice(L[a].start, L[-1].stop), to_L)


def _places(sizes: _Sizes) -> tuple[list[slice], list[slice], list[slice]]:
    """Where the rows of J, K and L, each with its fields, lie in the vector of all couplings."""
    nv, known, nh = sizes
    first_K, first_L = nv * known, nv * (known + nh)
    return (
        [slice(i * known, (i + 1) * known) for i in range(nv)],
        [slice(first_K + i * nh, first_K + (i + 1) * nh) for i in range(nv)],
        [slice(first_L + a * known, first_L + (a + 1) * known) for a in range(nh)],
    )


def _varying(x: Array) -> Array:
    """A function of the hidden states, minus its mean over them."""
    varying: Array = x - x.mean(axis=0)
    return varying


def _covariance(x: Array, y: Array) -> Array:
    """The covariance of two lists of functions, slice by slice: (B, nx, ny)."""
    covariance: Array = np.matmul(x.transpose(1, 2, 0), y.transpose(1, 0, 2)) / (len(x) - 1)
    return covariance


def _add_both(total: Array, rows: slice, columns: slice, part: Array) -> None:
    """Add a part, and its mirror image but for a square on the diagonal that the part may begin with."""
    total[rows, columns] += part
    begin = rows.stop if columns.start == rows.start else columns.start
    total[begin : columns.stop, rows] += part[:, begin - columns.start :].T
