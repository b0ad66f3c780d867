"""How learned couplings do on a recording, that of learning or another: its likelihood and its hidden states.

Averages over hidden spins are exact up to LARGEST_ENUMERATION hidden spins, whichever estimator learned: fits can then
be compared. Beyond, they are those of the estimator that learned: sampled for `gibbs`, approximate for the others.
"""

from kising.estimators.estep import EStep
from kising.estimators.gradient import checked_gradient
from kising.estimators.moments import marginals
from kising.estimators.registry import entry
from kising.estimators.sampling import Sampling
from kising.estimators.slices import Slices
from kising.learning.fitted.forecasts import LARGEST_ENUMERATION
from kising.learning.starts import chain_seed
from kising.model import Array, Couplings, Spins
from kising.options import Learner
from kising.seeds import Seed


def scoring_estimator(learned_with: str, hidden: int) -> str:
    """The name of the estimator that a fit is scored by."""
    return "exact" if hidden <= LARGEST_ENUMERATION else learned_with


def likelihood_kind(learned_with: str, hidden: int) -> str:
    """What the log-likelihood of a fit is: exact, importance sampling, Bethe approximation, ..."""
    return entry(scoring_estimator(learned_with, hidden)).likelihood


def log_likelihood(
    couplings: Couplings,
    recording: Slices | Spins,
    learner: Learner,
    learned_with: str,
    *,
    seed: Seed,
    threads: int = 1,
) -> float:
    """The mean of log P_t, nats per slice, of a checked recording."""
    # Sweeps only have to find a good proposal for importance sampling, whose error is due to the number of draws.
    sampling = Sampling(sweeps=16, settling=10, seed=chain_seed(seed))
    estep = _estep(couplings, learner, learned_with, sampling)
    return float(checked_gradient(couplings, recording, estep, threads=threads).log_likelihood)


def hidden_states(
    couplings: Couplings, recording: Slices | Spins, learner: Learner, learned_with: str, *, seed: Seed
) -> Array:
    """⟨σ_a⟩ given the slice, (T-2, Nh); row k is about time step k+1 of the recording."""
    return marginals(
        couplings, recording, _estep(couplings, learner, learned_with, Sampling(seed=chain_seed(seed)))
    )


def _estep(couplings: Couplings, learner: Learner, learned_with: str, sampling: Sampling) -> EStep:
    hidden = couplings.K.shape[1]
    scoring = learner.model_copy(update={"estimator": scoring_estimator(learned_with, hidden)})
    return EStep.of(scoring, hidden, sampling)
