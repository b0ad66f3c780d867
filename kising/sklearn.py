"""`KineticIsing`: fits as a scikit-learn estimator, for pipelines and searches over parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kising.arguments import FIT
from kising.cores import cores
from kising.errors import InputError
from kising.learning.fit import Fit, fit
from kising.messages import did_you_mean, nearest
from kising.model import Array, Couplings
from kising.recordings import Segments, as_segments
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
    time step, in order. Or it holds trials: a list of such arrays, or (trials, T, Nv).

    Rows are not independent samples. In cross-validation keep them in order and use contiguous folds, with
    TimeSeriesSplit or a number for `cv`. If a fold is cut out of the middle, two slices of the training data join steps
    that were not adjacent. If X holds trials, whole trials are held out, in any order.

    After fitting, `fit_` is the `Fit` and `couplings_` its couplings.
    """

    @FIT.taken_by
    def __init__(
        self,
        hidden: int = 1,
        *,
        seed: Seed = 0,
        errors: bool = False,
        threads: int | None = None,
        **options: Any,
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
        if names is not None:
            # An array has numbers for names, and spins that never change are not among them.
            found = replace(found, names=tuple(str(names[int(k)]) for k in found.names or ()))
        self.fit_ = found
        return self

    def score(self, X: npt.ArrayLike, y: object = None) -> float:
        """Log-likelihood of a recording, in nats per slice; larger is better. y is ignored."""
        return self._fitted().log_likelihood(self._recording(X), threads=self._cores)

    def forecast(self, X: npt.ArrayLike) -> Array | list[Array]:
        """P(s_i(t+1) = +1 | s(t), s(t-1)), (T-2, Nv); row k is about row k+2 of X. Of trials, one array each."""
        return self._fitted().forecast(self._recording(X), threads=self._cores)

    def hidden_states(self, X: npt.ArrayLike) -> Array | list[Array]:
        """⟨σ_a(t)⟩ given the visible spins, (T-2, Nh); row k is about row k+1 of X. Of trials, one array each."""
        return self._fitted().hidden_states(self._recording(X))

    @property
    def _cores(self) -> int:
        return cores() if self.threads is None else self.threads

    def _fitted(self) -> Fit:
        check_is_fitted(self)
        return self.fit_

    def __sklearn_tags__(self) -> Any:
        """Trials are three-dimensional."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _recording(self, X: Any, *, reset: bool = False) -> Segments | npt.NDArray[Any]:
        """X as `fit` takes it, with the checks that scikit-learn asks for."""
        if _holds_trials(X):
            return self._trials(X, reset=reset)
        found: npt.NDArray[Any] = validate_data(self, X, reset=reset, ensure_min_samples=LEAST_STEPS)
        return np.where(found == 0, -1, found) if not (found == -1).any() else found

    def _trials(self, X: Any, *, reset: bool) -> Segments:
        trials = as_segments(X)
        if reset:
            self.n_features_in_ = trials.n_visible
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        elif trials.n_visible != self.n_features_in_:
            raise InputError(
                f"X has {trials.n_visible} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input"
            )
        return trials


def _holds_trials(X: Any) -> bool:
    several = isinstance(X, list | tuple) and len(X) and np.ndim(X[0]) == 2
    return bool(several) or getattr(X, "ndim", 0) == 3
