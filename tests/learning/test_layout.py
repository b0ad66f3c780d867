from __future__ import annotations

import numpy as np
from support.brute_force import small_network

from kising.blocks import BLOCKS
from kising.learning.layout import flatten, from_rows, places, rows_of, unflatten
from kising.learning.scores import nominal_scales


def test_flatten_and_back() -> None:
    couplings, _ = small_network(1, visible=3, hidden=2)
    scales = nominal_scales(3, 2)
    back = unflatten(flatten(couplings, scales), couplings, scales)
    for x, y in zip(couplings, back, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-15)


def test_places_are_those_of_the_blocks_in_the_vector() -> None:
    couplings, _ = small_network(1, visible=3, hidden=2)
    scales = nominal_scales(3, 2)
    vector = flatten(couplings, scales)
    found = places(couplings)
    assert [part.start for part in found] == [0, 9, 15]
    for part, x, sd in zip(found, couplings, scales, strict=True):
        np.testing.assert_array_equal(vector[part], (x / sd).ravel())


def test_rows_hold_all_couplings_that_act_on_a_spin() -> None:
    couplings, _ = small_network(1, visible=3, hidden=2)
    rows = rows_of(couplings)
    np.testing.assert_array_equal(rows.visible[1], [*couplings.J[1], *couplings.K[1]])
    np.testing.assert_array_equal(rows.hidden[1], couplings.L[1])
    back = from_rows(rows)
    assert back == couplings
    assert back._fields == BLOCKS
