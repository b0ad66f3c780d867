"""`fit`: couplings from a recording of the visible spins, in one call."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kising.errors import InputError
from kising.estimators.inference import EStep
from kising.learning.em import (
    TRACE_COLUMNS,
    EMState,
    Learning,
    Problem,
    advance,
    begin,
    learned,
    noise_of,
    pose,
    sampler_of,
    score,
)
from kising.learning.errors import check_size, errors_of
from kising.learning.pilots import choose_start
from kising.learning.scores import BLOCKS, BlockShares, nominal_scales, scales_of
from kising.learning.starts import PATIENCE, STARTS, chain_seed, error_seed, from_data, from_signs
from kising.model import BondScales, Couplings, as_couplings, as_spins
from kising.seeds import Seed

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Fit:
    """Learned couplings and how they came about."""

    couplings: Couplings
    """as learned: hidden units in the order and orientation in which they came out"""
    trace: "pd.DataFrame"
    """a row an iteration: step sizes, RMSE, E-step convergence, corrections, mean moments, log-likelihood"""
    converged: dict[str, bool]
    """for J, K, L: whether the block had settled when learning ended"""
    rmse: dict[str, float] | None
    """for J, K, L, in units of the bond scale, after matching hidden units where the start was random; None
    without a truth
    """
    outcome: str
    """converged | stalled | diverged"""
    iterations: int
    """EM iterations made"""
    estimator: str
    """the one that ran, where `auto` was asked for"""
    monte_carlo_error: Couplings | None
    """of estimator gibbs: the standard error of the couplings that comes from sampling, not from the data"""
    standard_error: Couplings | None
    """of the couplings, from the observed information, that of sampling included; None unless it was asked for, and
    where learning diverged
    """
    state: EMState
    """where learning ended; give it as `state` to continue"""


def fit(
    visible: npt.ArrayLike,
    hidden: int,
    *,
    estimator: str = "bp",
    correlations: str = "corrected",
    start: str | Couplings = "random",
    truth: Couplings | None = None,
    scales: BondScales | None = None,
    seed: Seed,
    step: str = "scaled",
    rate: float = 0.1,
    momentum: float = 0.0,
    tolerance: float = 1e-4,
    hold: int = 3,
    max_iterations: int = 300,
    estep_tolerance: float = 1e-9,
    estep_damping: float | None = None,
    estep_max_iterations: int = 200,
    precision: str = "float64",
    noise: float = 0.1,
    prior: float | None = None,
    l1: float = 0.0,
    decimate: float | BlockShares | None = None,
    starts: int = 1,
    errors: bool = False,
    threads: int = 1,
    state: EMState | None = None,
) -> Fit:
    """Learn the couplings of a network with `hidden` unseen spins from a (T, Nv) recording of the others.

    `start` is 'random', 'signs' (needs `truth`, and tells the learner the sign of every true coupling) or
    couplings to start from. `scales` are the bond scales that steps and RMSE are measured in: by default
    those of the truth's non-zero bonds, or, without a truth, those of a dense network of strength 1. `prior` is the
    width of a Gaussian prior in these scales, None for maximum likelihood: 3, say, keeps couplings that the recording
    does not determine from running away, and hardly moves the others. `l1` is a penalty on the size of every coupling,
    in standard errors: 0 for none; `decimate` the share of the couplings of J, K and L each, or one share for all, that
    may differ from zero, forced at every step (see `kising.learning.sparse`). With several `starts`, learning goes on
    from the likeliest of as many pilots (see `kising.learning.pilots`). `errors` asks for standard errors, whose matrix
    is the square of the number of couplings. A fit that diverges ends with its flags false; it does not raise.
    """
    if hidden < 1:
        raise InputError(f"hidden={hidden}: must be at least 1")
    if starts < 1 or (starts > 1 and not isinstance(start, str)):
        raise InputError(f"starts={starts}: must be at least 1, and 1 where start= gives couplings")
    learning = Learning(
        estep=EStep(
            estimator=estimator,
            correlations=correlations,
            tolerance=estep_tolerance,
            damping=estep_damping,
            max_iterations=estep_max_iterations,
            precision=precision,
        ).resolved(hidden),
        step=step,
        rate=rate,
        momentum=momentum,
        tolerance=tolerance,
        hold=hold,
        max_iterations=max_iterations,
        patience=PATIENCE.get(start, 0) if isinstance(start, str) else 0,
        noise=noise,
        prior=prior,
        l1=l1,
        decimate=None if decimate is None else _shares(decimate),
    )
    spins = as_spins(visible)
    shape = (spins.shape[1], hidden)
    if errors:
        check_size(*shape)
        if l1 > 0 or decimate is not None:
            raise InputError("errors: they are those of maximum likelihood; leave out l1 and decimate")
    if truth is not None:
        truth = as_couplings(truth)
        if truth.K.shape != shape:
            raise InputError(f"truth is a network of (Nv, Nh) = {truth.K.shape}; the fit is of {shape}")
    if scales is None:
        scales = nominal_scales(*shape) if truth is None else scales_of(truth)
    problem = pose(spins, scales, truth, aligned=start == "random")
    if state is None:
        couplings = choose_start(
            lambda own: _initial(start, problem, hidden, own),
            seed,
            starts,
            problem,
            learning,
            threads=threads,
        )
        state = begin(couplings, sampler_of(couplings, problem, learning, seed=chain_seed(seed)))
    elif state.outcome == "stalled" and state.iteration < max_iterations:
        raise InputError(
            "this state ended at its iteration limit, without a step to go on from: give an earlier one"
        )
    while state.outcome == "running":
        state = advance(state, problem, learning, threads=threads)
    return summarise(state, problem, learning, error_seed(seed) if errors else None)


def _shares(decimate: float | BlockShares) -> BlockShares:
    if isinstance(decimate, BlockShares):
        return decimate
    if not 0 < decimate <= 1:
        raise InputError(f"decimate={decimate}: must be above 0 and at most 1, or None")
    return BlockShares(decimate, decimate, decimate)


def _initial(start: str | Couplings, problem: Problem, hidden: int, seed: Seed) -> Couplings:
    if not isinstance(start, str):
        return as_couplings(start)
    if start == "signs":
        if problem.truth is None:
            raise InputError(
                "start='signs' takes the signs of the true couplings: give truth=, or start='random'"
            )
        return from_signs(problem.truth, problem.scales, seed)
    if start == "random":
        return from_data(problem.visible, hidden, problem.scales, seed)
    raise InputError(f"start={start!r}: must be one of {', '.join(STARTS)}, or couplings")


def summarise(state: EMState, problem: Problem, learning: Learning, errors: Seed | None = None) -> Fit:
    """The result of learning that has ended; `errors` is the seed of standard errors, where they are wanted."""
    import pandas as pd

    return Fit(
        couplings=learned(state, problem),
        trace=pd.DataFrame(state.trace, columns=list(TRACE_COLUMNS)).astype({"iteration": np.int64}),
        converged={name: held >= learning.hold for name, held in zip(BLOCKS, state.held, strict=True)},
        rmse=score(learned(state, problem), problem),
        outcome=state.outcome,
        iterations=state.iteration,
        estimator=learning.estep.estimator,
        monte_carlo_error=noise_of(state, problem),
        standard_error=None if errors is None else errors_of(state, problem, errors),
        state=state,
    )
