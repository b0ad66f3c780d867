from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kising import Couplings, bond_scales, draw_couplings, gradient, simulate
from kising.learning.scores import (
    Alignment,
    align,
    baseline,
    coverage,
    nominal_scales,
    pruned,
    rmse,
    scales_of,
)

SHARES = (0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0, 0.5)


def test_rmse_of_a_known_error() -> None:
    truth = draw_couplings(10, 4, seed=1)
    scales = bond_scales(10, 4, strength=1.0, connectivity=1.0)
    off = Couplings(*(x + sd * 0.25 for x, sd in zip(truth, scales, strict=True)))
    assert rmse(off, truth, scales) == pytest.approx(dict.fromkeys("JKLhb", 0.25))
    assert rmse(truth, truth, scales) == dict.fromkeys("JKLhb", 0.0)
    # Of blocks that are not learned there is no error.
    assert rmse(off.only(()), truth, scales) == pytest.approx(dict.fromkeys("JKL", 0.25))


def test_rmse_of_an_estimate_that_is_not_finite_is_infinite() -> None:
    truth = draw_couplings(3, 2, seed=1)
    broken = truth._replace(K=truth.K * np.nan)
    assert rmse(broken, truth, nominal_scales(3, 2)) == {
        **dict.fromkeys("JLhb", 0.0),
        "K": np.inf,
    }


@pytest.mark.parametrize("connectivity", [0.1, 0.4, 1.0])
def test_zero_estimate_scores_the_baseline(connectivity: float) -> None:
    truth = draw_couplings(300, 300, connectivity=connectivity, seed=2)
    zero = Couplings(*(0 * x for x in truth))
    scales = bond_scales(300, 300, strength=1.0, connectivity=connectivity)
    for value in rmse(zero.only(()), truth, scales).values():
        assert value == pytest.approx(baseline(connectivity), rel=0.03)


def test_pruning_sets_the_weak_to_zero_and_the_others_to_their_mean() -> None:
    block = np.array([[0.1, -2.0, 1.0], [3.0, 0.0, -0.2]])
    learned = Couplings(block[:, :2], block, block.T)
    result = pruned(learned, SHARES)
    np.testing.assert_array_equal(result.K, [[0, -2, 2], [2, 0, 0]])
    np.testing.assert_array_equal(result.L, [[0, 2], [-2, 0], [2, 0]])
    np.testing.assert_array_equal(result.J, [[0, -2], [3, 0]])
    assert all((x == 0).all() for x in pruned(learned, (0.01, 0.0, 0.01, 1.0, 1.0, 1.0, 1.0, 0.0)))


def test_scales_of_the_truth_are_those_of_its_bonds() -> None:
    truth = draw_couplings(30, 10, strength=0.8, connectivity=0.3, bonds="binary", seed=3)
    found, nominal = scales_of(truth), nominal_scales(30, 10)
    assert found[:-1] == pytest.approx(bond_scales(30, 10, strength=0.8, connectivity=0.3)[:-1])
    assert nominal.M == found.M
    empty = truth._replace(K=0 * truth.K)
    assert scales_of(empty).K == nominal_scales(30, 10).K


@given(seed=st.integers(0, 10**6), hidden=st.integers(1, 7))
def test_alignment_undoes_any_relabelling(seed: int, hidden: int) -> None:
    truth = draw_couplings(6, hidden, bias=0.5, hidden_coupling=1.0, seed=seed)
    rng = np.random.default_rng(seed)
    order, signs = rng.permutation(hidden), rng.choice([-1.0, 1.0], hidden)
    relabelled = truth._replace(
        K=truth.K[:, order] * signs,
        L=truth.L[order] * signs[:, None],
        b=truth.b[order] * signs,
        M=truth.M[np.ix_(order, order)] * np.outer(signs, signs),
    )
    np.testing.assert_array_equal(np.diag(relabelled.M), np.diag(truth.M)[order])
    found = align(relabelled, truth, nominal_scales(6, hidden)).apply(relabelled)
    for x, y in zip(found, truth, strict=True):
        np.testing.assert_array_equal(x, y)


def test_relabelled_units_have_the_same_likelihood() -> None:
    truth = draw_couplings(4, 3, bias=0.5, hidden_coupling=1.0, seed=1)
    visible = simulate(truth, 200, seed=2).visible
    turned = Alignment(np.array([2, 0, 1]), np.array([1.0, -1.0, -1.0])).apply(truth)
    first, second = (gradient(x, visible, estimator="exact").log_likelihood for x in (truth, turned))
    assert first == pytest.approx(second, abs=1e-12)


def test_a_block_that_the_truth_lacks_is_zero_there() -> None:
    truth = draw_couplings(4, 3, seed=1)
    learned = truth._replace(M=np.full((3, 3), 0.2))
    scales = nominal_scales(4, 3)
    assert rmse(learned, truth, scales)["M"] == pytest.approx(0.2 / scales.M)
    errors = Couplings(*(np.full(x.shape, 0.15) for x in learned))
    assert coverage(learned, errors, truth, scales)["covered_M"] == 1.0
    assert "M" not in rmse(truth, learned, scales)


@given(seed=st.integers(0, 10**6))
def test_alignment_is_the_best_of_all(seed: int) -> None:
    from itertools import permutations, product

    truth, guess = draw_couplings(4, 3, seed=seed), draw_couplings(4, 3, seed=seed + 1)
    scales = nominal_scales(4, 3)

    def error(x: Couplings) -> float:
        return float(sum(np.sum((a - b) ** 2) / sd**2 for a, b, sd in zip(x, truth, scales, strict=True)))

    best = min(
        error(Couplings(guess.J, guess.K[:, order] * signs, guess.L[list(order)] * np.array(signs)[:, None]))
        for order in permutations(range(3))
        for signs in product([-1.0, 1.0], repeat=3)
    )
    assert error(align(guess, truth, scales).apply(guess)) == pytest.approx(best)
