from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import gradient_of_bonds, small_network

from kising import Couplings, draw_couplings, fit, gradient, simulate
from kising.blocks import BLOCKS, shapes
from kising.learning.errors.standard import information, standard_errors
from kising.learning.layout import Rows
from kising.learning.scores import nominal_scales
from kising.learning.state import prepare
from kising.learning.steps.prior import Prior
from kising.learning.steps.scaled import freedom_of, scaled_step
from kising.options import Learner


def prior_of(recording, learner: Learner) -> Prior | None:
    return Prior.of(prepare(recording, 2, nominal_scales(4, 2)), learner)


def test_the_pull_of_a_prior_is_the_slope_of_its_logarithm() -> None:
    couplings, recording = small_network(3, visible=4, hidden=2, length=500)
    scales, width = nominal_scales(4, 2), 2.0
    slopes = gradient(couplings, recording, estimator="exact")
    prior = prior_of(recording, Learner(prior=width))
    assert prior is not None
    found = prior.pulled(slopes, couplings)
    for name, x, sd in zip(BLOCKS, couplings, scales, strict=True):

        def log_prior(x: np.ndarray, sd: float = sd) -> np.ndarray:
            return -0.5 * (x / (width * sd)) ** 2 / 498

        expected = (log_prior(x + 1e-4) - log_prior(x - 1e-4)) / 2e-4
        np.testing.assert_allclose(getattr(found, name) - getattr(slopes, name), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("learner", "has_one"),
    [
        (Learner(prior=2.0), True),
        (Learner(prior=2.0, step="gradient"), False),
        (Learner(prior="none"), False),
        (Learner(), True),
        (Learner(l1=1.0), False),
        (Learner(decimate=0.5), False),
        (Learner(l1=1.0, prior=2.0), True),
    ],
)
def test_plain_ascent_has_no_prior_and_sparsity_is_one(learner: Learner, has_one: bool) -> None:
    _, recording = small_network(3, visible=4, hidden=2, length=100)
    assert (prior_of(recording, learner) is not None) == has_one


def test_a_block_sets_its_own_width() -> None:
    """The size of a coupling where a block is large against its errors; the error of a coupling where it is zero."""
    couplings, recording = small_network(3, visible=4, hidden=2, length=500)
    couplings = couplings.only(())
    slopes = gradient(couplings, recording, estimator="exact")
    prior = prior_of(recording, Learner(prior="auto"))
    assert prior is not None
    freedom = Rows(slopes.freedom_visible, slopes.freedom_hidden)
    for name, width in prior.widths(Couplings(*(100 * x for x in couplings)), freedom).items():
        block = 100 * getattr(couplings, name)
        expected = np.sqrt(np.sum(block**2) / (block.size - 2)) if block.size else 1.0
        assert width == pytest.approx(expected, rel=1e-3)
    none = prior.widths(Couplings(*(0 * x for x in couplings)), freedom)
    assert none["J"] == pytest.approx(np.sqrt(np.mean(1 / (498 * slopes.freedom_visible))))
    assert none["L"] == pytest.approx(np.sqrt(np.mean(1 / (498 * slopes.freedom_hidden))))


def widths_of(couplings: Couplings) -> dict[str, float]:
    """The widths where slices are too many for errors to play a part."""
    nv, nh = couplings.K.shape
    return Prior(None, nominal_scales(nv, nh), 10**12).widths(couplings, Rows(np.ones(nv), np.ones(nh)))


def test_the_pull_is_on_average_that_of_the_true_width() -> None:
    """Also of blocks with few couplings; with Σ X²/n, that of two biases would have no finite mean."""
    rng = np.random.default_rng(4)
    sizes = {"J": (7, 7), "K": (7, 2), "L": (2, 7), "h": (7,), "b": (2,)}
    drawn = [
        widths_of(Couplings(**{name: 0.3 * rng.standard_normal(size) for name, size in sizes.items()}))
        for _ in range(4000)
    ]
    for name in sizes:
        assert np.mean([widths[name] ** -2.0 for widths in drawn]) == pytest.approx(0.3**-2, rel=0.05), name


