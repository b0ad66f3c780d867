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


class PathAverages(NamedTuple):
    """Of one segment, one row per step t = 1..T-1; the likelihood is that of s(2..T) given s(1)."""

    m: np.ndarray
    mu: np.ndarray
    pair: np.ndarray
    in_time: np.ndarray
    log_likelihood: float


def enumerate_paths(
    couplings: Couplings, visible: np.ndarray, covariates: np.ndarray | None = None
) -> PathAverages:
    """Averages of a segment by direct summation over all paths of the hidden spins, σ(1) uniform."""
    J, K, L, h, b, F, G, M = couplings
    u = np.zeros((len(visible), 0)) if covariates is None else covariates
    nh, steps = K.shape[1], len(visible) - 1
    states = list(itertools.product([-1.0, 1.0], repeat=nh))
    paths = np.array(list(itertools.product(states, repeat=steps)))
    log_joint = np.full(len(paths), -nh * np.log(2.0))
    tau = np.empty((len(paths), steps, len(J)))
    for t in range(steps):
        f = J @ visible[t] + h + F @ u[t] + paths[:, t] @ K.T
        log_joint += f @ visible[t + 1] - np.logaddexp(f, -f).sum(axis=1)
        tau[:, t] = np.tanh(f)
        if t + 1 < steps:
            B = L @ visible[t] + b + G @ u[t] + paths[:, t] @ M.T
            log_joint += np.sum(paths[:, t + 1] * B - np.logaddexp(B, -B), axis=1)
    top = log_joint.max()
    weights = np.exp(log_joint - top)
    posterior = weights / weights.sum()
    in_time = np.zeros((steps, nh, nh))
    in_time[:-1] = np.einsum("p,pta,ptb->tab", posterior, paths[:, 1:], paths[:, :-1])
    return PathAverages(
        np.einsum("p,pti->ti", posterior, tau),
        np.einsum("p,pta->ta", posterior, paths),
        np.einsum("p,pti,ptb->tib", posterior, tau, paths),
        in_time,
        top + np.log(weights.sum()),
    )


def coupled_network(
    seed: int,
    *,
    visible: int = 3,
    hidden: int = 2,
    inputs: int = 0,
    strength: float = 1.0,
    hidden_coupling: float = 1.5,
    lengths: tuple[int, ...] = (6, 3, 5),
) -> tuple[Couplings, list[np.ndarray], list[np.ndarray] | None]:
    """A network with M, biases and inputs, segments of it, and the inputs of each."""
    rng = np.random.default_rng((seed, 78))
    couplings = draw_couplings(
        visible, hidden, strength=strength, bias=0.4, hidden_coupling=hidden_coupling, seed=seed
    )._replace(F=0.5 * rng.standard_normal((visible, inputs)), G=0.5 * rng.standard_normal((hidden, inputs)))
    covariates = [rng.standard_normal((length, inputs)) for length in lengths]
    segments = [
        simulate(couplings, length, covariates=u, seed=(seed, k)).visible
        for k, (length, u) in enumerate(zip(lengths, covariates, strict=True))
    ]
    return couplings, segments, covariates if inputs else None


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
