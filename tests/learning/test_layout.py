from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import network_with_fields, small_network

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
    assert [part.start for part in found] == [0, 9, 15, 21, 24, 26, 26, 26]
    assert [part.start for part in places(couplings.only(()))] == [0, 9, 15, 21, 21, 21, 21, 21]
    for part, x, sd in zip(found, couplings, scales, strict=True):
        np.testing.assert_array_equal(vector[part], (x / sd).ravel())


def test_rows_hold_all_couplings_that_act_on_a_spin() -> None:
    network, _ = small_network(1, visible=3, hidden=2)
    couplings = network.only(())
    rows = rows_of(couplings)
    np.testing.assert_array_equal(rows.visible[1], [*couplings.J[1], *couplings.K[1]])
    np.testing.assert_array_equal(rows.hidden[1], couplings.L[1])
    back = from_rows(rows, couplings)
    assert back == couplings
    assert back._fields == BLOCKS


@pytest.mark.parametrize("hidden", [2, 0])
@pytest.mark.parametrize("fields", [("h", "b"), ("F", "G"), ("h", "b", "F", "G")])
def test_fields_stand_in_rows_beside_the_couplings_from_visible_spins(
    hidden: int, fields: tuple[str, ...]
) -> None:
    couplings = network_with_fields(1, visible=3, hidden=hidden, inputs=2)[0].only(fields)
    rows = rows_of(couplings)
    h, b = (x if x.size else np.empty((n, 0)) for x, n in ((couplings.h, 3), (couplings.b, hidden)))
    wanted = np.column_stack([couplings.J, h, couplings.F, couplings.K])
    np.testing.assert_array_equal(rows.visible, wanted)
    np.testing.assert_array_equal(rows.hidden, np.column_stack([couplings.L, b, couplings.G]))
    assert from_rows(rows, couplings) == couplings
    for x, y in zip(from_rows(rows, couplings), couplings, strict=True):
        assert x.shape == y.shape
