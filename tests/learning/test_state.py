from __future__ import annotations

import numpy as np
from support.brute_force import small_network

from kising.learning.state import spin_products


def test_spin_products_are_means_over_slices() -> None:
    _, recording = small_network(3, visible=5, hidden=2, length=3000)
    products = spin_products(recording)
    s = recording.astype(float)
    np.testing.assert_allclose(products.before, s[:-2].T @ s[:-2] / 2998, atol=1e-12)
    np.testing.assert_allclose(products.now, s[1:-1].T @ s[1:-1] / 2998, atol=1e-12)
