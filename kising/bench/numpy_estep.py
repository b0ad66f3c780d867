"""The E-step with gradient in carefully written NumPy: the reference for the speed of the kernels.

The iterations work on chunks of a thousand slices with whole-array operations, in the published form of the
equations (docs/maths.md), with the kernels' starts, damping and stopping rule. Converged slices leave the arrays
at every iteration. `exact` enumerates the hidden states of one slice at a time with matrix products.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

from kising.estimators.chunks import Chunk, fields
from kising.estimators.estep import ADAPTIVE, EStep
from kising.model import Array, Couplings, Spins

CHUNK = 1000


def gradient(couplings: Couplings, visible: Spins, estep: EStep) -> Couplings:
    """The gradient of the mean log-likelihood; its value is computed and dropped."""
    n_slices = len(visible) - 2
    total = [np.zeros_like(x) for x in couplings]
    for block in _chunks(couplings, visible):
        m, mu, pair, _ = moments(couplings, block, estep)
        total[0] += (block.after - m).T @ block.now
        total[1] += block.after.T @ mu - pair.sum(axis=0)
        total[2] += (mu - np.tanh(block.b)).T @ block.before
    return Couplings(*(x / n_slices for x in total))


def moments(couplings: Couplings, block: Chunk, estep: EStep) -> tuple[Array, Array, Array, Array]:
    """m, μ, ⟨τσ⟩ and log Z of every slice of a block."""
    match estep.estimator.name:
        case "bp":
            return _bp(couplings.K, block, estep)
        case "exact":
            return _exact(couplings.K, block)
        case _:
            return _expansion(couplings.K, block, estep)


def _chunks(couplings: Couplings, visible: Spins) -> Iterator[Chunk]:
    n_slices = len(visible) - 2
    for start in range(0, n_slices, CHUNK):
        yield fields(couplings, visible, slice(start, min(start + CHUNK, n_slices)))


def _keep(iteration: int, estep: EStep) -> float:
    if estep.damping != ADAPTIVE:
        return estep.damping
    if 16 * iteration < estep.max_iterations:
        return 0.0
    return 0.5 if 2 * iteration < estep.max_iterations else 0.8


def _bp(K: Array, block: Chunk, estep: EStep) -> tuple[Array, Array, Array, Array]:
    t = np.tanh(K)
    theta, g = block.theta, block.g
    settled = np.repeat(np.tanh(theta)[:, :, None], K.shape[1], axis=2)
    running, m = np.arange(len(theta)), settled.copy()
    for iteration in range(estep.max_iterations):
        u = np.arctanh(t * m)
        mu = np.tanh((g[running] - u.sum(axis=1))[:, None, :] - u)
        w = np.arctanh(t * mu)
        new = np.tanh((theta[running] + w.sum(axis=2))[:, :, None] - w)
        change = np.mean((new - m) ** 2, axis=(1, 2))
        keep = _keep(iteration, estep)
        m = new if keep == 0.0 else (1.0 - keep) * new + keep * m
        going = change >= estep.tolerance
        settled[running[~going]] = m[~going]
        running, m = running[going], m[going]
        if len(running) == 0:
            break
    settled[running] = m
    return _bp_moments(t, K, theta, g, settled)


def _bp_moments(t: Array, K: Array, theta: Array, g: Array, m: Array) -> tuple[Array, Array, Array, Array]:
    """Moments of messages m_i^a, with `closed` pair averages."""
    x = t * m
    u = np.arctanh(x)
    hidden_field = g - u.sum(axis=1)
    MU = np.tanh(hidden_field)
    mu = np.tanh(hidden_field[:, None, :] - u)
    w = np.arctanh(t * mu)
    visible_field = theta + w.sum(axis=2)
    M = np.tanh(visible_field)
    bond = 1.0 + x * mu
    c = (t + m * mu) / bond - M[:, :, None] * MU[:, None, :]
    vm, vs = 1.0 - M * M, 1.0 - MU * MU
    A = c / (vm[:, :, None] * vs[:, None, :] - c * c)
    cA = c * A
    D = (1.0 + cA.sum(axis=2)) / vm
    DA = A / D[:, :, None]
    S = A.transpose(0, 2, 1) @ DA
    diagonal = np.arange(K.shape[1])
    S[:, diagonal, diagonal] += (1.0 - cA.sum(axis=1)) / vs
    pair = DA @ np.linalg.inv(S) + M[:, :, None] * MU[:, None, :]
    # The factors of bonds: 1 - x² of the hidden sum, 1 - (t μ)² of the visible one.
    log_z = np.logaddexp(hidden_field, -hidden_field).sum(axis=1)
    log_z -= np.logaddexp(visible_field, -visible_field).sum(axis=1)
    edges = np.log(bond) - 0.5 * np.log((1.0 - x * x) * (1.0 - (t * mu) ** 2))
    return M, MU, pair, log_z + edges.sum(axis=(1, 2)) - np.log(np.cosh(K)).sum()


def _exact(K: Array, block: Chunk) -> tuple[Array, Array, Array, Array]:
    states = np.array(list(product((-1.0, 1.0), repeat=K.shape[1])))
    drive = states @ K.T
    rows = []
    for theta, g in zip(block.theta, block.g, strict=True):
        f = theta + drive
        log_weight = states @ g - np.logaddexp(f, -f).sum(axis=1)
        top = log_weight.max()
        weight = np.exp(log_weight - top)
        total = weight.sum()
        weight /= total
        tau = np.tanh(f)
        rows.append((weight @ tau, weight @ states, (weight[:, None] * tau).T @ states, top + np.log(total)))
    m, mu, pair, log_z = (np.array(x) for x in zip(*rows, strict=True))
    return m, mu, pair, log_z


def _expansion(K: Array, block: Chunk, estep: EStep) -> tuple[Array, Array, Array, Array]:
    """TAP, or naive mean field which leaves out the squares of couplings."""
    second = K if estep.estimator.name == "tap" else np.zeros_like(K)
    theta, g = block.theta, block.g
    m_all, mu_all = np.tanh(theta), np.zeros_like(g)
    running, m, mu = np.arange(len(theta)), m_all.copy(), mu_all.copy()
    for iteration in range(estep.max_iterations):
        keep = _keep(iteration, estep)
        d_mu = np.tanh(g[running] - m @ K + mu * ((1.0 - m * m) @ (second * second))) - mu
        mu = mu + (1.0 - keep) * d_mu
        d_m = np.tanh(theta[running] + mu @ K.T - m * ((1.0 - mu * mu) @ (second * second).T)) - m
        m = m + (1.0 - keep) * d_m
        change = (np.sum(d_mu**2, axis=1) + np.sum(d_m**2, axis=1)) / sum(K.shape)
        going = change >= estep.tolerance
        m_all[running[~going]], mu_all[running[~going]] = m[~going], mu[~going]
        running, m, mu = running[going], m[going], mu[going]
        if len(running) == 0:
            break
    m_all[running], mu_all[running] = m, mu
    free = (1.0 - m_all * m_all)[:, :, None] * (1.0 - mu_all * mu_all)[:, None, :]
    both = m_all[:, :, None] * mu_all[:, None, :]
    log_z = np.sum(g * mu_all + _entropy(mu_all), axis=1) - np.sum(theta * m_all + _entropy(m_all), axis=1)
    log_z -= np.sum(K * both + 0.5 * second**2 * free, axis=(1, 2))
    return m_all, mu_all, both + second * free, log_z


def _entropy(m: Array) -> Array:
    up, down = 0.5 * (1.0 + m), 0.5 * (1.0 - m)
    tiny = np.finfo(float).tiny
    value: Array = -up * np.log(np.maximum(up, tiny)) - down * np.log(np.maximum(down, tiny))
    return value
