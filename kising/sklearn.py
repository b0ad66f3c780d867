"""`KineticIsing`: fits as a scikit-learn estimator, for pipelines and searches over parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from kising.arguments import FIT
from kising.learning.fit import Fit, fit
from kising.messages import did_you_mean, nearest
from kising.model import Array, Couplings, Spins
from kising.seeds import Seed

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "KineticIsing needs scikit-learn 1.6 or newer: pip install 'kising[sklearn]'"
    ) from error

LEAST_STEPS = 3


class KineticIsing(BaseEstimator):  # type: ignore[misc]
    """A kinetic Ising network with hidden spins. X is a recording, (T, Nv), of -1 and +1 or of 0 and 1: one row per
    time step, in order.

    Rows are not independent samples. In cross-validation keep them in order and let folds be contiguous: a number for
    `cv` does so, TimeSeriesSplit too. Where a fold is cut out of the middle, two slices of the training data join what
    was not adjacent.

    After fitting, `fit_` is the `Fit` and `couplings_` its couplings.
    """

    @FIT.taken_by
    def __init__(
        self, hidden: int = 1, *, seed: Seed = 0, errors: bool = False, threads: int = 1, **options: Any
    ) -> None:
        """`hidden` spins; the other parameters are those of `kising.fit`."""
        for name in options:
            if name not in FIT.leaves:
                meant = did_you_mean(nearest(name, FIT.leaves))
                raise TypeError(f"KineticIsing() got an unexpected keyword argument {name!r}{meant}")
        self.hidden = hidden
        self.seed = seed
        self.errors = errors
        self.threads = threads
        for name, leaf in FIT.leaves.items():
            setattr(self, name, options.get(name, leaf.default))

    fit_: Fit
    n_features_in_: int

    @property
    def couplings_(self) -> Couplings:
        """The learned couplings."""
        check_is_fitted(self)
        return self.fit_.couplings

    def fit(self, X: npt.ArrayLike, y: object = None) -> KineticIsing:
        """Learn the couplings; y is ignored."""
        visible = self._recording(X, reset=True)
        options = {name: getattr(self, name) for name in FIT.leaves}
        found = fit(visible, self.hidden, seed=self.seed, errors=self.errors, threads=self.threads, **options)
        names = getattr(self, "feature_names_in_", None)
        self.fit_ = found if names is None else replace(found, names=tuple(map(str, names)))
        return self

    def score(self, X: npt.ArrayLike, y: object = None) -> float:
        """Log-likelihood of a recording, nats per slice: the larger the better; y is ignored."""
        return self._fitted().log_likelihood(self._recording(X), threads=self.threads)

    def forecast(self, X: npt.ArrayLike) -> Array:
        """P(s_i(t+1) = +1 | s(t), s(t-1)), (T-2, Nv); row k is about row k+2 of X."""
        return cast(Array, self._fitted().forecast(self._recording(X), threads=self.threads))

    def hidden_states(self, X: npt.ArrayLike) -> Array:
        """⟨σ_a(t)⟩ given the visible spins, (T-2, Nh); row k is about row k+1 of X."""
        return cast(Array, self._fitted().hidden_states(self._recording(X)))

    def _fitted(self) -> Fit:
        check_is_fitted(self)
        return self.fit_

    def _recording(self, X: npt.ArrayLike, *, reset: bool = False) -> Spins | npt.NDArray[Any]:
        """X as `fit` takes it, with the checks that scikit-learn asks for."""
        found: npt.NDArray[Any] = validate_data(self, X, reset=reset, ensure_min_samples=LEAST_STEPS)
        return np.where(found == 0, -1, found) if not (found == -1).any() else found
