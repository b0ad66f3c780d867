"""Exact averages for networks with couplings M among hidden spins, by `forward_backward`.

Groups of whole segments run on several threads. Inside a segment the recursions follow time on one thread: a single
long segment gains nothing from several threads. Memory does not grow with the length of a segment: the forward
recursion keeps p at the beginning of every chunk, and is repeated chunk by chunk on the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from kising.estimators.estep import EStep
from kising.estimators.exact import forward_backward as fb
from kising.estimators.exact import tangent
from kising.estimators.gradient import Gradient, apart, mean_of
from kising.estimators.moments import Averages
from kising.estimators.parallel import one_blas_thread
from kising.estimators.slices import Slices
from kising.estimators.steps import StepFields, Steps
from kising.kernels.counter import key_of
from kising.model import Array, Couplings
from kising.seeds import Seed

# The largest logarithm of a product of odds that is carried as a number.
SAFE_EXPONENT = 650.0
SAFE_FIELD = 150.0
# Numbers in an array of scores: it decides how many steps a chunk of them has.
SCORE_NUMBERS = 4_000_000

Out = TypeVar("Out")


class _Network(NamedTuple):
    """A network, prepared for the recursions."""

    couplings: Couplings
    tables: fb.Tables
    signs: Array
    """σ_a in every state, (Nh, S)"""

    @classmethod
    def of(cls, couplings: Couplings, slices: Slices) -> _Network:
        nh = couplings.K.shape[1]
        signs = np.where((np.arange(2**nh)[None, :] >> np.arange(nh)[:, None]) & 1, 1.0, -1.0)
        theta, drive = _largest(couplings, slices)
        field = theta + np.sum(np.abs(couplings.K), axis=1)
        reach = np.max(drive + np.sum(np.abs(couplings.M), axis=1))
        tame = bool(np.max(field) < SAFE_FIELD and reach < fb.LARGEST_REACH / nh)
        visible = -2.0 * np.stack([-couplings.K @ signs, couplings.K @ signs])
        hidden = -2.0 * couplings.M @ signs
        if tame:
            visible, hidden = np.exp(visible), np.exp(hidden)
        by_state = np.ascontiguousarray(visible.transpose(0, 2, 1))
        tables = fb.Tables(tame, visible, by_state, hidden, _pauses(2.0 * field + np.log(2.0)))
        return cls(couplings, tables, signs)

    def steps(self, all_steps: Steps, part: slice) -> tuple[StepFields, fb.Steps]:
        """The fields of a range of steps, and what the recursions see of them."""
        found = all_steps.fields(self.couplings, part)
        visible, hidden = -2.0 * found.after * found.theta, -2.0 * found.drive
        if self.tables.tame:
            visible, hidden = np.exp(visible), np.exp(hidden)
        up = (found.after > 0).astype(np.int64)
        return found, fb.Steps(visible, up, hidden, all_steps.begins[part], all_steps.ends[part])

    def filtered(self, steps: fb.Steps, predicted: Array, *, keep: bool) -> fb.Filtered:
        """The forward recursion; `predicted` goes from p of the first step to p after the last."""
        n, size = len(steps.begins), self.signs.shape[1]
        rows = n if keep else 1
        room = fb.Filtered(
            predicted=np.empty((rows, size)),
            weights=np.empty((rows, size)),
            alpha=np.empty((rows, size)),
            norms=np.empty(rows),
            log_z=np.empty(rows),
        )
        fb.forward(steps, self.tables, predicted, room)
        return room


def _largest(couplings: Couplings, slices: Slices) -> tuple[Array, Array]:
    """Bounds of |θ_i| and |d_a|, whatever the spins are."""
    inputs = np.abs(slices.inputs).max(axis=0, initial=0.0)
    bounds = []
    for weights, bias, sensitivity in (
        (couplings.J, couplings.h, couplings.F),
        (couplings.L, couplings.b, couplings.G),
    ):
        bound = np.sum(np.abs(weights), axis=1) + np.abs(sensitivity) @ inputs
        bounds.append(bound + np.abs(bias) if bias.size else bound)
    return bounds[0], bounds[1]


def _pauses(exponents: Array) -> npt.NDArray[np.bool_]:
    """After which spins a product of factors, none beyond e^exponent, must be turned into a logarithm."""
    pauses = np.zeros(len(exponents), dtype=np.bool_)
    total = 0.0
    for i, exponent in enumerate(exponents):
        if i and total + exponent > SAFE_EXPONENT:
            pauses[i - 1] = True
            total = 0.0
        total += exponent
    return pauses


def gradient(couplings: Couplings, slices: Slices, estep: EStep, *, threads: int) -> Gradient:
    """The gradient of the mean over steps of log P(s(t+1) | s(≤t))."""
    network, steps = _Network.of(couplings, slices), Steps.of(slices)

    def reduce(fields: StepFields, filtered: fb.Filtered, smoothed: fb.Smoothed, sums: fb.Sums) -> Gradient:
        return _sums(network, fields, filtered, smoothed, sums)

    def work(group: list[slice]) -> list[Gradient]:
        return list(_backwards(network, steps, group, keep_pairs=False, reduce=reduce))

    parts = (part for group in _each(work, steps.groups(), threads) for part in group)
    return mean_of(parts, len(steps), *couplings.K.shape)


def _sums(
    network: _Network, fields: StepFields, filtered: fb.Filtered, smoothed: fb.Smoothed, sums: fb.Sums
) -> Gradient:
    """The sums over the steps of a chunk. Those of hidden spins at t+1 are over the steps that have them."""
    couplings, signs = network.couplings, network.signs
    n, mu, m = len(smoothed.mu), smoothed.mu, fields.after - smoothed.surprise
    bias = bool(couplings.h.size)
    J, h, F = apart(smoothed.surprise.T @ fields.known, couplings.h, couplings.F, bias=bias)
    L, b, G = apart(smoothed.hidden_surprise.T @ fields.known, couplings.b, couplings.G, bias=bias)
    return Gradient(
        J=J,
        K=sums.surprise.T @ signs.T,
        L=L,
        h=h,
        b=b,
        F=F,
        G=G,
        M=signs @ sums.moves.T @ signs.T - sums.expected @ signs.T,
        log_likelihood=float(np.sum(filtered.log_z)),
        converged=float(n),
        corrected=0.0,
        iterations=float(n),
        abs_m=float(np.sum(np.abs(m))),
        abs_mu=float(np.sum(np.abs(mu))),
        abs_pair=np.nan,
        freedom_visible=n - np.sum(m**2, axis=0),
        freedom_hidden=np.sum(sums.moves) - np.sum(smoothed.expected**2, axis=0),
        visible_hidden=fields.known.T @ mu,
        hidden_hidden=(signs * sums.states) @ signs.T,
    )


def moments(
    couplings: Couplings, slices: Slices, estep: EStep, *, threads: int, keep_pairs: bool
) -> Averages:
    """Averages given all that was seen of the segment, of all steps."""
    network, steps = _Network.of(couplings, slices), Steps.of(slices)

    def reduce(fields: StepFields, filtered: fb.Filtered, smoothed: fb.Smoothed, sums: fb.Sums) -> Averages:
        mu, after = smoothed.mu, fields.after
        pair = after[:, :, None] * mu[:, None, :] - smoothed.pair if keep_pairs else smoothed.pair
        return Averages(after - smoothed.surprise, mu, pair, smoothed.in_time, filtered.log_z)

    def work(group: list[slice]) -> Averages:
        parts = list(_backwards(network, steps, group, keep_pairs=keep_pairs, reduce=reduce))[::-1]
        return Averages(*(np.concatenate(x) for x in zip(*parts, strict=True)))

    parts = _each(work, steps.groups(), threads)
    return Averages(*(np.concatenate(x) for x in zip(*parts, strict=True)))


def hidden_means(couplings: Couplings, slices: Slices, estep: EStep) -> Array:
    """⟨σ_a(t)⟩ given all that was seen of the segment, of all steps, (n, Nh)"""
    return moments(couplings, slices, estep, threads=1, keep_pairs=False).mu


def predicted(couplings: Couplings, slices: Slices, *, threads: int) -> Array:
    """p_t = P(σ(t) | s(≤t)) of all steps, (n, 2^Nh): bit a of a state's number is set where σ_a = +1."""
    return _forwards(couplings, slices, threads, lambda filtered: filtered.predicted)