@pytest.mark.parametrize(("borrower", "lender"), [("b", "h"), ("G", "F")])
def test_blocks_of_few_hidden_spins_borrow(borrower: str, lender: str) -> None:
    """Two biases that happen to be small do not pull each other to zero; those of many hidden spins decide alone."""

    def ratio(hidden: int) -> float:
        sizes = shapes(30, hidden, inputs=1)
        blocks = {name: np.ones(size) for name, size in sizes.items()}
        blocks[borrower] *= 0.01
        widths = widths_of(Couplings(**blocks))
        return widths[borrower] / widths[lender]

    assert 0.8 < ratio(2) < 1.2
    assert ratio(1000) < 0.15


def test_a_block_that_lends_takes_nothing() -> None:
    blocks = {name: np.ones(size) for name, size in shapes(6, 2, inputs=1).items()}
    widths = widths_of(Couplings(**blocks))
    weak = widths_of(
        Couplings(**{**blocks, "b": 0 * blocks["b"], "G": 0 * blocks["G"], "M": 0 * blocks["M"]})
    )
    assert all(weak[name] == widths[name] for name in "JKLhF")


def test_steps_are_divided_by_information_and_precision() -> None:
    couplings, recording = small_network(3, visible=4, hidden=2, length=500)
    couplings = couplings.only(())
    problem = prepare(recording, 2, nominal_scales(4, 2))
    slopes = gradient_of_bonds(couplings, recording)
    prior = Prior(0.1, problem.scales, problem.n_slices)
    precision = prior.precision(couplings, freedom_of(slopes))
    step = scaled_step(slopes, problem.products, precision)
    C = problem.products.before + 1e-6 * np.eye(4)
    expected = np.linalg.solve(
        slopes.freedom_hidden[1] * C + np.eye(4) / (0.1 * problem.scales.L) ** 2 / 498, slopes.L[1]
    )
    np.testing.assert_allclose(step.L[1], expected, rtol=1e-10)


@pytest.mark.parametrize("estimator", ["exact", "bp"])
def test_a_block_of_zeros_stays_within_its_errors(estimator: str) -> None:
    """There the prior is as strong as the data: steps that did not count it would overshoot."""
    visible = np.where(np.random.default_rng(3).random((2000, 6)) < 0.1, 1, -1)
    found = fit(visible, 1, seed=1, estimator=estimator)
    assert found.outcome == "converged"
    assert np.sqrt(np.mean(found.couplings.J**2)) < 0.05


def test_errors_count_the_prior() -> None:
    truth = draw_couplings(5, 1, seed=2).only(())
    visible = simulate(truth, 1500, seed=3).visible
    widths = {"J": 0.02, "K": 0.05, "L": 0.1, "h": 1.0, "b": 1.0, "F": 1.0, "G": 1.0, "M": 1.0}
    found = standard_errors(truth, visible, seed=4, widths=widths)
    complete, missing = information(truth, visible, seed=4)
    precision = np.concatenate([np.full(25, 0.02), np.full(5, 0.05), np.full(5, 0.1)]) ** -2.0
    whole = np.linalg.inv(1498 * (complete + 1e-6 * np.eye(35) - missing) + np.diag(precision))
    expected = np.sqrt(np.diag(whole))
    np.testing.assert_allclose(found.J.ravel(), expected[:25], rtol=1e-8)
    np.testing.assert_allclose(found.K.ravel(), expected[25:30], rtol=1e-8)
    np.testing.assert_allclose(found.L.ravel(), expected[30:], rtol=1e-8)


def test_errors_of_a_fit_are_those_with_its_prior() -> None:
    truth = draw_couplings(5, 1, seed=2)
    visible = simulate(truth, 1500, seed=3).visible
    free, held = (fit(visible, 1, seed=1, bias=False, errors=True, prior=p) for p in ("none", 0.2))
    assert free.prior_widths is None
    assert held.prior_widths["J"] == pytest.approx(0.2 * nominal_scales(5, 1).J)
    assert np.all(held.standard_error.J < free.standard_error.J)
    again = held.with_errors(visible)
    for x, y in zip(again.standard_error, held.standard_error, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)
