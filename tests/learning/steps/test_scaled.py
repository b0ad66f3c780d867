from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import gradient_of_bonds, small_network
from threadpoolctl import threadpool_info, threadpool_limits

from kising.learning.scores import nominal_scales
from kising.learning.session import Session
from kising.learning.state import spin_products
from kising.learning.steps import scaled
from kising.learning.steps.scaled import scaled_step
from kising.model import Couplings
from kising.options import Learner


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


def test_the_step_is_taken_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """More would change its last digits, and on busy cores they wait for each other."""
    threads = []

    def spied(*given: object) -> Couplings:
        threads.extend(x["num_threads"] for x in threadpool_info() if x["user_api"] == "blas")
        return scaled_step(*given)  # type: ignore[arg-type]

    couplings, recording = small_network(3, visible=4, hidden=2, length=50)
    learner = Learner(estimator="bp", bias=False)
    session = Session.of(recording, 2, learner, seed=1, scales=nominal_scales(4, 2), start=couplings)
    monkeypatch.setattr(scaled, "scaled_step", spied)
    with threadpool_limits(2, user_api="blas"):
        session.advance(session.begin())
    assert threads
    assert set(threads) == {1}
