from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kising import draw_couplings
from kising.learning.fitted.edges import benjamini_hochberg, edge_table, labels, z_and_p


def adjusted(p: list[float]) -> list[float]:
    """The definition of Benjamini and Hochberg: the smallest level at which the step-up rule rejects p_i."""
    n = len(p)
    return [min([1.0, *(x * n / sum(y <= x for y in p) for x in p if x >= mine)]) for mine in p]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(0, 5))
def test_q_is_the_adjusted_p(p: list[float], unknown: int) -> None:
    with_gaps = np.array([np.nan] * unknown + p)
    found = benjamini_hochberg(with_gaps)
    assert np.isnan(found[:unknown]).all()
    np.testing.assert_allclose(found[unknown:], adjusted(p), rtol=1e-12)


def test_q_controls_the_false_discovery_rate() -> None:
    rng = np.random.default_rng(1)
    shares = []
    for _ in range(300):
        z = rng.standard_normal(200)
        z[:40] += 3.5
        found = benjamini_hochberg(z_and_p(z, np.ones(200))[1]) < 0.1
        shares.append(found[40:].sum() / max(1, found.sum()))
    assert 0.06 < np.mean(shares) < 0.1


def test_p_is_that_of_a_two_sided_normal_test() -> None:
    z, p = z_and_p(
        np.array([1.96, -1.96, 0.0, 20.0, 1.0, 1.0, 1.0]), np.array([1, 1, 1, 2, np.inf, np.nan, 0])
    )
    assert z[:5].tolist() == [1.96, -1.96, 0.0, 10.0, 0.0]
    assert p[0] == pytest.approx(0.05, abs=1e-4)
    assert p[1] == p[0]
    assert p[2] == p[4] == 1
    assert p[3] == pytest.approx(math.erfc(10 / math.sqrt(2)), rel=1e-12)
    assert np.isnan(z[5:]).all()
    assert np.isnan(p[5:]).all()


def test_a_row_for_every_coupling_says_who_acts_on_whom() -> None:
    couplings = draw_couplings(3, 2, seed=1)
    table = edge_table(couplings, None, ("a", "b", "c"))
    assert list(table.columns) == ["block", "target", "source", "value", "error", "z", "p", "q"]
    assert len(table) == 9 + 6 + 6
    assert table[["error", "z", "p", "q"]].isna().all(axis=None)
    by_name = table.set_index(["block", "target", "source"])["value"]
    assert by_name["J", "a", "c"] == couplings.J[0, 2]
    assert by_name["K", "b", "hidden 1"] == couplings.K[1, 1]
    assert by_name["L", "hidden 1", "c"] == couplings.L[1, 2]
    numbered = edge_table(couplings, None, None)
    assert numbered[numbered.block == "K"].target.tolist() == ["0", "0", "1", "1", "2", "2"]


def test_blocks_are_adjusted_apart() -> None:
    couplings = draw_couplings(4, 2, seed=1)
    errors = type(couplings)(*(np.full(x.shape, 0.1) for x in couplings))
    table = edge_table(couplings, errors, None)
    for _, block in table.groupby("block"):
        np.testing.assert_allclose(block.z, block.value / 0.1, rtol=1e-15)
        np.testing.assert_allclose(block.q, adjusted(block.p.tolist()), rtol=1e-12)


def test_blocks_from_outside_have_labels_of_their_own() -> None:
    assert labels("one", 1, None) == ["bias"]
    assert labels("input", 2, None) == ["u0", "u1"]
