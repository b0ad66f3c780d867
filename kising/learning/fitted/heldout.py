"""How learned couplings do on a recording, that of learning or another: its likelihood and its hidden states.

Averages over hidden spins are exact up to LARGEST_ENUMERATION hidden spins, whichever estimator learned: fits can then
be compared. Beyond, they are those of the estimator that learned: sampled for `gibbs`, approximate for the others.
"""

import numpy as np

from kising.estimators.estep import EStep
from kising.estimators.gradient import checked_gradient
from kising.estimators.moments import marginals
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


def likelihood_kind(learned_with: str, hidden: int, *, coupled: bool = False) -> str:
    """What the log-likelihood of a fit is: exact, importance sampling, Bethe approximation, ..."""
    return entry(scoring_estimator(learned_with, hidden, coupled=coupled)).likelihood


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
    couplings = couplings.without_zero_M
    estep = _estep(couplings, learner, learned_with, sampling)
    if couplings.couples_slices:
        slices = as_slices(recording)
        steps = estep.estimator.path_code.log_likelihood(couplings, slices, estep, threads=threads)
        return float(np.mean(steps[~Steps.of(slices).begins]))
    return float(checked_gradient(couplings, recording, estep, threads=threads).log_likelihood)


def hidden_states(
    couplings: Couplings, recording: Slices | Spins, learner: Learner, learned_with: str, *, seed: Seed
) -> Array:
    """⟨σ_a⟩ given the slice, with M given the segment, (T-2, Nh); row k is about time step k+1 of the recording."""
    couplings = couplings.without_zero_M
    return marginals(
        couplings, recording, _estep(couplings, learner, learned_with, Sampling(seed=chain_seed(seed)))
    )


def _estep(couplings: Couplings, learner: Learner, learned_with: str, sampling: Sampling) -> EStep:
    hidden = couplings.K.shape[1]
    coupled = couplings.couples_slices
    name = scoring_estimator(learned_with, hidden, coupled=coupled)
    return EStep.of(learner.model_copy(update={"estimator": name}), hidden, sampling, coupled=coupled)
