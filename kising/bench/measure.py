"""Timings of contenders that are interleaved: on a busy machine ratios are reliable even if times are not.

Every contender runs once in each of several rounds, and its best round counts. One-threaded contenders are timed
by CPU time.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from kising.bench import numpy_estep
from kising.estimators.estep import EStep
from kising.estimators.gradient import checked_gradient
from kising.estimators.slices import Slices
from kising.learning.fit import fit
from kising.learning.session import Session
from kising.model import Couplings, Spins, bond_scales, draw_couplings, simulate
from kising.options import EStep as EStepOptions
from kising.options import Learner

# The size of absent bonds in the dense network: learning leaves them small, not zero.
FAINT = 1e-3


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A network, and the number of slices for each contender."""

    name: str
    visible: int
    hidden: int
    connectivity: float
    slices: int
    """of the kernels; a round takes tens of milliseconds"""
    peer_slices: int
    """of NumPy"""


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
    precision: str
    bonds: str
    """dense | mask: all bonds, or only those of the true network"""
    microseconds: float
    """CPU time of the E-step with gradient, per slice"""
    numpy_microseconds: float
    """the same for NumPy in float64 on the dense network"""
    ratio: float
    nanoseconds: float
    """per bond and iteration; for `exact`, per bond and state"""


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
            yield from _compare(work, networks, visible, estimator, rounds)


def _compare(
    work: Workload, networks: dict[str, Couplings], visible: Spins, estimator: str, rounds: int
) -> Iterator[Timing]:
    plain = _estep(work.hidden, estimator)
    n_peer = EXACT_PEER_SLICES if estimator == "exact" else work.peer_slices
    esteps, n_slices = [plain], work.slices // 4
    if estimator == "bp":
        esteps, n_slices = [plain, _estep(work.hidden, estimator, "float32")], work.slices
    else:
        networks = {"dense": networks["dense"]}
    visible = visible[: n_slices + 2]
    kernels = [(bonds, estep, x) for bonds, x in networks.items() for estep in esteps]
    contenders: list[Callable[[], object]] = [
        partial(checked_gradient, x, visible, estep, threads=1) for _, estep, x in kernels
    ]
    contenders.append(partial(numpy_estep.gradient, networks["dense"], visible[: n_peer + 2], plain))
    *ours, theirs = interleave(contenders, rounds, clock=time.thread_time)
    reference = theirs / n_peer
    for (bonds, estep, x), best in zip(kernels, ours, strict=True):
        seconds = best / n_slices
        iterations = 2.0**work.hidden
        if estimator != "exact":
            iterations = checked_gradient(x, visible, estep, threads=1).iterations
        yield Timing(
            workload=work.name,
            estimator=estimator,
            precision=estep.precision,
            bonds=bonds,
            microseconds=1e6 * seconds,
            numpy_microseconds=1e6 * reference,
            ratio=reference / seconds,
            nanoseconds=1e9 * seconds / (iterations * int(np.count_nonzero(x.K))),
        )


def _estep(hidden: int, estimator: str = "bp", precision: str = "float64") -> EStep:
    learner = Learner(estimator=estimator, correlations="closed", estep=EStepOptions(precision=precision))
    return EStep.of(learner, hidden)


def interleave(
    contenders: Sequence[Callable[[], object]], rounds: int, *, clock: Callable[[], float]
) -> list[float]:
    """The best of `rounds` rounds for each, in seconds of `clock`, after a first round that compiles."""
    best = [np.inf] * len(contenders)
    for k in range(rounds + 1):
        for place, call in enumerate(contenders):
            start = clock()
            call()
            if k > 0:
                best[place] = min(best[place], clock() - start)
    return best


def thread_scaling(*, rounds: int) -> float:
    """The speed-up of two threads over one, for `bp` on w2; needs two idle cores."""
    work = WORKLOADS[1]
    couplings = draw_couplings(work.visible, work.hidden, connectivity=work.connectivity, seed=1)
    visible = simulate(couplings, 65538, seed=2).visible
    estep = _estep(work.hidden)
    contenders = [partial(checked_gradient, couplings, visible, estep, threads=n) for n in (1, 2)]
    one, two = interleave(contenders, rounds, clock=time.perf_counter)
    return one / two


def field_cost(*, rounds: int) -> dict[str, float]:
    """What biases and two inputs cost the E-step with gradient, as a fraction of it, by estimator and network. The
    fields themselves are zero: with others the same slices would take another number of iterations.
    """
    found = {}
    for work in WORKLOADS[:3]:
        couplings = draw_couplings(work.visible, work.hidden, connectivity=work.connectivity, seed=1)
        visible = simulate(couplings, work.slices + 2, seed=2).visible
        inputs = np.random.default_rng(3).standard_normal((len(visible), 2))
        tiny = [np.full((n, 2), 1e-300) for n in (work.visible, work.hidden)]
        fielded = couplings._replace(h=tiny[0][:, 0].copy(), b=tiny[1][:, 0].copy(), F=tiny[0], G=tiny[1])
        for estimator in ("bp", "exact"):
            estep = _estep(work.hidden, estimator=estimator)
            plain, with_fields = interleave(
                [
                    partial(checked_gradient, couplings.only(()), Slices.of([visible]), estep, threads=1),
                    partial(checked_gradient, fielded, Slices.of([visible], [inputs]), estep, threads=1),
                ],
                rounds,
                clock=time.thread_time,
            )
            found[f"{estimator}, {work.name}"] = with_fields / plain - 1.0
    return found


def first_call() -> float:
    """Seconds of the first E-step in a new process whose kernels are on disk, without the start of Python and
    imports.
    """
    code = (
        "import time; from kising import draw_couplings, simulate, gradient; "
        "c = draw_couplings(20, 4, seed=1); v = simulate(c, 300, seed=2).visible; "
        "t = time.perf_counter(); gradient(c, v, estimator='bp'); print(time.perf_counter() - t)"
    )
    command = [sys.executable, "-c", code]
    # The first run puts the kernels on disk.
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
    """Learn a network; the seconds from its recording to the end of learning."""
    truth = draw_couplings(visible, hidden, connectivity=connectivity, strength=0.5, seed=1)
    recording = simulate(truth, length, seed=2).visible
    start = time.perf_counter()
    found = fit(recording, hidden, estimator="bp", start="signs", truth=truth, correlations="closed", seed=3)
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
    """The cost of an EM iteration beyond its E-step, as a fraction of the E-step, at (80, 8) and c = 0.1."""
    truth = draw_couplings(80, 8, connectivity=0.1, seed=1)
    scales = bond_scales(80, 8, strength=1.0, connectivity=0.1)
    recording = simulate(truth, length, seed=2).visible
    learner = Learner(estimator="bp", correlations="closed", start="signs")
    session = Session.of(recording, 8, learner, seed=3, scales=scales, truth=truth)
    # The first iteration compiles, and starts the history that later ones use.
    state = session.advance(session.begin())
    moves = estep = 0.0
    for _ in range(iterations):
        start = time.thread_time()
        observed = session.step.observe(state, threads=1)
        middle = time.thread_time()
        state = session.conclude(*observed)
        moves += time.thread_time() - middle
        estep += middle - start
    return moves / estep


def as_rows(items: list[Timing]) -> list[dict[str, object]]:
    """Timings as plain records."""
    return [asdict(x) for x in items]
