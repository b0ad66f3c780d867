"""The share of information that is left where hidden spins are not observed."""

from __future__ import annotations

import numpy as np
from support.brute_force import network_with_fields

from kising import Couplings, draw_couplings, simulate
from kising.estimators.gibbs.chains import first_chains
from kising.estimators.gradient import sampled_gradient
from kising.kernels.counter import key_of
from kising.learning.errors.standard import information
from kising.learning.state import Anchor
from kising.learning.steps.metric import NOISY
from kising.learning.steps.observed import LEAST_SHARE, observed_shares


def shares_at(couplings: Couplings, recording) -> Couplings:
    key = key_of(1)
    chains = first_chains(len(recording) - 2, couplings.K.shape[1], key)
    for k in range(20):
        _, chains = sampled_gradient(couplings, recording, chains, key=key, iteration=k, threads=1)
    return observed_shares(Anchor(couplings, chains, True, NOISY), recording)


def test_with_one_hidden_spin_they_are_those_of_the_observed_information() -> None:
    couplings = draw_couplings(5, 1, seed=2).only(())
    recording = simulate(couplings, 8000, seed=3).visible
    found = shares_at(couplings, recording)
    complete, missing = (np.diag(x) for x in information(couplings, recording, seed=4))
    expected = 1 - missing / complete
    np.testing.assert_allclose(found.K.ravel(), expected[25:30], atol=0.02)
    # A row of L has one share, the mean over its couplings.
    np.testing.assert_allclose(found.L.ravel(), np.mean(expected[30:]), atol=0.02)
    assert np.all(found.J == 1)


def test_others_that_are_not_seen_only_make_them_smaller() -> None:
    couplings = draw_couplings(6, 3, seed=5).only(())
    recording = simulate(couplings, 6000, seed=6).visible
    found = shares_at(couplings, recording)
    complete, missing = (np.diag(x) for x in information(couplings, recording, seed=7))
    whole = (1 - missing / complete)[36:54].reshape(6, 3)
    assert np.all(whole - 0.02 < found.K)
    # But not by much: by up to 0.22 in this network, by 0.07 on average, of shares between 0.4 and 0.7.
    assert np.all(whole + 0.25 > found.K)
    assert np.mean(found.K - whole) < 0.1


def test_nothing_is_known_of_a_spin_without_bonds() -> None:
    couplings = draw_couplings(6, 2, seed=8).only(())
    K, L = couplings.K.copy(), couplings.L.copy()
    K[:, 1], L[1] = 0.0, 0.0
    couplings = couplings._replace(K=K, L=L)
    found = shares_at(couplings, simulate(couplings, 2000, seed=9).visible)
    assert np.all(found.L[1] == LEAST_SHARE)
    assert np.all(found.K[:, 1] < 0.1)
    assert np.all(found.L[0] > 0.2)


def test_every_block_has_its_shape() -> None:
    couplings, visible, _ = network_with_fields(1, visible=5, hidden=2, bias=0.3, length=200)
    bare = couplings._replace(F=np.zeros((5, 0)), G=np.zeros((2, 0)))
    found = shares_at(bare, visible)
    assert [x.shape for x in found] == [x.shape for x in bare]
    assert np.array_equal(found.b, found.L[:, 0])
