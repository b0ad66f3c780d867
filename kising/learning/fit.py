"""`fit`: couplings from a recording of the visible spins, in one call."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from kising.arguments import FIT, check_values
from kising.arrays import holds_arrays
from kising.errors import InputError
from kising.learning.scores import nominal_scales, scales_of
from kising.learning.session import Learned, Session
from kising.learning.state import EMState
from kising.learning.trace import trace_table
from kising.model import BondScales, Couplings, as_couplings, as_spins
from kising.seeds import Seed

if TYPE_CHECKING:
    import pandas as pd


@holds_arrays
@dataclass(frozen=True, kw_only=True)
class Fit(Learned):
    """Learned couplings and how they came about; give its `state` to `fit` to continue."""

    @cached_property
    def trace(self) -> "pd.DataFrame":
        """One row per iteration: step sizes, RMSE, E-step convergence, corrections, mean moments, log-likelihood."""
        return trace_table(self.state.trace)


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
    session = Session.of(
        spins, hidden, learner, seed=seed, scales=scales, truth=truth, start=given, threads=threads
    )
    if state is not None:
        _check_state(state, session)
    return Fit(**vars(session.result(session.run(state), errors=errors)))


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
