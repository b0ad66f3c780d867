"""The likelihood and the hidden states of a recording under learned couplings.

Averages over hidden spins are exact up to LARGEST_ENUMERATION hidden spins, whichever estimator was used for learning,
so that fits can be compared. Beyond that they are those of the estimator: sampled for `gibbs`, approximate for the
others. With missing entries they are exact where few spins are unknown at a time, and sampled otherwise.
"""

import numpy as np

from kising.estimators.estep import EStep
from kising.estimators.gradient import checked_gradient
from kising.estimators.moments import marginals
from kising.estimators.paths import enumerated, sampled
from kising.estimators.paths.enumerated import can_enumerate
from kising.estimators.registry import entry
from kising.estimators.sampling import Sampling
from kising.estimators.slices import Slices, as_slices
from kising.estimators.steps import Steps
from kising.learning.fitted.forecasts import LARGEST_ENUMERATION
from kising.learning.starts import chain_seed
from kising.model import Array, Couplings, Spins
from kising.options import Learner
from kising.seeds import Seed


def scoring_estimator(learned_with: str, hidden: int, *, coupled: bool = False) -> str:
    """The name of the estimator that a fit is scored by; `coupled` says whether it has M."""
    largest = entry("exact").largest_coupled if coupled else LARGEST_ENUMERATION
    return "exact" if largest is not None and hidden <= largest else learned_with


def likelihood_kind(
    couplings: Couplings, recording: Slices | Spins, learner: Learner, learned_with: str
) -> str:
    """What `log_likelihood` of a recording is: exact, importance sampling, Bethe approximation, ..."""
    couplings, slices = couplings.without_zero_M, as_slices(recording)
    used = _estep(couplings, slices, learner, learned_with, Sampling()).estimator
    return used.path_likelihood or used.likelihood if slices.coupled_by(couplings) else used.likelihood


def log_likelihood(
    couplings: Couplings,
    recording: Slices | Spins,
    learner: Learner,
    learned_with: str,
    *,
    seed: Seed,
    threads: int = 1,
) -> float:
    """The mean of log P_t, nats per slice, of a checked recording; with M, of log P(s(t+1) | s(≤t)) over the same
    slices.
    """
    # Sweeps only have to find a good proposal for importance sampling, whose error is due to the number of draws.
    sampling = Sampling(sweeps=16, settling=10, seed=chain_seed(seed))
    couplings, slices = couplings.without_zero_M, as_slices(recording)
    estep = _estep(couplings, slices, learner, learned_with, sampling)
    if slices.coupled_by(couplings):
        code = estep.estimator.path_code(gaps=slices.has_gaps)
        steps = code.log_likelihood(couplings, slices, estep, threads=threads)
        return float(np.mean(steps[~Steps.of(slices).begins]))
    return float(checked_gradient(couplings, slices, estep, threads=threads).log_likelihood)


def hidden_states(
    couplings: Couplings, recording: Slices | Spins, learner: Learner, learned_with: str, *, seed: Seed
) -> Array:
    """⟨σ_a⟩ given the slice, with M given the segment, (T-2, Nh); row k is about time step k+1 of the recording."""
    couplings, slices = couplings.without_zero_M, as_slices(recording)
    sampling = Sampling(seed=chain_seed(seed))
    return marginals(couplings, slices, _estep(couplings, slices, learner, learned_with, sampling))


def visible_states(couplings: Couplings, recording: Slices | Spins, *, seed: Seed, threads: int = 1) -> Array:
    """⟨s_i(t)⟩ of all time steps given all that is known: ±1 where an entry is known, (T, Nv)."""
    couplings, slices = couplings.without_zero_M, as_slices(recording)
    if not slices.has_gaps:
        return slices.spins.astype(np.float64)
    if can_enumerate(couplings, slices):
        found = enumerated.means(couplings, slices)
    else:
        found = sampled.means(couplings, slices, Sampling(seed=chain_seed(seed)), threads=threads)
    return found[:, : slices.n_visible]


def _estep(
    couplings: Couplings, slices: Slices, learner: Learner, learned_with: str, sampling: Sampling
) -> EStep:
    hidden = couplings.K.shape[1]
    coupled, gaps = couplings.couples_slices, slices.has_gaps
    name = scoring_estimator(learned_with, hidden, coupled=coupled)
    if gaps:
        name = "exact" if can_enumerate(couplings, slices) else "gibbs"
    return EStep.of(
        learner.model_copy(update={"estimator": name}), hidden, sampling, coupled=coupled, gaps=gaps
    )
