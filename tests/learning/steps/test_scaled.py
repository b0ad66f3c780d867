from __future__ import annotations

import numpy as np
from support.brute_force import gradient_of_bonds, small_network

from kising.learning.state import spin_products
from kising.learning.steps.scaled import scaled_step


def test_scaled_step_solves_with_the_complete_data_information() -> None:
    couplings, recording = small_network(3, visible=4, hidden=2, length=500)
    slopes = gradient_of_bonds(couplings, recording)
    products = spin_products(recording)
    step = scaled_step(slopes, products)
    C = np.block([[products.now, slopes.visible_hidden], [slopes.visible_hidden.T, slopes.hidden_hidden]])
    JK = np.hstack([step.J, step.K])
    np.testing.assert_allclose(
        (JK * slopes.freedom_visible[:, None]) @ C, np.hstack([slopes.J, slopes.K]), atol=1e-4
    )
    np.testing.assert_allclose(
        (step.L * slopes.freedom_hidden[:, None]) @ products.before, slopes.L, atol=1e-4
    )
