"""What a run will cost: seconds and bytes, before it has run.

Seconds are a count of elementary operations, from the sizes of the problem, times a price per operation. Prices
differ by estimator and machine: they are learned from finished runs, kept in the user's cache directory, and read
by the next sweep. They are prices of CPU time, so that other programs on the same cores do not raise them. They
never enter results.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from kising.blocks import n_couplings
from kising.cache_home import cache_homes
from kising.errors import StoreError
from kising.estimators.registry import Estimator, entry, resolve
from kising.estimators.sampling import Sampling
from kising.learning.effort import (
    LARGEST_METRIC,
    PILOT_ITERATIONS,
    PILOT_SLICES,
    is_long,
    iteration_limit,
    passes,
)
from kising.regular_files import read_regular
from kising.sweep.store.atomic import atomic_write, make_directory
from kising.version import NUMERICS

if TYPE_CHECKING:
    from kising.sweep.plan import Point, Run

PRICE: Final = 1.2e-9  # seconds per operation, where nothing was measured
# EM iterations, where nothing was measured and the estimator does not say: by rule for pair averages (on 100 spins,
# most runs diverge early where these are not corrected), by step, or by start.
ITERATIONS: Final = {"iterated": 150, "gradient": 600, "signs": 53, "random": 70}
SINGLE: Final = 0.63  # time of an E-step in float32, relative to float64
RUN_OVERHEAD: Final = 4e5  # operations: drawing seeds, checking arguments, making the row
ITERATION_OVERHEAD: Final = 8e5  # operations of an EM iteration, whatever the length of the recording
WORKER_BYTES: Final = 330_000_000  # a worker process with its libraries and compiled kernels
CHUNK_BYTES: Final = 4096 * 8  # a float64 column of a chunk of slices
_KEPT: Final = 500  # finished runs that a price is the median of
_FEW: Final = 8  # of fewer runs, most may have compiled

_LARGEST_CACHE: Final = 10_000_000  # bytes
# Seconds per operation, and iterations of EM, that a machine can have measured: others would stop every sweep.
_RANGES: Final = {"prices": (1e-15, 1.0), "iterations": (0.0, 1e12)}

Kind = str


class _Sample(NamedTuple):
    """A finished run."""

    price: float
    """seconds per operation"""
    iterations: float
    length: int
    """of its recording"""


@dataclass
class CostModel:
    """Prices of this machine, by kind of run."""

    prices: dict[Kind, float] = field(default_factory=dict)
    iterations: dict[Kind, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._samples: dict[Kind, list[_Sample]] = {}

    @classmethod
    def load(cls) -> CostModel:
        """The prices learned on this machine so far; default ones where there are none, or they cannot be
        read.
        """
        with suppress(
            OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError
        ):
            known = json.loads(read_regular(cache_file(), _LARGEST_CACHE))
            prices, iterations = (
                _plausible(known[name], *_RANGES[name]) for name in ("prices", "iterations")
            )
            return cls(prices, iterations)
        return cls()

    def save(self) -> None:
        """Keep the prices for the next sweep; failures to write the cache are ignored."""
        with suppress(OSError, StoreError):
            make_directory(cache_file().parent)
            text = json.dumps({"prices": self.prices, "iterations": self.iterations}, indent=1)
            atomic_write(cache_file(), text.encode(), durable=False)

    def knows(self, point: Point) -> bool:
        """Whether the price of such runs was measured on this machine."""
        return kind_of(point) in self.prices

    def seconds(self, point: Point) -> float:
        """Expected seconds of one run on one core."""
        kind = kind_of(point)
        words = (point.learner.correlations, point.learner.step, point.learner.start)
        estimator = _estimator(point)
        default: float = estimator.iterations or next(
            ITERATIONS[word] for word in words if word in ITERATIONS
        )
        iterations = min(
            self.iterations.get(kind, default), iteration_limit(point.learner, point.model.hidden)
        )
        return self.prices.get(kind, PRICE) * operations(point, iterations)

    def of_run(self) -> Callable[[Run], float]:
        """`seconds` for the conductor: it asks for every run, and the runs of a point cost the same."""
        cached = lru_cache(maxsize=4096)(self.seconds)
        return lambda run: cached(run.point)

    def learn(self, point: Point, row: Mapping[str, object]) -> None:
        """Take note of a finished run."""
        seconds, iterations = row.get("cpu_seconds"), row.get("iterations")
        if row.get("status") != "done" or not isinstance(seconds, float):
            return
        made = float(iterations) if isinstance(iterations, int) else 0.0
        samples = self._samples.setdefault(kind_of(point), [])
        if len(samples) < _KEPT:
            samples.append(_Sample(seconds / operations(point, made), made, point.data.length))

    def settle(self) -> None:
        """Turn what was noted into prices: medians, so that the first runs of a process, which compile, do
        not count; of few runs the smallest. Iterations are averaged by length: those of long recordings cost most, and
        short recordings often take more of them.
        """
        for kind, samples in self._samples.items():
            price = min if len(samples) < _FEW else median
            self.prices[kind] = price([one.price for one in samples])
            if any(one.iterations for one in samples):
                total = sum(one.iterations * one.length for one in samples)
                self.iterations[kind] = total / sum(one.length for one in samples)
        self._samples.clear()


def _plausible(found: Mapping[str, object], least: float, most: float) -> dict[Kind, float]:
    """The numbers in a range; NaN is in none."""
    numbers = {name: float(value) for name, value in found.items() if isinstance(value, int | float)}
    return {name: value for name, value in numbers.items() if least <= value <= most}


def kind_of(point: Point) -> Kind:
    """The kind of a run; runs of one kind use the same kernels and share a price."""
    learner, estimator = point.learner, _estimator(point)
    values = point.values()
    words = [point.task, estimator.name, *(str(values[key]) for key in estimator.reads)]
    if _coupled(point):
        words.append("coupled")
    if point.data.has_gaps:
        words.append("gaps")
    if point.task == "learn":
        words += [learner.start, learner.step]
    elif point.score.exact:
        words.append("against-exact")
    if point.score.errors:
        words.append("errors")
    if point.data.file is not None:
        words.append("fold")
    return " ".join(words)


def _estimator(point: Point) -> Estimator:
    """The one that will run."""
    return resolve(
        point.learner.estimator, point.model.hidden, coupled=_has_M(point), gaps=point.data.has_gaps
    )


def _coupled(point: Point) -> bool:
    """Whether slices depend on each other: through couplings among hidden spins, or missing entries."""
    return _has_M(point) or point.data.has_gaps


def _has_M(point: Point) -> bool:
    return point.learner.hidden_couplings if point.task == "learn" else point.model.hidden_coupling > 0


def _n_couplings(point: Point) -> int:
    learner = point.learner
    return n_couplings(
        point.model.visible,
        point.model.hidden,
        bias=learner.bias,
        hidden_couplings=learner.hidden_couplings,
    )


def operations(point: Point, iterations: float) -> float:
    """Elementary operations of a run with this many EM iterations; weights fitted to measured kernels."""
    nv, nh = point.model.visible, point.model.hidden
    learner, estimator = point.learner, _estimator(point)
    simulation = 0.2 * (nv + nh) ** 2 + 5 * (nv + nh) if point.data.file is None else 0.0
    coupled = _coupled(point)
    estep = estimator.operations_of(nv, nh, learner, coupled=coupled) + 0.3 * nv * (nv + nh)
    # Only if it is asked for, and Nh is then small: for other networks 2^Nh may overflow.
    judge = entry("exact").operations_of(nv, nh, learner, coupled=coupled) if point.score.exact else 0.0
    # When learning, one E-step more than iterations: the hidden states are scored at the end, in float64 if possible.
    once = estep
    estep, pilot_estep = (
        once * _precision_factor(point, estimator, n) for n in (point.data.length, PILOT_SLICES)
    )
    if estimator.samples:
        # Averages at given couplings take many sweeps, and the likelihood many draws.
        effort = Sampling() if point.task == "infer" else Sampling.brief()
        once = (effort.sweeps + effort.settling) * estep + effort.draws * nv * (10 + 0.3 * nh)
    made = passes(learner, estimator, point.data.length, iterations)
    slices = once + judge if point.task == "infer" else made * estep + once
    if point.data.file is not None:
        slices *= 2  # the memoryless control takes about as long
    pilots = 0.0
    if point.task == "learn" and learner.starts > 1:
        made = min(PILOT_ITERATIONS, iteration_limit(learner, nh))
        pilots = learner.starts * min(PILOT_SLICES, point.data.length) * (made * pilot_estep + once)
    errors = 0.0
    if point.score.errors:
        couplings = _n_couplings(point)
        slices += 90 * entry("gibbs").operations(nv, nh, learner) + 0.02 * couplings**2
        errors = 0.04 * couplings**3
    besides = RUN_OVERHEAD + errors + pilots
    if point.task == "learn":
        besides += iterations * _besides_slices(point, estimator)
    return besides + point.data.length * (simulation + slices)


def _besides_slices(point: Point, estimator: Estimator) -> float:
    """What an EM iteration costs besides its E-step."""
    nv, nh = point.model.visible, point.model.hidden
    # With a prior, every row has a linear system of its own; a sampler keeps their inverses for many iterations.
    systems = 0.13 * nv * (nv + nh) ** 3 if point.learner.prior != "none" and not estimator.samples else 0.0
    return ITERATION_OVERHEAD + systems


def _precision_factor(point: Point, estimator: Estimator, n_slices: int) -> float:
    """What the precision of most iterations of learning does to their cost."""
    learner = point.learner
    if "learner.estep.precision" not in estimator.reads:
        return 1.0
    asked, apt = learner.estep.precision, point.task == "learn" and learner.step == "scaled"
    return SINGLE if asked == "float32" or (asked == "auto" and apt and is_long(n_slices)) else 1.0


def memory(point: Point, threads: int) -> int:
    """Expected total memory of a worker during this run, in bytes."""
    nv, nh = point.model.visible, point.model.hidden
    spins = point.data.length * (nv + nh)  # int8
    columns = 8 * nv + 6 * nh
    if point.task == "infer" and point.score.exact:
        columns += 2 * nv * nh
    history = 18 * 8 * _n_couplings(point)  # six couplings, their steps, and six that learning looks back at
    numbers = nv * (nv + nh) ** 2 + nh * nv**2
    metric = 8 * numbers if point.task == "learn" and numbers <= LARGEST_METRIC else 0
    matrices = 8 * 5 * _n_couplings(point) ** 2 if point.score.errors else 0
    return WORKER_BYTES + spins + threads * columns * CHUNK_BYTES + history + metric + matrices


def cache_file() -> Path:
    """Where the prices of this machine and these kernels are kept; OSError where there is no home directory."""
    for home in cache_homes():
        return home / "kising" / f"costs-{platform.node() or 'host'}-{NUMERICS}.json"
    raise FileNotFoundError("there is no home directory")
