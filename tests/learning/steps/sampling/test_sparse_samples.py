"""Sparse couplings from samples, with sums over all hidden states as the judge."""

from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import gradient_of_bonds
from support.resuming import assert_continues

from kising import Couplings, Fit, draw_couplings, fit, simulate
from kising.blocks import REQUIRED
from kising.errors import InputError
from kising.learning.layout import slopes
from kising.learning.scores import scales_of
from kising.learning.session import Session
from kising.learning.state import spin_products
from kising.learning.steps.sparsity.penalised import penalties
from kising.options import Learner

# No bond of it saturates: λ falls with the freedom of a row, and would not hold one that does.
TRUTH = draw_couplings(10, 2, strength=0.7, connectivity=0.5, seed=1)
RECORDING = simulate(TRUTH, 4000, seed=2).visible
SCALES = scales_of(TRUTH)
FREEDOM = gradient_of_bonds(TRUTH, RECORDING)
#: Of a coupling by itself, if the hidden spins were seen.
ERRORS = Couplings(
    *(
        np.ones_like(x) / np.sqrt(freedom[:, None] * 3998)
        for x, freedom in zip(
            (TRUTH.J, TRUTH.K, TRUTH.L),
            (FREEDOM.freedom_visible, FREEDOM.freedom_visible, FREEDOM.freedom_hidden),
            strict=True,
        )
    )
)


def learn(estimator: str, **how) -> Fit:
    return fit(
        RECORDING,
        2,
        estimator=estimator,
        start="signs",
        truth=TRUTH,
        scales=SCALES,
        seed=3,
        bias=False,
        **how,
    )


@pytest.mark.parametrize("l1", [1.0, 2.0])
def test_a_penalised_fit_ends_where_that_of_exact_averages_ends(l1: float) -> None:
    sampled, exact = learn("gibbs", l1=l1), learn("exact", l1=l1, tolerance=1e-7)
    assert (sampled.outcome, exact.outcome) == ("converged", "converged")
    for name in REQUIRED:
        noise, ours, theirs = (
            getattr(x, name) for x in (sampled.monte_carlo_error, sampled.couplings, exact.couplings)
        )
        assert np.sqrt(np.mean((ours - theirs) ** 2)) < 3 * np.sqrt(np.mean(noise**2))
        assert np.mean((ours == 0) == (theirs == 0)) > 0.9
    zeros = [np.mean(x.couplings.J == 0) for x in (sampled, exact)]
    assert zeros[0] == pytest.approx(zeros[1], abs=0.05)
    assert zeros[1] > 0.2


def test_slopes_of_a_penalised_fit_are_those_of_its_penalty() -> None:
    """By brute force: |G| ≤ λ for zeros, and G = λ sign(x) elsewhere, but for what sampling leaves."""
    couplings = learn("gibbs", l1=2.0).couplings.only(())
    found, products = gradient_of_bonds(couplings, RECORDING), spin_products(RECORDING)
    for x, slope, penalty in zip(
        couplings, slopes(found), penalties(found, products, 3998, 2.0), strict=True
    ):
        if x.size:
            # λ is two standard errors of a coupling by itself.
            left = (slope - penalty * np.sign(x)) / (penalty / 2)
            assert np.sqrt(np.mean(left[x != 0] ** 2)) < 0.3
            assert np.max(np.abs(slope[x == 0]) / penalty[x == 0]) < 1.15


@pytest.mark.parametrize("decimate", [0.3, "known"])
def test_a_decimated_fit_keeps_the_number_and_is_the_likeliest_of_its_kind(decimate: float | str) -> None:
    sampled = learn("gibbs", decimate=decimate)
    assert sampled.outcome == "converged"
    found = gradient_of_bonds(sampled.couplings.only(()), RECORDING)
    for name, slope in zip(REQUIRED, slopes(found), strict=False):
        x = getattr(sampled.couplings, name)
        wanted = np.count_nonzero(getattr(TRUTH, name)) if decimate == "known" else round(0.3 * x.size)
        assert np.count_nonzero(x) == wanted
        # In standard errors of a coupling by itself.
        error = np.sqrt((found.freedom_hidden if name == "L" else found.freedom_visible)[:, None] / 3998)
        assert np.sqrt(np.mean((slope / error)[x != 0] ** 2)) < 0.3


