from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from support.brute_force import gradient_of_bonds
from support.resuming import assert_continues
from support.spin_data import random_spins

from kising import Couplings, draw_couplings, fit, simulate
from kising.blocks import BLOCKS, REQUIRED
from kising.errors import InputError
from kising.learning.layout import slopes as blocks_of
from kising.learning.scores import bond_shares, scales_of
from kising.learning.session import Session
from kising.learning.starts import from_data
from kising.learning.state import spin_products
from kising.learning.steps.scaled import scaled_step
from kising.learning.steps.sparsity.decimated import NARROWING, decimated_step, shares_kept
from kising.learning.steps.sparsity.penalised import descend, penalised_step, penalties
from kising.learning.steps.sparsity.sparse import averaged
from kising.model import BondScales
from kising.options import Learner

ALL = tuple(1.0 for _ in BLOCKS)
THIRD = tuple(0.3 if name in REQUIRED else 1.0 for name in BLOCKS)


def problem(
    seed: int, *, visible: int = 10, hidden: int = 2, length: int = 4000, connectivity: float = 0.3
) -> tuple[Couplings, np.ndarray, BondScales]:
    truth = draw_couplings(visible, hidden, connectivity=connectivity, seed=seed)
    return truth, simulate(truth, length, seed=seed + 1).visible, scales_of(truth)


def session(seed: int, *, patience: int = 0, **options) -> Session:
    """From a start that knows nothing of the truth."""
    truth, recording, scales = problem(seed, length=1000)
    start = from_data(recording, 2, scales, seed=1)
    learner = Learner(bias=False, **options)
    made = Session.of(recording, 2, learner, seed=1, scales=scales, truth=truth, start=start)
    return replace(made, step=replace(made.step, patience=patience))


def test_descent_ends_at_the_minimum_of_the_penalised_quadratic() -> None:
    rng = np.random.default_rng(0)
    n, rows = 6, 4
    A = rng.standard_normal((n, 2 * n))
    C = A @ A.T / (2 * n)
    x0, G = rng.standard_normal((rows, n)), rng.standard_normal((rows, n))
    f, penalty = rng.uniform(0.2, 1, rows), rng.uniform(0, 1, (rows, n))
    x = descend(x0, G, C[None], f, penalty, 10_000, 1e-14)
    slope = G - f[:, None] * ((x - x0) @ C)
    assert (x == 0).any()
    assert (x != 0).any()
    np.testing.assert_allclose(slope[x != 0], (penalty * np.sign(x))[x != 0], atol=1e-10)
    assert (np.abs(slope) <= penalty + 1e-10).all()
    again = descend(x, slope, C[None], f, penalty, 10_000, 1e-14)
    np.testing.assert_allclose(again, x, atol=1e-12)


def test_without_a_penalty_the_step_is_the_scaled_one() -> None:
    truth, recording, _ = problem(1, length=500)
    truth = truth.only(())
    slopes, products = gradient_of_bonds(truth, recording), spin_products(recording)
    nothing = Couplings(*(np.zeros_like(x) for x in truth))
    for step in (
        penalised_step(truth, slopes, averaged(slopes, products), nothing),
        decimated_step(truth, slopes, averaged(slopes, products), ALL),
    ):
        for x, y in zip(step, scaled_step(slopes, products), strict=True):
            np.testing.assert_allclose(x, y, atol=1e-8)


@pytest.mark.parametrize("length", [1000, 16_000])
def test_the_unit_of_the_penalty_is_a_standard_error_at_every_length(length: int) -> None:
    """Of spins that do not depend on each other, as many J pass a threshold of l1 as normal numbers do."""
    none = Couplings(np.zeros((40, 40)), np.zeros((40, 1)), np.zeros((1, 40))).only(())
    recording = simulate(none, length, seed=5).visible
    slopes, products = gradient_of_bonds(none, recording), spin_products(recording)
    step = penalised_step(
        none, slopes, averaged(slopes, products), penalties(slopes, products, length - 2, 1.5)
    )
    expected = 2 * stats.norm.sf(1.5)
    allowed = 4 * np.sqrt(expected * (1 - expected) / 1600)
    assert np.mean(step.J != 0) == pytest.approx(expected, abs=allowed)


