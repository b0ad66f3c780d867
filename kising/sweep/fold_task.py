"""One run on a recording: learn from all folds but one, and score the held-out one; the same for two baselines.

Like every run, it is a pure function of the run and the recording. Training uses nothing of the held-out fold, not even
the standard deviation of its inputs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kising.estimators.gradient import checked_gradient
from kising.estimators.slices import Slices
from kising.learning.baselines import baseline_learner, memoryless
from kising.learning.checkpoint import save
from kising.learning.fitted.forecasts import forecast_log_likelihood, forecasts
from kising.learning.fitted.heldout import log_likelihood
from kising.learning.folds import hold_out
from kising.learning.inputs import InputUnits
from kising.learning.scores import nominal_scales
from kising.learning.session import Learned, Session
from kising.learning.starts import chain_seed
from kising.model import BondScales, Couplings
from kising.options import Learner
from kising.sweep.store.artifacts import pack

if TYPE_CHECKING:
    from kising.recordings import Segments
    from kising.seeds import Seed
    from kising.sweep.plan import Run

Steps = Generator[Callable[[], bytes], None, dict[str, object]]

_REMEMBERED: Final = 1024


class Scores(NamedTuple):
    """Of learned couplings, on the fold that was held out; None where they are not finite."""

    held_out: float | None
    """mean of log P(s(t+1) | s(t), s(t-1)), nats per slice"""
    forecast: float | None
    """mean of Σ_i log P(s_i(t+1) | s(t), s(t-1)), nats per slice"""


class _Data(NamedTuple):
    """The slices of a fold."""

    training: Slices
    held_out: Slices

    @property
    def has_gaps(self) -> bool:
        """Whether entries are missing, in what is learned from or in what is held out."""
        return self.training.has_gaps or self.held_out.has_gaps

    def without_memory(self) -> _Data:
        return _Data(memoryless(self.training), memoryless(self.held_out))


# Baselines are the same for many points. They are remembered by everything that they depend on.
_baselines: OrderedDict[tuple[object, ...], Scores] = OrderedDict()


def perform_fold(
    run: Run, recording: Segments, threads: int, check: Callable[[], None], saved: bytes | None
) -> Steps:
    """Learn, score, and return the results; `check` raises once the time is over.

    After every iteration, of the baselines' learning too, yields a function that returns the state of the network's.
    """
    point = run.point
    hidden, learner, seed = point.model.hidden, point.learner, run.start_seed
    data = _slices(recording, run.realization, point.data.folds, bias=point.learner.bias)
    scales = nominal_scales(data.training.n_visible, hidden)
    session = Session.of(data.training, hidden, learner, seed=seed, scales=scales, threads=threads)
    state = session.resume(saved) or session.begin()
    check()
    for state in session.states(state):  # noqa: B020
        check()
        yield partial(save, state)
    result = session.result(state, errors=point.score.errors)
    check()
    scores = _scores(result, learner, data.held_out, seed, threads)
    # Named by what they are learned from: the point, but for what a baseline leaves out. The network's option bias
    # decides the units of inputs, the baselines' too.
    where = (point.data.hash, point.data.folds, run.realization, learner.bias)
    # Without hidden spins, what is random is what stands for missing entries.
    drawn = seed if data.has_gaps else None
    visible, no_memory = baseline_learner(learner, 0), baseline_learner(learner, hidden)
    at = partial(save, state)
    alone = yield from _baseline(
        (*where, 0, visible.model_dump_json(), drawn), data, 0, visible, seed, threads, check, at
    )
    control = yield from _baseline(
        (*where, hidden, no_memory.model_dump_json(), seed),
        data.without_memory(),
        hidden,
        no_memory,
        seed,
        threads,
        check,
        at,
    )
    return {
        **ending(result),
        **(_errors(result, scales) if result.standard_error is not None else {}),
        **_training(result, session, data.training, seed),
        **scores._asdict(),
        **{f"{name}_visible_only": value for name, value in alone._asdict().items()},
        **{f"{name}_memoryless": value for name, value in control._asdict().items()},
        **({"trace": pack([result.state.trace])} if run.keep.trace else {}),
    }


def ending(result: Learned) -> dict[str, object]:
    """The columns that say how learning ended."""
    return {
        "estimator": result.estimator,
        "outcome": result.outcome,
        "missing": result.missing,
        "iterations": result.iterations,
        **{f"converged_{x}": done for x, done in result.converged.items()},
        **{f"excess_{x}": excess for x, excess in result.excess.items()},
    }


def _slices(recording: Segments, fold: int, folds: int, *, bias: bool) -> _Data:
    """Inputs are in units of their spread in the training data and, with biases, about their mean there."""
    parts = hold_out(recording, fold, folds)
    units = InputUnits.of(parts.training, bias=bias)
    return _Data(*map(units.slices, parts))


def _scores(learned: Learned, learner: Learner, held_out: Slices, seed: Seed, threads: int) -> Scores:
    couplings = learned.couplings
    if not _is_finite(couplings):
        return Scores(None, None)
    joint = log_likelihood(couplings, held_out, learner, learned.estimator, seed=seed, threads=threads)
    expected = forecasts(couplings, held_out, seed=chain_seed(seed), threads=threads)
    return Scores(joint, float(np.mean(forecast_log_likelihood(expected, held_out))))


def _is_finite(couplings: Couplings) -> bool:
    return all(np.isfinite(x).all() for x in couplings)


def _training(learned: Learned, session: Session, training: Slices, seed: Seed) -> dict[str, object]:
    """The scores of the network on its training data."""
    if not _is_finite(learned.couplings):
        return {}
    couplings = learned.couplings.without_zero_M
    # Along paths there are no messages, so that all have converged.
    converged, corrected = 1.0, 0.0
    if not training.coupled_by(couplings):
        found = checked_gradient(couplings, training, session.scoring_estep, threads=session.threads)
        converged, corrected = float(found.converged), float(found.corrected)
    return {
        "bp_converged": converged,
        "corrected": corrected,
        "log_likelihood": log_likelihood(
            learned.couplings,
            training,
            session.learner,
            learned.estimator,
            seed=seed,
            threads=session.threads,
        ),
    }


def _errors(learned: Learned, scales: BondScales) -> dict[str, object]:
    """Root mean square standard errors in bond scales, of couplings that the data determine."""
    found: dict[str, object] = {}
    for name in learned.converged:
        errors = np.asarray(getattr(learned.standard_error, name))
        known = errors[np.isfinite(errors)]
        if known.size:
            found[f"error_{name}"] = float(np.sqrt(np.mean(known**2)) / getattr(scales, name))
    return found


def _baseline(
    key: tuple[object, ...],
    data: _Data,
    hidden: int,
    learner: Learner,
    seed: Seed,
    threads: int,
    check: Callable[[], None],
    at: Callable[[], bytes],
) -> Generator[Callable[[], bytes], None, Scores]:
    """The scores of a baseline; learned once per fold in a process."""
    known = _baselines.get(key)
    if known is not None:
        return known
    scales = nominal_scales(data.training.n_visible, hidden)
    session = Session.of(data.training, hidden, learner, seed=seed, scales=scales, threads=threads)
    state = session.begin()
    for state in session.states(state):  # noqa: B007, B020
        check()
        yield at
    scores = _scores(session.result(state), learner, data.held_out, seed, threads)
    _baselines[key] = scores
    if len(_baselines) > _REMEMBERED:
        _baselines.popitem(last=False)
    return scores
