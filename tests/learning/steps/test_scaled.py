from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import gradient_of_bonds, small_network
from threadpoolctl import threadpool_info, threadpool_limits

from kising import draw_couplings, simulate
from kising.estimators.estep import EStep
from kising.estimators.gradient import Gradient, checked_gradient
from kising.estimators.slices import Slices
from kising.learning import effort
from kising.learning.scores import nominal_scales
from kising.learning.session import Session
from kising.learning.state import spin_products
from kising.learning.steps import base, scaled
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


NETWORK = draw_couplings(8, 2, seed=3)
RECORDING = simulate(NETWORK, 8002, seed=4).visible


def session_of(monkeypatch: pytest.MonkeyPatch, **options: object) -> tuple[Session, list[int]]:
    """A session whose iterations may go through 1,000 of 8,000 slices, and the numbers of slices of its E-steps."""
    monkeypatch.setattr(effort, "LEAST_PART", 1000)
    seen: list[int] = []

    def spied(couplings: Couplings, slices: Slices, *given: object, **named: object) -> Gradient:
        seen.append(len(slices))
        return checked_gradient(couplings, slices, *given, **named)  # type: ignore[arg-type]

    for module in (base, scaled):
        monkeypatch.setattr(module, "checked_gradient", spied)
    learner = Learner(**{"estimator": "bp", "bias": False, **options})
    scales = nominal_scales(8, 2)
    return Session.of(RECORDING, 2, learner, seed=1, scales=scales, start=NETWORK), seen


@pytest.mark.parametrize(
    ("precision", "least_part", "large", "small"),
    [
        ("auto", 1000, "float32", "float64"),
        ("auto", 5000, "float64", "float64"),
        ("float64", 1000, "float64", "float64"),
        ("float32", 1000, "float32", "float32"),
    ],
)
def test_large_steps_on_long_recordings_are_made_in_single_precision(
    monkeypatch: pytest.MonkeyPatch, precision: str, least_part: int, large: str, small: str
) -> None:
    """And small ones, where rounding could matter, in double precision."""
    session, _ = session_of(monkeypatch, tolerance=1e-7, correlations="pair", estep={"precision": precision})
    monkeypatch.setattr(effort, "LEAST_PART", least_part)
    seen: list[str] = []

    def spied(couplings: Couplings, slices: Slices, estep: EStep, **named: object) -> Gradient:
        seen.append(estep.precision)
        return checked_gradient(couplings, slices, estep, **named)  # type: ignore[arg-type]

    for module in (base, scaled):
        monkeypatch.setattr(module, "checked_gradient", spied)
    state, sizes = session.begin(), [np.inf]
    while state.outcome == "running":
        seen.clear()
        state = session.advance(state)
        assert set(seen) == {large if sizes[-1] >= 1e-5 else small}
        sizes.append(state.trace[-1, 1:9].max())
    # In float32 steps may stay just above the tolerance.
    assert small == "float32" or state.outcome == "converged"
    assert max(sizes[1:]) > 1e-2
    assert min(sizes) < 1e-6


def test_single_precision_does_not_change_what_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"correlations": "pair", "tolerance": 1e-8}
    found = session_of(monkeypatch, **options)[0].run()
    double = session_of(monkeypatch, **options, estep={"precision": "float64"})[0].run()
    assert (found.outcome, double.outcome) == ("converged", "converged")
    for x, y in zip(found.couplings, double.couplings, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
        assert not x.size or not np.array_equal(x, y)