@pytest.mark.parametrize("start", ["signs", "random"])
@pytest.mark.parametrize("step", ["scaled", "gradient"])
def test_a_penalised_fit_ends_where_the_penalised_likelihood_is_largest(start: str, step: str) -> None:
    truth, recording, scales = problem(1)
    result = fit(
        recording, 2, estimator="exact", start=start, truth=truth, scales=scales, seed=3, l1=2.0, step=step,
        bias=False,
        rate=0.5, momentum=0.6, tolerance=1e-9, max_iterations=3000,
    )  # fmt: skip
    assert result.outcome == "converged"
    slopes, products = gradient_of_bonds(result.couplings, recording), spin_products(recording)
    for x, slope, penalty in zip(
        result.couplings.only(()), blocks_of(slopes), penalties(slopes, products, 3998, 2.0), strict=True
    ):
        np.testing.assert_allclose(slope[x != 0], (penalty * np.sign(x))[x != 0], atol=1e-7)
        assert (np.abs(slope[x == 0]) <= penalty[x == 0] + 1e-7).all()
        assert (x != 0).any() == bool(x.size)
    assert np.mean(result.couplings.J == 0) > 0.5


def test_a_large_penalty_leaves_nothing() -> None:
    truth, recording, scales = problem(1)
    result = fit(
        recording,
        2,
        estimator="exact",
        start="signs",
        truth=truth,
        scales=scales,
        seed=3,
        l1=100.0,
        bias=False,
    )
    assert result.outcome == "converged"
    assert all((x == 0).all() for x in result.couplings)


def test_the_share_that_is_kept_falls_to_what_was_asked() -> None:
    shares = [shares_kept((0.1, 0.5, 0.0), i)[0] for i in range(NARROWING + 5)]
    assert shares_kept((0.1, 0.5, 0.0), NARROWING) == (0.1, 0.5, 0.0)
    assert shares[0] == 1
    assert all(a > b for a, b in itertools.pairwise(shares[: NARROWING + 1]))
    assert shares[NARROWING:] == [0.1] * 5


def test_a_decimated_fit_keeps_the_known_number_and_its_gradient_vanishes_there() -> None:
    truth, recording, scales = problem(1)
    result = fit(
        recording, 2, estimator="exact", start="random", truth=truth, scales=scales, seed=3, decimate=0.3,
        tolerance=1e-8, bias=False,
    )  # fmt: skip
    assert result.outcome == "converged"
    assert result.iterations > NARROWING
    slopes = gradient_of_bonds(result.couplings, recording)
    whole = scaled_step(slopes, spin_products(recording))
    for name, slope, dx in zip(BLOCKS, blocks_of(slopes), whole, strict=True):
        if name not in REQUIRED:
            assert not dx.size
            continue
        x = getattr(result.couplings, name)
        assert np.count_nonzero(x) == round(0.3 * x.size)
        np.testing.assert_allclose(slope[x != 0], 0, atol=1e-7)
        assert np.abs((x + dx)[x != 0]).min() >= np.abs(dx[x == 0]).max() - 1e-7


def test_what_is_kept_takes_over_from_what_is_dropped() -> None:
    """A decimated step ends where the quadratic model is flat for all that is kept."""
    truth, recording, _ = problem(1, length=500)
    truth = truth.only(())
    slopes, products = gradient_of_bonds(truth, recording), spin_products(recording)
    step = decimated_step(truth, slopes, averaged(slopes, products), tuple(0.2 for _ in BLOCKS))
    landed, D = truth.L + step.L, step.L
    assert np.count_nonzero(landed) == round(0.2 * landed.size)
    assert (D[landed == 0] != 0).any()
    left = slopes.L - slopes.freedom_hidden[:, None] * (D @ products.before)
    np.testing.assert_allclose(left[landed != 0], 0, atol=1e-5)


