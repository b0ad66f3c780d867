"""Averages sampled along paths at given couplings: what estimator `gibbs` does about couplings M among hidden spins and
about missing entries.

The likelihood is that of `annealing`. Where it is asked for step by step, it comes from `particles`, moved by the same
amount at every step so that its sum is that of `annealing`, which does not suffer where particles are too few.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kising.estimators.estep import EStep
from kising.estimators.gradient import Gradient
from kising.estimators.moments import Averages
from kising.estimators.paths.annealing import Annealed, annealed_log_likelihood
from kising.estimators.paths.gradients import gradient_of
from kising.estimators.paths.network import Network
from kising.estimators.paths.particles import follow
from kising.estimators.paths.sampler import first_states, sweep
from kising.estimators.paths.statistics import Complete, complete_sums, window
from kising.estimators.paths.timeline import Timeline
from kising.estimators.sampling import Sampling
from kising.estimators.slices import Slices
from kising.kernels.counter import key_of
from kising.model import Array, Couplings, Spins
from kising.seeds import Seed

# Sweeps of the annealed likelihood: fewer for long recordings, whose steps add up to the same accuracy, 0.001 nats per
# step or so. With fewer draws than usual, they are fewer in proportion.
STEPS_TIMES_SWEEPS = 4_000_000
SWEEPS = (192, 1536)
# Sweeps before the first sample, and from one to the next.
SETTLING = 50
SPACING = 4


def gradient(couplings: Couplings, slices: Slices, estep: EStep, *, threads: int) -> Gradient:
    """The gradient of the mean over steps of log P(known spins at t+1 | known spins before)."""
    network, timeline = _prepared(couplings, slices)
    found = [
        complete_sums(network, timeline, states, threads=threads)
        for states in swept(network, timeline, estep.sampling, threads=threads)
    ]
    mean = Complete(*(np.mean(x, axis=0) for x in zip(*found, strict=True)))
    nats = annealed(couplings, slices, estep.sampling, threads=threads).log_likelihood
    return gradient_of(mean, int(np.sum(timeline.sources)), nats, couplings)


def moments(
    couplings: Couplings,
    slices: Slices,
    estep: EStep,
    *,
    threads: int,
    keep_pairs: bool,
) -> Averages:
    """Averages given all that was seen of the segment, of all steps."""
    network, timeline = _prepared(couplings, slices)
    nv, nh = couplings.K.shape
    sources = timeline.sources
    n = int(np.sum(sources))
    kept = n if keep_pairs else 0
    m, mu = np.zeros((n, nv)), np.zeros((n, nh))
    pair, in_time = np.zeros((kept, nv, nh)), np.zeros((kept, nh, nh))
    ends = ~sources[1:][sources[:-1]]
    for states in swept(network, timeline, estep.sampling, threads=threads):
        tanh = window(network, timeline, states, slice(0, len(states) - 1)).expected[sources[:-1], :nv]
        sigma = states[sources, nv:].astype(np.float64)
        m += tanh
        mu += sigma
        if keep_pairs:
            pair += tanh[:, :, None] * sigma[:, None, :]
            later = states[1:][sources[:-1], nv:] * ~ends[:, None]
            in_time += later[:, :, None] * sigma[:, None, :]
    for total in (m, mu, pair, in_time):
        total /= estep.sampling.sweeps
    return Averages(m, mu, pair, in_time, log_likelihood(couplings, slices, estep, threads=threads))


def hidden_means(couplings: Couplings, slices: Slices, estep: EStep) -> Array:
    """⟨σ_a(t)⟩ given all that is known, of all steps, (n, Nh)"""
    found = means(couplings, slices, estep.sampling)
    return found[Timeline.of(slices).sources, couplings.K.shape[0] :]


def log_likelihood(couplings: Couplings, slices: Slices, estep: EStep, *, threads: int) -> Array:
    """log P(known spins at t+1 | known spins before) of all steps, nats, (n,)"""
    network, timeline = _prepared(couplings, slices)
    sampling = estep.sampling
    steps = follow(network, timeline, seed=sampling.checked_seed(), threads=threads).log_likelihood
    steps = steps[1:][timeline.sources[:-1]]
    total = annealed(couplings, slices, sampling, threads=threads).log_likelihood
    return steps + (total - np.sum(steps)) / len(steps)


def annealed(couplings: Couplings, slices: Slices, sampling: Sampling, *, threads: int = 1) -> Annealed:
    """The likelihood of the whole recording, and its standard error."""
    network, timeline = _prepared(couplings, slices)
    wanted = sampling.draws / Sampling.draws * np.clip(STEPS_TIMES_SWEEPS / len(timeline.spins), *SWEEPS)
    return annealed_log_likelihood(
        network,
        timeline,
        key=key_of(sampling.checked_seed()),
        sweeps=int(wanted),
        threads=threads,
    )


def forecast(couplings: Couplings, slices: Slices, *, seed: Seed, threads: int = 1) -> Array:
    """P(s_i(t+1) = +1 | known spins before) of all steps, (n, Nv)"""
    network, timeline = _prepared(couplings, slices)
    found = follow(network, timeline, seed=seed, threads=threads).forecast
    return found[1:][timeline.sources[:-1]]


def means(couplings: Couplings, slices: Slices, sampling: Sampling, *, threads: int = 1) -> Array:
    """⟨z_k(t)⟩ of all time steps and all spins given what is known, (T, N)"""
    network, timeline = _prepared(couplings, slices)
    total = np.zeros((len(timeline.spins), len(network.bias)))
    for states in swept(network, timeline, sampling, threads=threads):
        total += states
    total[timeline.bounds[1:] - 1, network.visible :] = np.nan
    return total / sampling.sweeps


def sample(couplings: Couplings, slices: Slices, samples: int, *, seed: Seed) -> npt.NDArray[np.int8]:
    """Hidden paths given all that was seen of their segments, (samples, n, Nh)."""
    network, timeline = _prepared(couplings, slices)
    sampling = Sampling(sweeps=max(8, SPACING * samples), settling=SETTLING, seed=seed)
    drawn = swept(network, timeline, sampling, threads=1)
    kept = [x[timeline.sources, network.visible :].copy() for k, x in enumerate(drawn) if k % SPACING == 0]
    return np.stack(kept[:samples])


def sample_states(couplings: Couplings, slices: Slices, *, seed: Seed) -> Spins:
    """One state of all spins at all steps given what is known, (n, N)."""
    network, timeline = _prepared(couplings, slices)
    sampling = Sampling(sweeps=8, settling=SETTLING, seed=seed)
    *_, states = swept(network, timeline, sampling, threads=1)
    return states[timeline.sources]


def _prepared(couplings: Couplings, slices: Slices) -> tuple[Network, Timeline]:
    timeline = Timeline.of(slices)
    return timeline.network(couplings), timeline


def swept(network: Network, timeline: Timeline, sampling: Sampling, *, threads: int) -> Iterator[Spins]:
    """The states after every sweep that is averaged: always the same array, changed in place."""
    key = key_of(sampling.checked_seed())
    states = first_states(timeline, network.hidden, key)
    for k in range(sampling.settling + sampling.sweeps):
        sweep(network, timeline, states, key=key, iteration=k, threads=threads)
        if k >= sampling.settling:
            yield states
