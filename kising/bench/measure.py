"""Timings, interleaved in one run: ratios hold on a busy machine where times do not.

Every contender takes its turn in each of several rounds, and the best round counts.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

from kising.bench import peers
from kising.estimators.inference import EStep, checked_gradient
from kising.learning.em import Learning, advance, begin, pose
from kising.learning.fit import fit
from kising.learning.starts import from_signs
from kising.model import Couplings, Spins, bond_scales, draw_couplings, simulate

# In place of bonds that are zero, for the dense network: what learning makes of them.
FAINT = 1e-3


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A network, and how many slices of it each contender is given."""

    name: str
    visible: int
    hidden: int
    connectivity: float
    slices: int
    """for the kernels; a round takes tens of milliseconds"""
    peer_slices: int
    """for NumPy"""


WORKLOADS = (
    Workload(name="w1", visible=20, hidden=4, connectivity=1.0, slices=16384, peer_slices=3000),
    Workload(name="w2", visible=80, hidden=8, connectivity=0.1, slices=8192, peer_slices=2000),
    Workload(name="w3", visible=90, hidden=10, connectivity=1.0, slices=8192, peer_slices=1000),
    Workload(name="w4", visible=200, hidden=50, connectivity=0.1, slices=4096, peer_slices=250),
)
EXACT_PEER_SLICES = 100
MOST_HIDDEN_FOR_EXACT = 10


@dataclass(frozen=True, kw_only=True)
class Timing:
    """One contender on one network, one thread."""

    workload: str
    estimator: str
    bonds: str
    """dense | mask: all bonds, or those of the true network alone"""
    microseconds: float
    """of the E-step with gradient, a slice"""
    numpy_microseconds: float
    """of NumPy on the dense network, a slice"""
    ratio: float
    nanoseconds: float
    """a bond and iteration; for `exact`, a bond and state"""


def timings(*, rounds: int) -> Iterator[Timing]:
    """Every estimator on every network."""
    for work in WORKLOADS:
        couplings = draw_couplings(work.visible, work.hidden, connectivity=work.connectivity, seed=1)
        visible = simulate(couplings, work.slices + 2, seed=2).visible
        faint = FAINT * np.random.default_rng(3).standard_normal(couplings.K.shape)
        dense = couplings._replace(K=np.where(couplings.K == 0, faint, couplings.K))
        networks = {"dense": dense}
        if work.connectivity < 1:
            networks["mask"] = couplings
        for estimator in ("bp", "exact", "tap", "mean-field"):
            if estimator == "exact" and work.hidden > MOST_HIDDEN_FOR_EXACT:
                continue
            yield from _compare(work, networks, visible, EStep(estimator=estimator), rounds)


def _compare(
    work: Workload, networks: dict[str, Couplings], visible: Spins, estep: EStep, rounds: int
) -> Iterator[Timing]:
    exact = estep.estimator == "exact"
    n_peer = EXACT_PEER_SLICES if exact else work.peer_slices
    n_slices = work.slices
    if estep.estimator != "bp":
        networks = {"dense": networks["dense"]}
        n_slices = work.slices // 4
        visible = visible[: n_slices + 2]
    contenders: dict[str, Callable[[], object]] = {
        name: lambda x=x: checked_gradient(x, visible, estep, threads=1)  # type: ignore[misc]
        for name, x in networks.items()
    }
    contenders["numpy"] = lambda: peers.gradient(networks["dense"], visible[: n_peer + 2], estep)
    best = interleave(contenders, rounds)
    reference = best["numpy"] / n_peer
    for name, x in networks.items():
        seconds = best[name] / n_slices
        iterations = 2.0**work.hidden
        if not exact:
            iterations = checked_gradient(x, visible, estep, threads=1).iterations
        yield Timing(
            workload=work.name,
            estimator=estep.estimator,
            bonds=name,
            microseconds=1e6 * seconds,
            numpy_microseconds=1e6 * reference,
            ratio=reference / seconds,
            nanoseconds=1e9 * seconds / (iterations * int(np.count_nonzero(x.K))),
        )


def interleave(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The best of so many rounds for each, seconds, after one that compiles and warms up."""
    best = dict.fromkeys(contenders, np.inf)
    for k in range(rounds + 1):
        for name, call in contenders.items():
            start = time.perf_counter()
            call()
            if k > 0:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def thread_scaling(*, rounds: int) -> float:
    """How many times faster two threads are than one, for `bp` on w2."""
    work = WORKLOADS[1]
    couplings = draw_couplings(work.visible, work.hidden, connectivity=work.connectivity, seed=1)
    visible = simulate(couplings, 65536, seed=2).visible
    best = interleave(
        {str(n): lambda n=n: checked_gradient(couplings, visible, EStep(), threads=n) for n in (1, 2)},  # type: ignore[misc]
        rounds,
    )
    return best["1"] / best["2"]


def first_call() -> float:
    """Seconds of the first E-step in a new process, its kernels on disk; without starting Python and
    importing.
    """
    code = (
        "import time; from kising import draw_couplings, simulate, gradient; "
        "c = draw_couplings(20, 4, seed=1); v = simulate(c, 300, seed=2).visible; "
        "t = time.perf_counter(); gradient(c, v); print(time.perf_counter() - t)"
    )
    command = [sys.executable, "-c", code]
    # The first of the two makes sure that the kernels are on disk.
    runs = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(2)]
    return float(runs[1])


@dataclass(frozen=True, kw_only=True)
class Learned:
    """One network learned from its visible spins, one thread."""

    visible: int
    hidden: int
    length: int
    seconds: float
    iterations: int
    outcome: str


def learning_time(*, visible: int, hidden: int, connectivity: float, length: int) -> Learned:
    """Seconds from a recording to converged couplings."""
    truth = draw_couplings(visible, hidden, connectivity=connectivity, strength=0.5, seed=1)
    recording = simulate(truth, length, seed=2).visible
    start = time.perf_counter()
    found = fit(recording, hidden, start="signs", truth=truth, correlations="closed", seed=3)
    seconds = time.perf_counter() - start
    return Learned(
        visible=visible,
        hidden=hidden,
        length=length,
        seconds=seconds,
        iterations=found.iterations,
        outcome=found.outcome,
    )


def loop_share(*, length: int, iterations: int) -> float:
    """What an EM iteration costs beyond its E-step, as a share of the E-step, at (80, 8) and c = 0.1."""
    truth = draw_couplings(80, 8, connectivity=0.1, seed=1)
    scales = bond_scales(80, 8, strength=1.0, connectivity=0.1)
    recording = simulate(truth, length, seed=2).visible
    problem = pose(recording, scales, truth, aligned=False)
    learning = Learning(estep=EStep())
    state = begin(from_signs(truth, scales, seed=3))
    state = advance(state, problem, learning)
    whole = estep = 0.0
    for _ in range(iterations):
        start = time.perf_counter()
        checked_gradient(state.couplings, recording, learning.estep, threads=1)
        middle = time.perf_counter()
        state = advance(state, problem, learning)
        whole += time.perf_counter() - middle
        estep += middle - start
    return whole / estep - 1.0


def as_rows(items: list[Timing]) -> list[dict[str, object]]:
    """Timings as plain records."""
    return [asdict(x) for x in items]
