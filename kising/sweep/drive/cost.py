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
    from kising.options import Learner
    from kising.sweep.plan import Point, Run

PRICE: Final = 1.2e-9  # seconds per operation, where nothing was measured
# EM iterations where nothing was measured and the estimator does not say, from the tables in docs/paper/data (a test
# compares). Of gradient ascent, by rule for pair averages:
ASCENT: Final = 730
UNCORRECTED: Final = 460  # on networks of up to `SMALL` spins
DIVERGED: Final = 3  # on larger ones, which all diverge
SMALL: Final = 50
# Of the scaled step, by start; exact averages, L1 and pruning take fewer after a start by signs, which was measured.
ITERATIONS: Final = {"signs": 53, "random": 70}
EXACT: Final = 30
PRUNED: Final = 35
# Without a prior, couplings that a shorter recording does not determine take long to settle: as 1/sqrt(T).
ENOUGH_SLICES: Final = 6000
SINGLE: Final = 0.63  # time of an E-step in float32, relative to float64
RUN_OVERHEAD: Final = 4e5  # operations: drawing seeds, checking arguments, making the row
ITERATION_OVERHEAD: Final = 8e5  # operations of an EM iteration, whatever the length of the recording
WORKER_BYTES: Final = 330_000_000  # a worker process with its libraries and compiled kernels
CHUNK_BYTES: Final = 4096 * 8  # a float64 column of a chunk of slices
# Finished runs: the most that a price is the median of, and the most that count when others are measured later.
_KEPT: Final = 500
_FEW: Final = 8  # of fewer runs, most may have compiled

_LARGEST_CACHE: Final = 10_000_000  # bytes
# Seconds per operation, and iterations of EM, that a machine can have measured: others would stop every sweep.
_RANGES: Final = {
    "prices": (1e-15, 1.0),
    "iterations": (0.0, 1e12),
    "runs": (0.0, 1e18),
    "slices": (0.0, 1e18),
}

Kind = str
Course = str


class _Sample(NamedTuple):
    """A finished run."""

    value: float
    """seconds per operation, or iterations"""
    length: int
    """of its recording"""


class _Samples:
    """Some of the finished runs, evenly spaced: a plan begins with its cheapest points."""

    def __init__(self) -> None:
        self.kept: list[_Sample] = []
        self._seen, self._stride = 0, 1

    def add(self, sample: _Sample) -> None:
        """Take note of a run, or leave it out."""
        if self._seen % self._stride == 0:
            self.kept.append(sample)
            if len(self.kept) > _KEPT:
                del self.kept[1::2]
                self._stride *= 2
        self._seen += 1

    @property
    def slices(self) -> float:
        """The lengths of all recordings together."""
        return float(self._stride * sum(sample.length for sample in self.kept))


