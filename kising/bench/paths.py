"""The cost of sampling whole paths: the time of a sweep, alone and with its gradient."""

import time
from dataclasses import dataclass
from functools import partial

import numpy as np

from kising.bench.measure import interleave
from kising.estimators.paths.network import network_of
from kising.estimators.paths.sampler import first_states, sweep
from kising.estimators.paths.statistics import complete_sums
from kising.estimators.paths.timeline import Timeline
from kising.estimators.slices import Slices
from kising.kernels.counter import key_of
from kising.model import draw_couplings, simulate

#: (Nv, Nh), fraction of missing entries, time steps.
WORKLOADS = (
    (20, 4, 0.0, 16384),
    (20, 4, 0.1, 16384),
    (20, 4, 0.3, 16384),
    (40, 20, 0.0, 8192),
    (80, 20, 0.0, 8192),
)


@dataclass(frozen=True, kw_only=True)
class Swept:
    """Sweeps of one network with couplings among hidden spins, one thread; CPU time per time step, µs."""

    visible: int
    hidden: int
    missing: float
    """fraction of missing entries"""
    straight: float
    """a sweep along paths of one hidden spin each"""
    tilted: float
    """a sweep along paths from spin to spin"""
    gradient: float
    """the gradient that follows a sweep"""


def path_sweeps(*, rounds: int) -> list[Swept]:
    """Sweeps of every workload."""
    found = []
    for visible, hidden, missing, length in WORKLOADS:
        couplings = draw_couplings(visible, hidden, hidden_coupling=1.0, seed=1)
        spins = simulate(couplings, length, seed=2).visible
        gaps = np.random.default_rng(3).random(spins.shape) < missing
        timeline = Timeline.of(Slices.of([np.where(gaps, 0, spins).astype(np.int8)]))
        network, key = network_of(couplings), key_of(3)
        states = first_states(timeline, hidden, key)
        straight, tilted = (partial(sweep, network, timeline, states, key=key, iteration=k) for k in (0, 1))
        gradient = partial(complete_sums, network, timeline, states)
        best = interleave([straight, tilted, gradient], rounds, clock=time.thread_time)
        times = dict(zip(("straight", "tilted", "gradient"), (1e6 * s / length for s in best), strict=True))
        found.append(Swept(visible=visible, hidden=hidden, missing=missing, **times))
    return found