def test_decimated_fits_of_samples_and_of_sums_find_the_same_bonds() -> None:
    """But for bonds near the weakest that are kept, of which either may keep others."""
    sampled, exact = (learn(name, decimate="known") for name in ("gibbs", "exact"))
    for name in REQUIRED:
        ours, theirs, errors = (getattr(x, name) for x in (sampled.couplings, exact.couplings, ERRORS))
        doubtful = (ours == 0) != (theirs == 0)
        size = np.abs(ours + theirs) / errors
        weakest = min(np.min(size[(ours != 0) & (theirs != 0)]), np.inf)
        assert np.all(size[doubtful] < weakest + 3)
        assert sampled.rmse[name] == pytest.approx(exact.rmse[name], rel=0.1)


def test_a_large_penalty_leaves_nothing() -> None:
    assert all((x == 0).all() for x in learn("gibbs", l1=100.0).couplings)


@pytest.mark.parametrize("how", [{"l1": 1.0}, {"decimate": 0.3}])
@pytest.mark.parametrize("stop", [1, 40, 90])
def test_a_saved_state_continues_bit_for_bit(how: dict, stop: int) -> None:
    learner = Learner(estimator="gibbs", bias=False, max_iterations=110, **how)
    session = Session.of(RECORDING[:800], 2, learner, seed=1, scales=SCALES, truth=TRUTH)
    assert_continues(session, stop=stop)


def test_fields_are_not_driven_to_zero() -> None:
    network = draw_couplings(8, 2, connectivity=0.3, bias=0.4, seed=5)
    found = fit(simulate(network, 3000, seed=6).visible, 2, seed=1, estimator="gibbs", l1=3.0)
    assert (found.couplings.J == 0).any()
    assert (found.couplings.h != 0).all()


def test_recordings_with_gaps_are_refused() -> None:
    gaps = RECORDING[:500].astype(float)
    gaps[7, 3] = np.nan
    with pytest.raises(InputError, match=r"l1=1\.0: entries are missing and will be sampled"):
        fit(gaps, 2, seed=1, l1=1.0)


@pytest.mark.parametrize("how", [{"l1": 1.0}, {"decimate": 0.3}])
def test_averaged_moves_shrink_and_zeros_rest(how: dict) -> None:
    learner = Learner(estimator="gibbs", bias=False, noise=1e-6, max_iterations=160, **how)
    session = Session.of(RECORDING[:800], 2, learner, seed=1, scales=SCALES, truth=TRUTH)
    *_, before, last = states = list(session.states(session.begin()))
    averaged = [x for x in states if x.sampler.averages]
    assert len(averaged) > 60
    approach, late = (
        np.mean([np.linalg.norm(x.history.velocity) for x in some])
        for some in (states[40:60], averaged[-11:-1])
    )
    # γ is (k+1)^-0.6 after k averaged iterations; momentum multiplies both alike.
    assert late < 3 * (len(averaged) - 10) ** -0.6 * approach
    if "decimate" in how:
        assert all(
            np.array_equal(x != 0, y != 0) for x, y in zip(averaged[0].couplings, last.couplings, strict=True)
        )
    assert last.couplings == before.couplings


@pytest.mark.parametrize("limit", [3, 12, 45])
@pytest.mark.parametrize("decimate", [0.3, "known"])
def test_a_decimated_fit_that_stalls_on_its_way_keeps_the_number_too(
    decimate: float | str, limit: int
) -> None:
    found = learn("gibbs", decimate=decimate, max_iterations=limit)
    assert (found.outcome, found.state.sampler.averages) == ("stalled", False)
    for name in REQUIRED:
        x, true = getattr(found.couplings, name), getattr(TRUTH, name)
        wanted = np.count_nonzero(true) if decimate == "known" else round(0.3 * x.size)
        assert np.count_nonzero(x) == wanted
