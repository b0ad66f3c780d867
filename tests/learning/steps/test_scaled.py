from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import gradient_of_bonds, small_network
from threadpoolctl import threadpool_info, threadpool_limits

from kising import draw_couplings, simulate
from kising import options as options_module
from kising.estimators.estep import EStep
from kising.estimators.gradient import Gradient, checked_gradient
from kising.estimators.slices import Slices
from kising.learning.scores import nominal_scales
from kising.learning.session import Session
from kising.learning.state import spin_products
from kising.learning.steps import base, scaled
from kising.learning.steps.scaled import scaled_step
from kising.model import Couplings
from kising.options import EARLY_ITERATIONS as EARLY
from kising.options import Learner, slices_at_first


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
RECORDING = simulate(NETWORK, 802, seed=4).visible


def session_of(monkeypatch: pytest.MonkeyPatch, **options: object) -> tuple[Session, list[int]]:
    """A session whose first iterations may go through 100 of 800 slices, and the number of slices of its E-steps."""
    monkeypatch.setattr(options_module, "EARLY_SLICES", 100)
    seen: list[int] = []

    def spied(couplings: Couplings, slices: Slices, *given: object, **named: object) -> Gradient:
        seen.append(len(slices))
        return checked_gradient(couplings, slices, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(base, "checked_gradient", spied)
    learner = Learner(**{"estimator": "bp", "bias": False, **options})
    scales = nominal_scales(8, 2)
    return Session.of(RECORDING, 2, learner, seed=1, scales=scales, start=NETWORK), seen


@pytest.mark.parametrize("bias", [False, True])
def test_the_first_iterations_go_through_part_of_a_long_recording(
    monkeypatch: pytest.MonkeyPatch, bias: bool
) -> None:
    # Every step is small enough: what keeps learning from ending is that not all slices have had a say.
    session, seen = session_of(monkeypatch, tolerance=1e3, bias=bias)
    last = session.run()
    assert last.outcome == "converged"
    assert seen == [100] * EARLY + [800] * session.learner.hold


def test_steps_on_part_of_the_slices_are_forgotten_when_all_join(monkeypatch: pytest.MonkeyPatch) -> None:
    session, _ = session_of(monkeypatch)
    states = [session.begin(), *session.states(session.begin())]
    sizes = [len(state.history.points) for state in states]
    assert sizes[EARLY] > 2
    assert sizes[EARLY + 1] == 1


def test_the_end_is_that_of_all_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    early, _ = session_of(monkeypatch, tolerance=1e-6, correlations="pair")
    found = early.run()
    monkeypatch.setattr(options_module, "EARLY_ITERATIONS", 0)
    usual = session_of(monkeypatch, tolerance=1e-6, correlations="pair")[0].run()
    assert (found.outcome, usual.outcome) == ("converged", "converged")
    for x, y in zip(found.couplings, usual.couplings, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"estimator": "exact"},
        {"step": "gradient"},
        {"l1": 1.0},
        {"max_iterations": 3 * EARLY - 1},
    ],
)
def test_others_use_all_slices_from_the_beginning(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    session, seen = session_of(monkeypatch, **options)
    session.advance(session.begin())
    assert set(seen) == {800}


def test_part_of_the_slices_is_used_where_it_saves_half() -> None:
    assert [slices_at_first(n) for n in (100, 19_999, 20_000, 80_000, 800_000)] == [
        100, 19_999, 10_000, 10_000, 100_000,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("precision", "early_slices", "large", "small"),
    [
        ("auto", 100, "float32", "float64"),
        ("auto", 500, "float64", "float64"),
        ("float64", 100, "float64", "float64"),
        ("float32", 100, "float32", "float32"),
    ],
)
def test_large_steps_on_long_recordings_are_made_in_single_precision(
    monkeypatch: pytest.MonkeyPatch, precision: str, early_slices: int, large: str, small: str
) -> None:
    """And small ones, where rounding could matter, in double precision."""
    session, _ = session_of(monkeypatch, tolerance=1e-7, correlations="pair", estep={"precision": precision})
    monkeypatch.setattr(options_module, "EARLY_SLICES", early_slices)
    seen: list[str] = []

    def spied(couplings: Couplings, slices: Slices, estep: EStep, **named: object) -> Gradient:
        seen.append(estep.precision)
        return checked_gradient(couplings, slices, estep, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(base, "checked_gradient", spied)
    last = session.run()
    assert last.outcome == "converged"
    sizes = last.trace[:-1, 1:9].max(axis=1)
    assert sizes.max() > 1e-2
    assert sizes.min() < 1e-6
    assert seen == [large, *(large if size >= 1e-5 else small for size in sizes)]


def test_single_precision_does_not_change_what_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    found = session_of(monkeypatch, correlations="pair")[0].run()
    double = session_of(monkeypatch, correlations="pair", estep={"precision": "float64"})[0].run()
    assert (found.outcome, found.iteration) == (double.outcome, double.iteration)
    for x, y in zip(found.couplings, double.couplings, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
        assert not x.size or not np.array_equal(x, y)