def log_likelihood(couplings: Couplings, slices: Slices, estep: EStep, *, threads: int) -> Array:
    """log P(s(t+1) | s(≤t)) of all steps, nats, (n,)"""
    return _forwards(couplings, slices, threads, lambda filtered: filtered.log_z)


def sample(couplings: Couplings, slices: Slices, samples: int, *, seed: Seed) -> npt.NDArray[np.int8]:
    """Hidden paths given all that was seen of their segments, (samples, n, Nh)."""
    network, steps = _Network.of(couplings, slices), Steps.of(slices)
    nh, key = couplings.K.shape[1], key_of(seed)
    drawn = np.empty((samples, len(steps), nh), dtype=np.int8)
    for group in steps.groups():
        part = slice(group[0].start, group[-1].stop)
        _, seen = network.steps(steps, part)
        filtered = network.filtered(seen, np.empty(2**nh), keep=True)
        states = np.empty((part.stop - part.start, samples), dtype=np.int64)
        fb.sample_backward(seen, network.tables, filtered.alpha, part.start, key, states)
        bits = (states.T[:, :, None] >> np.arange(nh)) & 1
        drawn[:, part] = np.where(bits > 0, 1, -1)
    return drawn


def score_chunks(couplings: Couplings, slices: Slices, draws: int, *, seed: Seed) -> Iterator[Array]:
    """ψ of drawn outcomes of all steps (`tangent.py`), chunk by chunk: (draws in the chunk, number of couplings)."""
    network, steps = _Network.of(couplings, slices), Steps.of(slices)
    size, key = sum(x.size for x in couplings), key_of(seed)
    length = max(1, SCORE_NUMBERS // (draws * size))
    p, V = np.empty(network.signs.shape[1]), np.empty((network.signs.shape[1], size))
    for start in range(0, len(steps), length):
        part = slice(start, min(start + length, len(steps)))
        fields, seen = network.steps(steps, part)
        out = np.empty((part.stop - part.start, draws, size))
        tangent.scores(seen, network.tables, network.signs, fields.known, start, key, p, V, out)
        yield out.reshape(-1, size)


def _forwards(
    couplings: Couplings, slices: Slices, threads: int, select: Callable[[fb.Filtered], Array]
) -> Array:
    network, steps = _Network.of(couplings, slices), Steps.of(slices)

    def work(group: list[slice]) -> Array:
        p = np.empty(network.signs.shape[1])
        return np.concatenate(
            [select(network.filtered(network.steps(steps, part)[1], p, keep=True)) for part in group]
        )

    return np.concatenate(list(_each(work, steps.groups(), threads)))


def _each(work: Callable[[list[slice]], Out], groups: list[list[slice]], threads: int) -> Iterator[Out]:
    """The results of all groups in their order, on several threads."""
    with one_blas_thread():
        if threads == 1 or len(groups) == 1:
            yield from map(work, groups)
        else:
            with ThreadPoolExecutor(threads) as pool:
                yield from pool.map(work, groups)


def _backwards(
    network: _Network,
    steps: Steps,
    group: list[slice],
    *,
    keep_pairs: bool,
    reduce: Callable[[StepFields, fb.Filtered, fb.Smoothed, fb.Sums], Out],
) -> Iterator[Out]:
    """`reduce` of every chunk of a group, the last first."""
    (nv, nh), size = network.couplings.K.shape, network.signs.shape[1]
    p = np.full(size, 1.0 / size)
    borders = [p.copy()]
    for part in group[:-1]:
        network.filtered(network.steps(steps, part)[1], p, keep=False)
        borders.append(p.copy())
    later, arrived = np.ones(size), np.zeros(nh)
    for part, start in zip(group[::-1], borders[::-1], strict=True):
        fields, seen = network.steps(steps, part)
        n = len(seen.begins)
        filtered = network.filtered(seen, start, keep=True)
        sums = fb.Sums(np.zeros(size), np.zeros((size, nv)), np.zeros((nh, size)), np.zeros((size, size)))
        kept = n if keep_pairs else 0
        smoothed = fb.Smoothed(
            surprise=np.empty((n, nv)),
            mu=np.empty((n, nh)),
            expected=np.empty((n, nh)),
            hidden_surprise=np.empty((n, nh)),
            pair=np.empty((kept, nv, nh)),
            in_time=np.empty((kept, nh, nh)),
        )
        fb.backward(seen, network.tables, network.signs, filtered, later, arrived, sums, smoothed)
        yield reduce(fields, filtered, smoothed, sums)
