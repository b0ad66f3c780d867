"""The baselines of held-out scores, against direct computation."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from support.brute_force import enumerate_slices, small_network

from kising import Couplings, simulate
from kising.estimators.registry import ESTIMATORS
from kising.estimators.slices import Slices
from kising.learning.baselines import baseline_learner, memoryless
from kising.learning.fitted.heldout import log_likelihood
from kising.learning.scores import nominal_scales
from kising.learning.session import Session
from kising.options import Learner


def learned(slices: Slices, hidden: int, learner: Learner) -> Couplings:
    session = Session.of(slices, hidden, learner, seed=4, scales=nominal_scales(slices.n_visible, hidden))
    return session.result(session.run()).couplings


def test_memoryless_slices_are_those_of_a_network_with_j_and_l_zero() -> None:
    drawn, visible = small_network(3, hidden=2, length=50)
    rng = np.random.default_rng(2)
    inputs = rng.standard_normal((50, 1))
    fields = {"h": (4,), "b": (2,), "F": (4, 1), "G": (2, 1)}
    full = drawn._replace(**{name: rng.standard_normal(shape) for name, shape in fields.items()})
    cut = full._replace(J=np.zeros_like(full.J), L=np.zeros_like(full.L))
    for ends in ([0, 50], [0, 20, 50]):
        pieces = [slice(a, b) for a, b in pairwise(ends)]
        slices = Slices.of([visible[x] for x in pieces], [inputs[x] for x in pieces])
        direct = [enumerate_slices(cut, visible[x], inputs[x]).log_likelihood for x in pieces]
        found = log_likelihood(full, memoryless(slices), Learner(), "exact", seed=1)
        assert found == pytest.approx(np.concatenate(direct).mean(), rel=1e-12)


@pytest.mark.parametrize("estimator", [entry.name for entry in ESTIMATORS])
def test_every_estimator_learns_without_memory(estimator: str) -> None:
    couplings = Couplings(
        np.zeros((4, 4)), 0.9 * np.ones((4, 1)), np.zeros((1, 4)), h=np.array([0.5, 0.2, -0.3, 0.0])
    )
    slices = Slices.of([simulate(couplings, 3000, seed=2).visible])
    learner = baseline_learner(Learner(estimator=estimator, bias=False), 1)
    found = learned(memoryless(slices), 1, learner)
    np.testing.assert_array_equal(found.J, 0)
    if estimator in ("tap", "mean-field"):  # they maximise no likelihood
        assert all(np.isfinite(x).all() for x in found)
        return
    cut = found._replace(L=np.zeros_like(found.L))
    fitted, true = (log_likelihood(x, slices, learner, "exact", seed=1) for x in (cut, couplings))
    # Of the model with these 9 couplings, learning must find about the maximum.
    assert true - 2e-3 < fitted < true + 9 / len(slices)


def test_without_hidden_spins_the_control_is_the_activity_of_every_spin() -> None:
    rng = np.random.default_rng(5)
    visible = np.where(rng.random((2000, 3)) < [0.2, 0.5, 0.9], 1, -1).astype(np.int8)
    found = learned(memoryless(Slices.of([visible])), 0, baseline_learner(Learner(prior="none"), 0))
    np.testing.assert_allclose(np.tanh(found.h), visible[2:].mean(axis=0), atol=1e-6)


def test_baselines_have_biases_and_no_forced_zeros() -> None:
    learner = Learner(bias=False, l1=0.5, prior=3.0, starts=4)
    made = baseline_learner(learner, 0)
    assert (made.bias, made.l1, made.decimate, made.prior, made.starts) == (True, 0.0, "none", 3.0, 1)
    assert baseline_learner(learner, 2).starts == 4


def test_what_is_forgotten_is_not_missing() -> None:
    """Zeros stand for no memory here, not for entries to sample, in pilots neither."""
    slices = Slices.of([small_network(3, hidden=2, length=60)[1]])
    assert not memoryless(slices).has_gaps
    assert not memoryless(slices).first(20).has_gaps
    gaps = slices.spins.copy()
    gaps[30, 1] = 0
    assert Slices.of([gaps]).has_gaps
    assert Slices.of([gaps]).first(40).has_gaps
