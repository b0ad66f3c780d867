"""One run, from its seeds to its row: the one joint between sweeps and science, and a pure function.

Network, recording and start are drawn from seeds that the run carries; nothing is shipped to it, and nothing
but the run decides what comes out: not the worker, the batch, or how often it was tried. Learning can be cut
short after any iteration and go on from a saved state elsewhere: the row is the same, bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from kising.errors import CheckpointError
from kising.estimators.assessment import assess
from kising.estimators.gibbs.chains import Sampling
from kising.estimators.inference import EStep
from kising.learning.checkpoint import load, save
from kising.learning.em import EMState, Learning, advance, begin, learned, pose, sampler_of
from kising.learning.errors import errors_of
from kising.learning.pilots import choose_start
from kising.learning.scores import BLOCKS, BlockShares, align, baseline, bond_shares, coverage, pruned, rmse
from kising.learning.starts import PATIENCE, chain_seed, error_seed, from_data, from_signs
from kising.model import BondScales, Couplings, Recording, bond_scales, draw_couplings, simulate
from kising.seeds import Seed
from kising.sweep.execute.protocol import RunTimeout
from kising.sweep.store.artifacts import pack
from kising.version import NUMERICS, __version__

if TYPE_CHECKING:
    from kising.sweep.plan import Point, Run
    from kising.sweep.store.columns import Row

Steps = Generator[Callable[[], bytes], None, dict[str, object]]


def execute(run: Run, threads: int, timeout: float | None) -> Row:
    """Run from beginning to end and return the row."""
    steps = perform(run, threads, timeout, None)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            row: Row = end.value
            return row


def perform(run: Run, threads: int, timeout: float | None, saved: bytes | None) -> Steps:
    """Draw, simulate, then learn or infer; `RunTimeout` once more than `timeout` seconds have passed.

    Yields, after every iteration of learning, a function that gives the state then, for `saved`; returns the
    row.
    """
    deadline = _Deadline(timeout)
    point = run.point
    model = point.model
    network = draw_couplings(
        model.visible,
        model.hidden,
        strength=model.strength,
        connectivity=model.connectivity,
        bonds=model.bonds,
        seed=run.network_seed,
    )
    recording = simulate(network, point.data.length, seed=run.data_seed)
    deadline.check()
    if point.task == "learn":
        results = yield from _learn(run, network, recording, threads, deadline, saved)
    else:
        results = _infer(run, network, recording, threads)
    deadline.check()
    return {
        "run_id": run.run_id,
        "point_id": point.point_id,
        **point.values(),
        "realization": run.realization,
        **results,
        "numerics": NUMERICS,
        "version": __version__,
    }


class _Deadline:
    """Time is looked at between EM iterations: a kernel cannot be stopped from inside."""

    def __init__(self, timeout: float | None) -> None:
        self._end = None if timeout is None else time.monotonic() + timeout

    def check(self) -> None:
        if self._end is not None and time.monotonic() > self._end:
            raise RunTimeout


def _learn(
    run: Run,
    truth: Couplings,
    recording: Recording,
    threads: int,
    deadline: _Deadline,
    saved: bytes | None,
) -> Steps:
    point, learner = run.point, run.point.learner
    scales = _scales(point)
    learning = Learning(
        estep=_estep(run),
        step=learner.step,
        rate=learner.rate,
        momentum=learner.momentum,
        tolerance=learner.tolerance,
        hold=learner.hold,
        max_iterations=learner.max_iterations,
        patience=PATIENCE[learner.start],
        noise=learner.noise,
        prior=None if learner.prior == "none" else float(learner.prior),
        l1=learner.l1,
        decimate=_shares_kept(point, truth),
    )
    problem = pose(recording.visible, scales, truth, aligned=learner.start == "random")
    state = _resumed(saved, truth)
    start = None
    if state is None or run.keep.couplings:
        start = choose_start(
            partial(_start, point, truth, recording, scales),
            run.start_seed,
            learner.starts,
            problem,
            learning,
            threads=threads,
        )
        deadline.check()
        if state is None:
            state = begin(start, sampler_of(start, problem, learning, seed=chain_seed(run.start_seed)))
    while state.outcome == "running":
        state = advance(state, problem, learning, threads=threads)
        deadline.check()
        yield partial(save, state)
    couplings = learned(state, problem)
    errors = errors_of(state, problem, error_seed(run.start_seed)) if point.score.errors else None
    deadline.check()
    if problem.aligned:
        matching = align(couplings, truth, scales)
        couplings = matching.apply(couplings)
        errors = Couplings(*map(np.abs, matching.apply(errors))) if errors is not None else None
        start = matching.apply(start) if start is not None else None
    found = assess(couplings, recording, learning.estep, against_exact=False, threads=threads)
    scores = rmse(couplings, truth, scales)
    return {
        "estimator": learning.estep.estimator,
        "outcome": state.outcome,
        **{f"converged_{x}": held >= learning.hold for x, held in zip(BLOCKS, state.held, strict=True)},
        **{f"rmse_{x}": scores[x] for x in BLOCKS},
        **(coverage(couplings, errors, truth, scales) if errors is not None else {}),
        **(_after_pruning(couplings, truth, point) if point.score.pruned else {}),
        "baseline_rmse": baseline(point.model.connectivity),
        "iterations": state.iteration,
        "bp_converged": found.converged,
        "corrected": found.corrected,
        "log_likelihood": found.log_likelihood,
        "hidden_overlap": found.overlap,
        **({"couplings": pack((*truth, *start, *couplings))} if run.keep.couplings and start else {}),
        **({"trace": pack([state.trace])} if run.keep.trace else {}),
    }


def _shares_kept(point: Point, truth: Couplings) -> BlockShares | None:
    """What `learner.decimate` comes to."""
    match point.learner.decimate:
        case "none":
            return None
        case "known":
            return bond_shares(truth)
        case share:
            return BlockShares(*(float(share) for _ in BLOCKS))


def _after_pruning(couplings: Couplings, truth: Couplings, point: Point) -> dict[str, object]:
    errors = rmse(pruned(couplings, bond_shares(truth)), truth, _scales(point))
    return {f"rmse_pruned_{x}": errors[x] for x in BLOCKS}


def _start(point: Point, truth: Couplings, recording: Recording, scales: BondScales, seed: Seed) -> Couplings:
    if point.learner.start == "signs":
        return from_signs(truth, scales, seed)
    return from_data(recording.visible, point.model.hidden, scales, seed)


def _resumed(saved: bytes | None, truth: Couplings) -> EMState | None:
    """The state that was saved; None where there is none of such a network, and learning starts over."""
    if saved is None:
        return None
    try:
        state = load(saved)
    except CheckpointError:
        return None
    fits = all(x.shape == true.shape for x, true in zip(state.couplings, truth, strict=True))
    return state if fits else None


def _infer(run: Run, truth: Couplings, recording: Recording, threads: int) -> dict[str, object]:
    point, estep = run.point, _estep(run)
    found = assess(truth, recording, estep, against_exact=point.score.exact, threads=threads)
    return {
        "estimator": estep.estimator,
        # The run of the figures: all its slices settled, or not.
        "outcome": "converged" if found.converged == 1 else "stalled",
        "bp_converged": found.converged,
        "corrected": found.corrected,
        "log_likelihood": found.log_likelihood,
        "hidden_overlap": found.overlap,
        "rmse_m": found.rmse_m,
        "rmse_mu": found.rmse_mu,
        "rmse_pair": found.rmse_pair,
    }


def _estep(run: Run) -> EStep:
    point, learner = run.point, run.point.learner
    damping, seed = learner.estep.damping, chain_seed(run.start_seed)
    return EStep(
        estimator=learner.estimator,
        correlations=learner.correlations,
        tolerance=learner.estep.tolerance,
        damping=None if damping == "adaptive" else float(damping),
        max_iterations=learner.estep.max_iterations,
        precision=learner.estep.precision,
        # Learned couplings are only scored; the averages of task infer are its result.
        sampling=Sampling(sweeps=40, draws=64, seed=seed) if point.task == "learn" else Sampling(seed=seed),
    ).resolved(point.model.hidden)


def _scales(point: Point) -> BondScales:
    """The ensemble's bond scales; those of strength 1 where the strength is 0 and there is no scale."""
    model = point.model
    return bond_scales(
        model.visible, model.hidden, strength=model.strength or 1.0, connectivity=model.connectivity
    )
