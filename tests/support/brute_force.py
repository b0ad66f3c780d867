"""Shared judges: brute force over hidden states, written as plainly as the formulas of the model."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from kising import Couplings, draw_couplings, infer, simulate
from kising.estimators.estep import EStep
from kising.estimators.gradient import Gradient, checked_gradient
from kising.options import Learner


class Averages(NamedTuple):
    m: np.ndarray
    mu: np.ndarray
    pair: np.ndarray
    log_likelihood: np.ndarray


def enumerate_slices(
    couplings: Couplings, visible: np.ndarray, covariates: np.ndarray | None = None
) -> Averages:
    """Averages of every slice by direct summation over all hidden states."""
    J, K, L, h, b0, F, G, _ = couplings
    u = np.zeros((len(visible), 0)) if covariates is None else covariates
    states = np.array(list(itertools.product([-1.0, 1.0], repeat=K.shape[1])))
    rows = []
    for t in range(1, len(visible) - 1):
        before, now, after = visible[t - 1], visible[t], visible[t + 1]
        theta, b = J @ now + h + F @ u[t], L @ before + b0 + G @ u[t - 1]
        f = theta + states @ K.T
        log_joint = f @ after - np.logaddexp(f, -f).sum(axis=1) + states @ b - np.logaddexp(b, -b).sum()
        top = log_joint.max()
        weights = np.exp(log_joint - top)
        posterior = weights / weights.sum()
        tau = np.tanh(f)
        rows.append(
            (
                posterior @ tau,
                posterior @ states,
                np.einsum("s,si,sb->ib", posterior, tau, states),
                top + np.log(weights.sum()),
            )
        )
    return Averages(*(np.array(column) for column in zip(*rows, strict=True)))


def small_network(
    seed: int, *, visible: int = 4, hidden: int = 3, strength: float = 1.0, length: int = 12
) -> tuple[Couplings, np.ndarray]:
    """A network that brute force can judge, and a recording of it."""
    couplings = draw_couplings(visible, hidden, strength=strength, seed=seed)
    return couplings, simulate(couplings, length, seed=seed + 1).visible


def network_with_fields(
    seed: int,
    *,
    visible: int = 4,
    hidden: int = 3,
    inputs: int = 2,
    strength: float = 1.0,
    bias: float = 0.4,
    length: int = 12,
) -> tuple[Couplings, np.ndarray, np.ndarray]:
    """A network with biases and known inputs, a recording of it, and the inputs, (T, p)."""
    rng = np.random.default_rng((seed, 77))
    couplings = draw_couplings(visible, hidden, strength=strength, bias=bias, seed=seed)
    couplings = couplings._replace(
        F=0.5 * rng.standard_normal((visible, inputs)), G=0.5 * rng.standard_normal((hidden, inputs))
    )
    covariates = rng.standard_normal((length, inputs))
    return couplings, simulate(couplings, length, covariates=covariates, seed=seed + 1).visible, covariates


def one_input_each(couplings: Couplings, seed: int) -> Couplings:
    """The network with at most one hidden input left to each visible spin: its replicated graph is a tree."""
    K = np.zeros_like(couplings.K)
    chosen = np.random.default_rng(seed).integers(K.shape[1], size=K.shape[0])
    rows = np.arange(K.shape[0])
    K[rows, chosen] = couplings.K[rows, chosen]
    return couplings._replace(K=K)


def gradient_of_bonds(couplings: Couplings, recording: np.ndarray, estimator: str = "exact") -> Gradient:
    """The gradient in the form that a learner without biases and inputs works on: only J, K and L are not empty."""
    estep = EStep.of(Learner(estimator=estimator), couplings.K.shape[1])
    return checked_gradient(couplings.only(()), recording, estep, threads=1)


def assert_is_gradient(slopes, couplings: Couplings, recording: np.ndarray, how: dict) -> None:
    """Of every block, against central differences of the mean log-likelihood."""
    step = 1e-5
    for name in couplings._fields:
        block = getattr(couplings, name)
        numerical = np.empty_like(block)
        for index in np.ndindex(block.shape):
            values = []
            for sign in (1, -1):
                moved = block.copy()
                moved[index] += sign * step
                values.append(
                    infer(couplings._replace(**{name: moved}), recording, **how).log_likelihood.mean()
                )
            numerical[index] = (values[0] - values[1]) / (2 * step)
        np.testing.assert_allclose(getattr(slopes, name), numerical, atol=1e-7)
