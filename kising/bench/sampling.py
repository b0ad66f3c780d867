"""The cost of sampling: learning with `gibbs`, `bp` and `exact`, and the time of a sweep by number of hidden spins."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from kising.bench.measure import interleave
from kising.estimators.gibbs.chains import first_chains
from kising.estimators.gradient import sampled_gradient
from kising.kernels.counter import key_of
from kising.learning.fit import fit
from kising.model import bond_scales, draw_couplings, simulate

HIDDEN = (4, 8, 16, 32, 64)
VISIBLE = 80
SLICES = 4096


@dataclass(frozen=True, kw_only=True)
class Raced:
    """One learner on the network and recording that all learners get; one thread."""

    estimator: str
    outcome: str
    iterations: int
    seconds: float
    """CPU time, from the recording to the end of learning"""
    rmse_J: float
    rmse_K: float
    rmse_L: float


def race(*, visible: int, hidden: int, connectivity: float, length: int) -> Iterator[Raced]:
    """Learn one network by sampling, by belief propagation and by sums over all states."""
    truth = draw_couplings(visible, hidden, connectivity=connectivity, seed=1)
    recording = simulate(truth, length, seed=2).visible
    scales = bond_scales(visible, hidden, strength=1.0, connectivity=connectivity)
    for estimator in ("gibbs", "bp", "exact"):
        learn = partial(
            fit,
            hidden=hidden,
            estimator=estimator,
            start="signs",
            truth=truth,
            scales=scales,
            seed=3,
            bias=False,
        )
        # The first call compiles, from as much as `fit` takes without a warning.
        learn(recording[: max(2 * visible, 50)], max_iterations=2)
        start = time.thread_time()
        found = learn(recording)
        seconds = time.thread_time() - start
        assert found.rmse is not None
        yield Raced(
            estimator=estimator,
            outcome=found.outcome,
            iterations=found.iterations,
            seconds=seconds,
            **{f"rmse_{x}": error for x, error in found.rmse.items()},
        )


@dataclass(frozen=True, kw_only=True)
class Swept:
    """One sweep with its gradient, one thread."""

    visible: int
    hidden: int
    microseconds: float
    """CPU time per slice"""


def growth(*, rounds: int) -> list[Swept]:
    """A sweep at several numbers of hidden spins, interleaved."""
    contenders = []
    for hidden in HIDDEN:
        couplings = draw_couplings(VISIBLE, hidden, connectivity=0.3, seed=1)
        visible = simulate(couplings, SLICES + 2, seed=2).visible
        key = key_of(3)
        chains = first_chains(SLICES, hidden, key)
        contenders.append(
            partial(sampled_gradient, couplings, visible, chains, key=key, iteration=0, threads=1)
        )
    best = interleave(contenders, rounds, clock=time.thread_time)
    return [
        Swept(visible=VISIBLE, hidden=hidden, microseconds=1e6 * seconds / SLICES)
        for hidden, seconds in zip(HIDDEN, best, strict=True)
    ]


def exponent(swept: list[Swept]) -> float:
    """The slope of log time on log number of hidden spins."""
    x, y = (np.log([getattr(one, name) for one in swept]) for name in ("hidden", "microseconds"))
    return float(np.polyfit(x, y, 1)[0])
