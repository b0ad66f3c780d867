"""`fit`: couplings from a recording of the visible spins, in one call."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import index
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from kising.arguments import FIT, check_values
from kising.arrays import holds_arrays
from kising.conflicts import INPUTS
from kising.cores import check_threads, cores
from kising.errors import InputError, RecordingWarning
from kising.estimators.slices import Slices, slices_of
from kising.learning.effort import iteration_limit
from kising.learning.errors.standard import standard_errors
from kising.learning.fitted.edges import edge_table
from kising.learning.fitted.forecasts import Forecasts, forecast_log_likelihood, forecasts
from kising.learning.fitted.heldout import hidden_states, likelihood_kind, log_likelihood, visible_states
from kising.learning.fitted.saving import save
from kising.learning.fitted.summary import summary
from kising.learning.inputs import InputUnits
from kising.learning.scores import nominal_scales, scales_of
from kising.learning.session import Learned, Session
from kising.learning.starts import chain_seed, error_seed
from kising.learning.state import EMState
from kising.learning.trace import trace_table
from kising.model import Array, BondScales, Couplings, Recording, as_couplings, simulate
from kising.options import Learner
from kising.recordings import Segments, as_segments, fittable
from kising.seeds import Seed, as_numbers

if TYPE_CHECKING:
    import pandas as pd


@holds_arrays
@dataclass(frozen=True, kw_only=True)
class Fit(Learned):
    """Learned couplings, how learning ended, and methods that use them. Recordings are given in any form that `fit`
    takes.

    Averages over hidden spins are exact for up to 12 of them, or up to 8 if they are coupled (M). Beyond that, the
    estimator that was used for learning computes them, with random numbers that follow from the seed of the fit.
    Recordings may have missing entries; averages over these are exact where few spins are unknown at a time, and
    sampled otherwise. With M or missing entries, "given s(t) and s(t-1)" below means "given all that is known of the
    segment up to t".
    """

    learner: Learner
    """the options of learning"""
    seed: int | tuple[int, ...]
    """seed of learning and of all later draws, as numbers"""
    steps: int
    """time steps of the training data"""
    training_log_likelihood: float
    """nats per slice of the training data"""
    likelihood: str
    """what that number is: exact, sampled in some way, or an approximation"""
    names: tuple[str, ...] | None = None
    """names of the visible spins; None: they are numbered from 0"""
    input_names: tuple[str, ...] | None = None
    """names of the known inputs; None: they are u0, u1, ..."""

    @property
    def hidden(self) -> int:
        """Number of hidden spins."""
        return int(self.couplings.K.shape[1])

    @property
    def options(self) -> dict[str, Any]:
        """The options of learning as keyword arguments of `fit`."""
        return FIT.of_learner(self.learner)

    @cached_property
    def trace(self) -> "pd.DataFrame":
        """One row per iteration: step sizes, RMSE, E-step convergence, corrections, mean moments, log-likelihood."""
        return trace_table(self.state.trace)

    def summary(self) -> str:
        """A summary of the fit in plain text, on one screen."""
        return summary(self)

    def log_likelihood(self, visible: Any = None, covariates: Any = None, *, threads: int = 1) -> float:
        """Mean of log P(s(t+1) | s(t), s(t-1)) over the slices of a recording, for all visible spins jointly, in nats
        per slice. Without a recording, that of the training data. With couplings among hidden spins or missing
        entries, log P of what is known at t+1 given all that is known before.

        Exact up to 12 hidden spins. Beyond that: importance sampling for estimator `gibbs`, the Bethe approximation
        for `bp`, and the free energy of the expansion for `tap` and `mean-field`.
        """
        if visible is None:
            return self.training_log_likelihood
        slices, _ = self._slices(visible, covariates)
        return log_likelihood(
            self.couplings,
            slices,
            self.learner,
            self.estimator,
            seed=self.seed,
            threads=check_threads(threads),
        )

    def forecast(self, visible: Any, covariates: Any = None, *, threads: int = 1) -> Array | list[Array]:
        """P(s_i(t+1) = +1 | s(t), s(t-1)) of every visible spin by itself, (T-2, Nv); row k is about time step k+2.
        For a recording with several segments, a list with one such array per segment.

        Exact up to 12 hidden spins; beyond that, a mean over draws with a standard error of at most 0.008.
        """
        slices, segments = self._slices(visible, covariates)
        return _by_segment(self._forecasts(slices, threads).up, segments)

    def forecast_log_likelihood(self, visible: Any, covariates: Any = None, *, threads: int = 1) -> float:
        """Mean over slices of Σ_i log P(s_i(t+1) | s(t), s(t-1)), each spin by itself, in nats per slice: the score of
        the forecasts. `log_likelihood` also rewards correlations between spins at the same time; this does not.
        """
        slices, _ = self._slices(visible, covariates)
        return float(np.mean(forecast_log_likelihood(self._forecasts(slices, threads), slices)))

    def hidden_states(self, visible: Any, covariates: Any = None) -> Array | list[Array]:
        """⟨σ_a(t)⟩ given the visible spins at t-1, t and t+1 or, with M, given the whole segment: between -1 and +1,
        (T-2, Nh); row k is about time step k+1. For a recording with several segments, a list with one such array per
        segment. Computed by the same estimator as `log_likelihood`.
        """
        slices, segments = self._slices(visible, covariates)
        found = hidden_states(self.couplings, slices, self.learner, self.estimator, seed=self.seed)
        return _by_segment(found, segments)

    def visible_states(
        self, visible: Any, covariates: Any = None, *, threads: int = 1
    ) -> Array | list[Array]:
        """⟨s_i(t)⟩ given all that is known, (T, Nv): ±1 where an entry is known, and between -1 and +1 where it is
        missing. For a recording with several segments, a list with one such array per segment.
        """
        slices, segments = self._slices(visible, covariates)
        rows = visible_states(self.couplings, slices, seed=self.seed, threads=check_threads(threads))
        return rows if len(segments.spins) == 1 else np.split(rows, np.cumsum(segments.lengths)[:-1])

    def simulate(self, length: int, covariates: Any = None, *, seed: Seed) -> Recording:
        """Simulate the learned network from a random state."""
        return simulate(self.couplings, length, covariates=covariates, seed=seed)

    def edges(self) -> "pd.DataFrame":
        """One row per coupling of every block, self-couplings included: block, target (the spin that receives it),
        source, value, error, z = value/error, the two-sided normal p, and q, the p adjusted by Benjamini and Hochberg
        for the couplings of its block. Without standard errors, error, z, p and q are NaN: fit with errors=True, or
        see `with_errors`. A coupling that the recording does not determine has an infinite error and p = 1.
        """
        return edge_table(self.couplings, self.standard_error, self.names, self.input_names)

    def with_errors(self, visible: Any, covariates: Any = None) -> "Fit":
        """The same fit with standard errors, as with errors=True; `visible` must be the training data."""
        slices, segments = self._slices(visible, covariates)
        if segments.n_steps != self.steps:
            raise InputError(f"visible has {segments.n_steps} steps, the training data had {self.steps}")
        if self.outcome == "diverged":
            raise InputError("the fit diverged, so its couplings have no standard errors")
        sizes = {
            "model.visible": slices.n_visible,
            "model.hidden": self.hidden,
            INPUTS: slices.n_inputs,
            "score.errors": True,
        }
        FIT.learner(self.options, sizes, function="with_errors")
        # Of a network without hidden spins, `converged` has h but not b.
        pairs = (("h", "b"), ("F", "G"), ("M",))
        learned = self.couplings.only([name for pair in pairs if pair[0] in self.converged for name in pair])
        # In the units used for learning, because the ridge of the information is the same for all inputs.
        units = InputUnits.of(segments, bias=bool(learned.h.size))
        found = standard_errors(
            units.inside(learned),
            units.slices(segments),
            seed=error_seed(self.seed),
            shift=units.shift,
            widths=self.prior_widths,
        )
        errors, noise = units.outside_errors(found.filled), self.monte_carlo_error
        return replace(
            self, standard_error=errors if noise is None else Couplings(*map(np.hypot, errors, noise))
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fit to one .npz file, which `kising.load_fit` reads. An older file is replaced, atomically."""
        save(self, path)

    def _slices(self, visible: Any, covariates: Any) -> tuple[Slices, Segments]:
        if isinstance(visible, Segments) and len(self.names or ()) < visible.n_visible:
            visible = fittable(visible)
        return slices_of(visible, self.couplings, covariates)

    def _forecasts(self, slices: Slices, threads: int) -> Forecasts:
        seed = chain_seed(self.seed)
        return forecasts(self.couplings, slices, seed=seed, threads=check_threads(threads))