@pytest.mark.parametrize("how", [{"l1": 1.0}, {"decimate": 0.3}])
def test_acceleration_leaves_zeros_where_the_step_alone_leads(how: dict) -> None:
    learning = session(2, estimator="exact", tolerance=1e-12, **how)
    state = learning.begin()
    for iteration in range(30):
        slopes = gradient_of_bonds(state.couplings, learning.problem.slices)
        products = learning.problem.products
        step = (
            penalised_step(
                state.couplings, slopes, averaged(slopes, products), penalties(slopes, products, 998, 1.0)
            )
            if "l1" in how
            else decimated_step(
                state.couplings, slopes, averaged(slopes, products), shares_kept(THIRD, iteration)
            )
        )
        landed = [x + dx for x, dx in zip(state.couplings, step, strict=True)]
        state = learning.advance(state)
        for x, alone in zip(state.couplings, landed, strict=True):
            assert (x[alone == 0] == 0).all()
    assert all((x == 0).any() for x in state.couplings if x.size)


def test_known_sparsity_finds_the_bonds_and_lowers_the_error() -> None:
    truth, recording, scales = problem(4, visible=16, length=20_000, connectivity=0.2)
    plain, penalised, decimated = (
        fit(
            recording,
            2,
            estimator="exact",
            start="signs",
            truth=truth,
            scales=scales,
            seed=3,
            bias=False,
            **how,
        )
        for how in ({"prior": "none"}, {"l1": 1.0}, {"decimate": np.mean(truth.J != 0)})
    )
    assert plain.rmse is not None
    assert decimated.rmse is not None
    assert penalised.rmse is not None
    assert decimated.rmse["J"] < 0.7 * plain.rmse["J"]
    assert penalised.rmse["J"] < plain.rmse["J"]
    large = np.abs(truth.J) > 0.2 * scales.J
    assert np.mean(decimated.couplings.J[large] != 0) > 0.95


@pytest.mark.parametrize("how", [{"l1": 1.0}, {"l1": 1.0, "step": "gradient"}, {"decimate": 0.3}])
@pytest.mark.parametrize("stop", [1, 6, 23])
def test_a_saved_state_continues_bit_for_bit(how: dict, stop: int) -> None:
    learning = session(
        2, patience=3, estimator="bp", correlations="closed", momentum=0.5, max_iterations=30,
        tolerance=1e-12, **how,
    )  # fmt: skip
    assert_continues(learning, stop=stop)


def test_fits_do_not_settle_before_the_known_number_is_reached() -> None:
    learning = session(2, estimator="bp", tolerance=1e3, hold=1, decimate=0.3)
    assert learning.run().iteration == NARROWING + 1


def test_the_known_share_is_that_of_the_truth() -> None:
    truth, recording, scales = problem(1)
    shares = bond_shares(truth)
    assert len(set(shares[:3])) == 3
    assert shares[3:] == (1.0, 1.0, 1.0, 1.0, 1.0)
    result = fit(
        recording, 2, estimator="exact", start="random", truth=truth, scales=scales, seed=3, decimate="known",
        bias=False,
    )  # fmt: skip
    for x, true in zip(result.couplings, truth, strict=True):
        assert np.count_nonzero(x) == np.count_nonzero(true)
    with pytest.raises(InputError, match="decimate='known' uses the number of true couplings"):
        fit(recording, 2, estimator="exact", seed=3, decimate="known")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"l1": -1.0}, "l1=-1.0: -1.0 is out of range; allowed: numbers >= 0"),
        ({"l1": float("nan")}, "l1=nan: .nan is not a finite number"),
        (
            {"decimate": 0.0},
            "decimate=0.0: 0.0 is out of range; allowed: none, known, or a number with 0 < number",
        ),
        (
            {"decimate": 1.5},
            "decimate=1.5: 1.5 is out of range; allowed: none, known, or a number with 0 < number",
        ),
        ({"decimate": 0.5, "l1": 1.0}, "decimate: excludes learner.l1"),
        ({"decimate": 0.5, "step": "gradient"}, "decimate: needs learner.step: scaled"),
        (
            {"decimate": 0.5, "estimator": "gibbs", "hidden_couplings": True},
            "decimate: with hidden couplings it does not work with estimator gibbs; leave it out, or use exact",
        ),
        (
            {"l1": 0.5, "estimator": "gibbs", "hidden_couplings": True},
            "l1: with hidden couplings it does not work with estimator gibbs",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(how: dict, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        fit(random_spins(50, 3), 1, seed=0, **how)
