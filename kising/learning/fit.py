"""`fit`: couplings from a recording of the visible spins, in one call."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import index
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kising.arguments import FIT, check_values
from kising.arrays import holds_arrays
from kising.errors import InputError
from kising.kernels.counter import key_of
from kising.learning.errors import standard_errors
from kising.learning.fitted.edges import edge_table
from kising.learning.fitted.forecasts import Forecasts, forecast_log_likelihood, forecasts
from kising.learning.fitted.heldout import hidden_states, log_likelihood
from kising.learning.fitted.saving import save
from kising.learning.fitted.summary import summary
from kising.learning.scores import nominal_scales, scales_of
from kising.learning.session import Learned, Session
from kising.learning.starts import chain_seed, error_seed
from kising.learning.state import EMState
from kising.learning.trace import trace_table
from kising.model import Array, BondScales, Couplings, Recording, Spins, as_couplings, as_spins, simulate
from kising.options import Learner
from kising.seeds import Seed, as_numbers

if TYPE_CHECKING:
    import pandas as pd


@holds_arrays
@dataclass(frozen=True, kw_only=True)
class Fit(Learned):
    """Learned couplings, how they came about, and what can be done with them. Recordings are (T, Nv) arrays as `fit`
    takes them.

    Averages over hidden spins are exact up to 12 of them. Beyond, they are those of the estimator that learned, with
    random numbers that follow from the seed of the fit.
    """

    learner: Learner
    """the options of learning"""
    seed: int | tuple[int, ...]
    """of learning, and of what is drawn afterwards; as numbers"""
    steps: int
    """time steps of the training data"""
    training_log_likelihood: float
    """nats per slice of the training data"""
    names: tuple[str, ...] | None = None
    """of the visible spins; None: they have numbers, from 0"""

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
        """The fit on one screen of plain text."""
        return summary(self)

    def log_likelihood(self, visible: npt.ArrayLike | None = None, *, threads: int = 1) -> float:
        """Mean of log P(s(t+1) | s(t), s(t-1)), of all visible spins jointly, in nats per slice of a recording; of
        the training data without one.

        Exact up to 12 hidden spins. Beyond, importance sampling for estimator `gibbs`, the Bethe approximation for
        `bp`, and the free energy of the expansion for `tap` and `mean-field`.
        """
        if visible is None:
            return self.training_log_likelihood
        spins = self._checked(visible)
        return log_likelihood(
            self.couplings, spins, self.learner, self.estimator, seed=self.seed, threads=threads
        )

    def forecast(self, visible: npt.ArrayLike, *, threads: int = 1) -> Array:
        """P(s_i(t+1) = +1 | s(t), s(t-1)) of every visible spin by itself, (T-2, Nv); row k is about time step k+2.

        Exact up to 12 hidden spins; beyond, a mean over draws with a standard error of at most 0.008.
        """
        return self._forecasts(self._checked(visible), threads).up

    def forecast_log_likelihood(self, visible: npt.ArrayLike, *, threads: int = 1) -> float:
        """Mean over slices of Σ_i log P(s_i(t+1) | s(t), s(t-1)), each spin by itself, in nats per slice: how good
        forecasts are. `log_likelihood` also rewards correlations between spins at the same time; this does not.
        """
        spins = self._checked(visible)
        return float(np.mean(forecast_log_likelihood(self._forecasts(spins, threads), spins)))

    def hidden_states(self, visible: npt.ArrayLike) -> Array:
        """⟨σ_a(t)⟩ given the visible spins at t-1, t and t+1, between -1 and +1, (T-2, Nh); row k is about time step
        k+1. By the same estimator as `log_likelihood`.
        """
        spins = self._checked(visible)
        return hidden_states(self.couplings, spins, self.learner, self.estimator, seed=self.seed)

    def simulate(self, length: int, *, seed: Seed) -> Recording:
        """A recording of the network that was learned, from a random state."""
        return simulate(self.couplings, length, seed=seed)

    def edges(self) -> "pd.DataFrame":
        """One row per coupling of every block, self-couplings included: block, target (the spin that feels it),
        source, value, error, z = value/error, two-sided normal p, and q, the p adjusted by Benjamini and Hochberg for
        the couplings of its block. Without standard errors error, z, p and q are NaN: fit with errors=True, or see
        `with_errors`. A coupling that the recording does not determine has an infinite error and p = 1.
        """
        return edge_table(self.couplings, self.standard_error, self.names)

    def with_errors(self, visible: npt.ArrayLike) -> "Fit":
        """The same fit with standard errors, as errors=True would have given; `visible` are the training data."""
        spins = self._checked(visible)
        if len(spins) != self.steps:
            raise InputError(f"visible has {len(spins)} steps, the training data had {self.steps}")
        if self.outcome == "diverged":
            raise InputError("couplings that diverged have no standard errors")
        sizes = {"model.visible": spins.shape[1], "model.hidden": self.hidden, "score.errors": True}
        FIT.learner(self.options, sizes, function="with_errors")
        errors = standard_errors(self.couplings, spins, seed=error_seed(self.seed))
        noise = self.monte_carlo_error
        return replace(
            self, standard_error=errors if noise is None else Couplings(*map(np.hypot, errors, noise))
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fit to one .npz file, for `kising.load_fit`: whole or not at all, replacing an older file."""
        save(self, path)

    def _checked(self, visible: npt.ArrayLike) -> Spins:
        return as_spins(visible, width=self.couplings.K.shape[0])

    def _forecasts(self, spins: Spins, threads: int) -> Forecasts:
        return forecasts(self.couplings, spins, key=key_of(chain_seed(self.seed)), threads=threads)