def _by_segment(rows: Array, segments: Segments) -> Array | list[Array]:
    """The rows of all slices, split into segments if there are several."""
    if len(segments.spins) == 1:
        return rows
    return np.split(rows, np.cumsum([length - 2 for length in segments.lengths])[:-1])


@FIT.taken_by
def fit(
    visible: Any,
    hidden: int,
    *,
    seed: Seed,
    covariates: Any = None,
    missing: str = "sample",
    truth: Couplings | None = None,
    scales: BondScales | None = None,
    errors: bool = False,
    threads: int | None = None,
    state: EMState | None = None,
    observe: Callable[[EMState], None] | None = None,
    **options: Any,
) -> Fit:
    """Learn the couplings of a network with `hidden` hidden spins from a recording of its visible spins.

    `visible` is a (T, Nv) array of ±1, 0/1 or booleans, a list of trials, a (trials, T, Nv) array, a DataFrame or a
    pynapple TsdFrame. `covariates` are known inputs with the same number of rows. Entries that are NaN or masked are
    missing and are averaged over like hidden spins; with `missing='drop'`, steps with missing entries are left out
    instead. What looks wrong in the recording is reported as a RecordingWarning. Spins that never change are left out
    (`Fit.names` lists those that were fitted).

    `start` may also be couplings to start from; start 'signs' and decimate 'known' need `truth`. Steps, RMSE and
    `prior` are measured in bond scales, `scales`: by default those of the truth's non-zero bonds or, without a truth,
    those of a dense network of strength 1. `errors` asks for standard errors, which need a square matrix with one row
    per coupling. `threads` affects the time, not the result; None: all cores. `state` continues a fit that was stopped.
    `observe` is called with the state after every iteration, and may end the fit by raising an exception. A fit that
    diverges does not raise: its `outcome` is 'diverged'.
    """
    hidden = index(hidden)
    threads = cores() if threads is None else check_threads(threads)
    check_values("model", hidden=hidden)
    given, options = _start_apart(options)
    FIT.learner(options, {"model.hidden": hidden, "score.errors": errors}, function="fit")
    recording = fittable(as_segments(visible, covariates, missing=missing))
    for note in recording.notes:
        warnings.warn(note, RecordingWarning, stacklevel=2)
    shape = (recording.n_visible, hidden)
    sizes = {
        "model.visible": shape[0],
        "model.hidden": hidden,
        INPUTS: recording.n_covariates,
        "score.errors": errors,
    }
    learner = FIT.learner(options, sizes, function="fit")
    if given is not None and learner.starts > 1:
        raise InputError(f"starts={learner.starts}: must be 1 where start= gives couplings")
    truth = None if truth is None else as_couplings(truth)
    wanted = (*shape, recording.n_covariates)
    for name, network in {"truth": truth, "start": given}.items():
        if network is not None and (*network.K.shape, network.F.shape[1]) != wanted:
            raise InputError(
                f"{name} is a network of (Nv, Nh) = {network.K.shape} with {network.F.shape[1]} inputs; the fit has "
                f"{shape} with {recording.n_covariates}"
            )
    if scales is None:
        scales = nominal_scales(*shape) if truth is None else scales_of(truth)._replace(F=1.0, G=1.0)
    numbers = as_numbers(seed)
    units = InputUnits.of(recording, bias=learner.bias)
    session = Session.of(
        units.slices(recording),
        hidden,
        learner,
        seed=numbers,
        scales=scales,
        truth=units.inside(truth),
        start=units.inside(given),
        input_shift=units.shift,
        threads=threads,
    )
    if state is not None:
        _check_state(state, session)
    learned = session.result(session.run(state, observe), errors=errors)
    couplings = units.outside(learned.couplings)
    natural = {
        "couplings": couplings,
        "monte_carlo_error": units.outside_noise(learned.monte_carlo_error),
        "standard_error": units.outside_errors(learned.standard_error),
    }
    slices = Slices.of(recording.spins, recording.covariates)
    return Fit(
        **{**vars(learned), **natural},
        learner=learner,
        seed=numbers,
        steps=recording.n_steps,
        training_log_likelihood=log_likelihood(
            couplings, slices, learner, learned.estimator, seed=numbers, threads=threads
        ),
        likelihood=likelihood_kind(couplings, slices, learner, learned.estimator),
        names=recording.names,
        input_names=recording.covariate_names or None,
    )


def _start_apart(options: Mapping[str, Any]) -> tuple[Couplings | None, dict[str, Any]]:
    """The couplings to start from, if they are given, and the other options."""
    start = options.get("start")
    if not isinstance(start, tuple):
        return None, dict(options)
    return as_couplings(Couplings(*start)), {
        name: value for name, value in options.items() if name != "start"
    }


def _check_state(state: EMState, session: Session) -> None:
    refusal = session.refusal(state)
    if refusal is not None:
        raise InputError(f"state: {refusal}")
    limit = iteration_limit(session.learner, session.problem.hidden, gaps=session.problem.slices.has_gaps)
    # A fit that crawled has ended, whatever its limit: errors and scores may still have to be made.
    if state.outcome == "stalled" and state.iteration < limit and not session.crawled(state):
        raise InputError("state: it stalled and cannot be continued; give an earlier one")
