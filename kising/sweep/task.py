"""One run, from its seeds to its row, as a pure function: the only link between sweeps and science.

Network, recording and start are drawn from seeds that the run carries. The row depends only on the run and, in a sweep
over a recording, on the recording; not on the worker, the batch, or the number of attempts. Learning can stop after any
iteration and continue elsewhere from a saved state: the row is the same, bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from kising.blocks import BONDS
from kising.estimators.assessment import assess
from kising.estimators.estep import EStep
from kising.estimators.sampling import Sampling
from kising.learning.checkpoint import save
from kising.learning.scores import align, baseline, bond_shares, coverage, pruned, rmse
from kising.learning.session import Session
from kising.learning.starts import chain_seed
from kising.model import BondScales, Couplings, Recording, Spins, bond_scales, draw_couplings, simulate
from kising.seeds import random_stream
from kising.sweep.execute.protocol import RunTimeout
from kising.sweep.fold_task import ending, perform_fold
from kising.sweep.store.artifacts import pack
from kising.version import NUMERICS, __version__

if TYPE_CHECKING:
    from kising.recordings import Segments
    from kising.sweep.plan import Point, Run
    from kising.sweep.store.columns import Row

Steps = Generator[Callable[[], bytes], None, dict[str, object]]


def execute(run: Run, threads: int, timeout: float | None, recording: Segments | None = None) -> Row:
    """Perform a run from beginning to end and return its row."""
    steps = perform(run, threads, timeout, None, recording)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            row: Row = end.value
            return row


def perform(
    run: Run, threads: int, timeout: float | None, saved: bytes | None, recording: Segments | None = None
) -> Steps:
    """Draw and simulate, or take the `recording` given, then learn or infer; `RunTimeout` once more than `timeout`
    seconds have passed.

    After every iteration of learning, yields a function that returns the state as bytes, for `saved`. Returns the row.
    """
    deadline = _Deadline(timeout)
    point = run.point
    if (recording is None) != (point.data.file is None):
        raise ValueError("a run of a sweep over a recording needs the recording, and no other run does")
    if recording is not None:
        results = yield from perform_fold(run, recording, threads, deadline.check, saved)
    else:
        results = yield from _perform_simulated(run, threads, deadline, saved)
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


def _perform_simulated(run: Run, threads: int, deadline: _Deadline, saved: bytes | None) -> Steps:
    point = run.point
    model = point.model
    network = draw_couplings(
        model.visible,
        model.hidden,
        strength=model.strength,
        connectivity=model.connectivity,
        bonds=model.bonds,
        bias=model.bias,
        hidden_coupling=model.hidden_coupling,
        seed=run.network_seed,
    )
    recording = simulate(network, point.data.length, seed=run.data_seed)
    if point.data.missing:
        recording = recording._replace(visible=hide_entries(recording.visible, run))
    deadline.check()
    if point.task == "learn":
        return (yield from _learn(run, network, recording, threads, deadline, saved))
    return _infer(run, network, recording, threads)


def hide_entries(visible: Spins, run: Run) -> Spins:
    """The recording with 0 for missing entries. What is missing of a shorter recording, or where less is missing, is
    missing here too.
    """
    chance = random_stream(run.missing_seed).random(visible.shape)
    return np.where(chance < run.point.data.missing, 0, visible).astype(np.int8)


class _Deadline:
    """The time is checked between EM iterations: a kernel cannot be stopped from inside."""

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
    point, keep, scales = run.point, run.keep, _scales(run.point)
    session = Session.of(
        recording.visible,
        point.model.hidden,
        point.learner,
        seed=run.start_seed,
        scales=scales,
        truth=truth,
        threads=threads,
    )
    state = session.resume(saved) or session.begin()
    deadline.check()
    for state in session.states(state):  # noqa: B020
        deadline.check()
        yield partial(save, state)
    result = session.result(state, errors=point.score.errors)
    deadline.check()
    couplings, errors = result.couplings, result.standard_error
    start = session.start if keep.couplings else None
    if session.problem.aligned:
        matching = align(couplings, truth, scales)
        couplings = matching.apply(couplings)
        errors = None if errors is None else Couplings(*map(np.abs, matching.apply(errors)))
        start = None if start is None else matching.apply(start)
    found = assess(couplings, recording, session.scoring_estep, against_exact=False, threads=threads)
    scores = rmse(couplings, truth, scales)
    return {
        **ending(result),
        **{f"rmse_{x}": scores[x] for x in result.converged},
        **(_coverage(couplings, errors, truth, scales, result.converged) if errors is not None else {}),
        **(_after_pruning(couplings, truth, scales, result.converged) if point.score.pruned else {}),
        "baseline_rmse": baseline(point.model.connectivity),
        "bp_converged": found.converged,
        "corrected": found.corrected,
        "log_likelihood": found.log_likelihood,
        "hidden_overlap": found.overlap,
        **({"couplings": _packed(truth, start.filled, couplings)} if start is not None else {}),
        **({"trace": pack([result.state.trace])} if keep.trace else {}),
    }


def _packed(*sets: Couplings) -> bytes:
    """Couplings of the truth, of the start and as learned; M is in all of them where it is in one."""
    coupled = any(x.M.size for x in sets)
    return pack(block for x in sets for block in (x.with_M if coupled else x))


def _coverage(
    couplings: Couplings, errors: Couplings, truth: Couplings, scales: BondScales, learned: Collection[str]
) -> dict[str, object]:
    found = coverage(couplings, errors, truth, scales)
    return {name: value for name, value in found.items() if name.rpartition("_")[2] in learned}


def _after_pruning(
    couplings: Couplings, truth: Couplings, scales: BondScales, learned: Collection[str]
) -> dict[str, object]:
    errors = rmse(pruned(couplings, bond_shares(truth)), truth, scales)
    return {f"rmse_pruned_{x}": errors[x] for x in BONDS if x in errors and x in learned}


def _infer(run: Run, truth: Couplings, recording: Recording, threads: int) -> dict[str, object]:
    point = run.point
    estep = EStep.of(
        point.learner,
        point.model.hidden,
        Sampling(seed=chain_seed(run.start_seed)),
        coupled=point.model.hidden_coupling > 0,
        gaps=point.data.missing > 0,
    )
    found = assess(truth, recording, estep, against_exact=point.score.exact, threads=threads)
    return {
        "estimator": estep.estimator.name,
        # As in the paper's figures: a run has converged when all its slices have.
        "outcome": "converged" if found.converged == 1 else "stalled",
        "bp_converged": found.converged,
        "corrected": found.corrected,
        "log_likelihood": found.log_likelihood,
        "hidden_overlap": found.overlap,
        "rmse_m": found.rmse_m,
        "rmse_mu": found.rmse_mu,
        "rmse_pair": found.rmse_pair,
    }


def _scales(point: Point) -> BondScales:
    """The ensemble's bond scales; those of strength 1 where the strength is 0 and there is no scale."""
    model = point.model
    return bond_scales(
        model.visible,
        model.hidden,
        strength=model.strength or 1.0,
        connectivity=model.connectivity,
        bias=model.bias,
        hidden_coupling=model.hidden_coupling,
    )