@FIT.taken_by
def fit(
    visible: npt.ArrayLike,
    hidden: int,
    *,
    seed: Seed,
    truth: Couplings | None = None,
    scales: BondScales | None = None,
    errors: bool = False,
    threads: int = 1,
    state: EMState | None = None,
    **options: Any,
) -> Fit:
    """Learn the couplings of a network with `hidden` unseen spins from a (T, Nv) recording of the others.

    `start` may also be couplings to start from; start 'signs' and decimate 'known' need `truth`. `scales` are the bond
    scales that steps, RMSE and `prior` are measured in: by default those of the truth's non-zero bonds, or, without a
    truth, those of a dense network of strength 1. A `prior` of 3, say, keeps couplings that the recording does not
    determine from running away, and hardly moves the others. `errors` asks for standard errors, whose matrix has as
    many rows as there are couplings. `state` continues a fit that was stopped. A fit that diverges ends with its flags
    false; it does not raise.
    """
    hidden = index(hidden)
    check_values("model", hidden=hidden)
    spins = as_spins(visible)
    shape = (spins.shape[1], hidden)
    given, options = _start_apart(options)
    sizes = {"model.visible": shape[0], "model.hidden": hidden, "score.errors": errors}
    learner = FIT.learner(options, sizes, function="fit")
    if given is not None and learner.starts > 1:
        raise InputError(f"starts={learner.starts}: must be 1 where start= gives couplings")
    truth = None if truth is None else as_couplings(truth)
    for name, network in {"truth": truth, "start": given}.items():
        if network is not None and network.K.shape != shape:
            raise InputError(f"{name} is a network of (Nv, Nh) = {network.K.shape}; the fit is of {shape}")
    if scales is None:
        scales = nominal_scales(*shape) if truth is None else scales_of(truth)
    numbers = as_numbers(seed)
    session = Session.of(
        spins, hidden, learner, seed=numbers, scales=scales, truth=truth, start=given, threads=threads
    )
    if state is not None:
        _check_state(state, session)
    learned = session.result(session.run(state), errors=errors)
    return Fit(
        **vars(learned),
        learner=learner,
        seed=numbers,
        steps=len(spins),
        training_log_likelihood=log_likelihood(
            learned.couplings, spins, learner, learned.estimator, seed=numbers, threads=threads
        ),
    )


def _start_apart(options: Mapping[str, Any]) -> tuple[Couplings | None, dict[str, Any]]:
    """The couplings to start from, where these are given, and the other options."""
    start = options.get("start")
    if not isinstance(start, tuple):
        return None, dict(options)
    return as_couplings(Couplings(*start)), {
        name: value for name, value in options.items() if name != "start"
    }


def _check_state(state: EMState, session: Session) -> None:
    if not session.fits(state):
        raise InputError(f"state: it is that of a network of (Nv, Nh) = {state.couplings.K.shape}")
    if state.outcome == "stalled" and state.iteration < session.learner.max_iterations:
        raise InputError(
            "state: it ended at its iteration limit, without a step to go on from; give an earlier one"
        )