@dataclass
class CostModel:
    """What runs cost on this machine: prices by kind of run, and iterations by course of learning."""

    prices: dict[Kind, float] = field(default_factory=dict)
    iterations: dict[Course, float] = field(default_factory=dict)
    runs: dict[Kind, float] = field(default_factory=dict)
    """how many runs each price is from"""
    slices: dict[Course, float] = field(default_factory=dict)
    """how long the recordings were, all together, that each number of iterations is from"""

    def __post_init__(self) -> None:
        self._priced: dict[Kind, _Samples] = {}
        self._counted: dict[Course, _Samples] = {}

    @classmethod
    def load(cls) -> CostModel:
        """The prices learned on this machine so far; default ones where there are none, or they cannot be
        read.
        """
        with suppress(
            OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError
        ):
            known = json.loads(read_regular(cache_file(), _LARGEST_CACHE))
            # Older versions of kising wrote the first two.
            known = {"runs": {}, "slices": {}, **known}
            return cls(**{name: _plausible(known[name], *allowed) for name, allowed in _RANGES.items()})
        return cls()

    def save(self) -> None:
        """Keep the prices for the next sweep; failures to write the cache are ignored."""
        with suppress(OSError, StoreError):
            make_directory(cache_file().parent)
            text = json.dumps({name: getattr(self, name) for name in _RANGES}, indent=1)
            atomic_write(cache_file(), text.encode(), durable=False)

    def knows(self, point: Point) -> bool:
        """Whether the price of such runs was measured on this machine."""
        return kind_of(point) in self.prices

    def seconds(self, point: Point) -> float:
        """Expected seconds of one run on one core."""
        usual = self.iterations.get(course_of(point), _usual_iterations(point))
        price = self.prices.get(kind_of(point), PRICE)
        return price * operations(point, min(usual, most_iterations(point)))

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
        length = point.data.length
        price = seconds / operations(point, made)
        self._priced.setdefault(kind_of(point), _Samples()).add(_Sample(price, length))
        if made:
            self._counted.setdefault(course_of(point), _Samples()).add(_Sample(made, length))

    def settle(self) -> None:
        """Add what was noted to what is known.

        Prices are medians, so that the first runs of a process, which compile, do not count; of few runs the smallest.
        They count by their number of runs. Iterations are averaged by length: those of long recordings cost most, and
        short recordings often take more of them.
        """
        for kind, samples in self._priced.items():
            price = min if len(samples.kept) < _FEW else median
            _merge(
                self.prices, self.runs, kind, price([one.value for one in samples.kept]), len(samples.kept)
            )
            # An older price must not outweigh what a machine does now.
            self.runs[kind] = min(self.runs[kind], _KEPT)
        for course, samples in self._counted.items():
            total = sum(one.value * one.length for one in samples.kept)
            mean = total / sum(one.length for one in samples.kept)
            _merge(self.iterations, self.slices, course, mean, samples.slices)
        self._priced.clear()
        self._counted.clear()

    def settle_prices(self) -> None:
        """Put the prices noted in the place of those known: short runs were made to measure them, and do not tell how
        many iterations whole ones take.
        """
        for kind in self._priced:
            self.runs.pop(kind, None)
            self.prices.pop(kind, None)
        self._counted.clear()
        self.settle()


def _merge(
    known: dict[str, float], weights: dict[str, float], name: str, found: float, weight: float
) -> None:
    """Average what was found with what is known; a number of unknown weight counts as one."""
    before = weights.get(name, 1.0) if name in known else 0.0
    known[name] = (before * known.get(name, 0.0) + weight * found) / (before + weight)
    weights[name] = before + weight


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


def course_of(point: Point) -> Course:
    """Which runs take about as many iterations as this one: those of its kind on networks of about its size."""
    spins = point.model.visible + point.model.hidden
    least = 1 << max(spins.bit_length() - 1, 0)
    words = [kind_of(point), f"{least}-{2 * least - 1} spins"]
    if _prunes(point.learner):
        words.append("pruned")
    if point.learner.prior == "none":
        words.append("no-prior")
    return " ".join(words)


def most_iterations(point: Point) -> int:
    """The limit on EM iterations of a run."""
    return iteration_limit(point.learner, point.model.hidden, gaps=point.data.has_gaps)


def _usual_iterations(point: Point) -> float:
    """EM iterations where nothing was measured."""
    learner, estimator = point.learner, _estimator(point)
    if estimator.iterations is not None:
        return estimator.iterations
    if learner.step == "gradient":
        if learner.correlations != "iterated" or "learner.correlations" not in estimator.reads:
            return ASCENT
        return UNCORRECTED if point.model.visible + point.model.hidden <= SMALL else DIVERGED
    usual = float(ITERATIONS[learner.start])
    if learner.start == "signs":
        usual = PRUNED if _prunes(learner) else EXACT if estimator.unbiased else usual
    if learner.prior == "none":
        usual *= max(1.0, ENOUGH_SLICES / point.data.length) ** 0.5
    return usual


def _prunes(learner: Learner) -> bool:
    """Whether some couplings are set to zero while learning."""
    return bool(learner.l1) or learner.decimate != "none"


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
        made = min(PILOT_ITERATIONS, most_iterations(point))
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
