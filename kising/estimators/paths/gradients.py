"""Sums over paths as the gradient that learning takes."""

import numpy as np

from kising.estimators.gradient import Gradient, mean_of
from kising.estimators.paths.statistics import Complete
from kising.model import Array, Couplings


def blocks_of_score(score: Array, like: Couplings) -> Couplings:
    """A score (N, N+1+p) as blocks; those that `like` leaves out are empty."""
    nv, nh = like.K.shape
    n = nv + nh
    blocks = {
        "J": score[:nv, :nv],
        "K": score[:nv, nv:n],
        "L": score[nv:, :nv],
        "h": score[:nv, n],
        "b": score[nv:, n],
        "F": score[:nv, n + 1 :],
        "G": score[nv:, n + 1 :],
        "M": score[nv:, nv:n],
    }
    return Couplings(
        **{name: x if getattr(like, name).size else getattr(like, name) for name, x in blocks.items()}
    )


def gradient_of(sums: Complete, n_steps: int, log_likelihood: float, like: Couplings) -> Gradient:
    """The sums over a recording of `n_steps` steps as means per step; `log_likelihood` is a sum too."""
    nv, nh = like.K.shape
    n = nv + nh
    known = [*range(nv), *([n] if like.h.size else []), *range(n + 1, sums.score.shape[1])]
    found = Gradient(
        **blocks_of_score(sums.score, like)._asdict(),
        log_likelihood=log_likelihood,
        converged=float(n_steps),
        corrected=0.0,
        iterations=float(n_steps),
        abs_m=float(np.sum(sums.size[:nv])),
        abs_mu=np.nan,
        abs_pair=np.nan,
        freedom_visible=n_steps - sums.square[:nv],
        freedom_hidden=n_steps - sums.square[nv:],
        visible_hidden=sums.with_hidden[known],
        hidden_hidden=sums.with_hidden[nv:n],
    )
    return mean_of(iter([found]), n_steps, nv, nh)
