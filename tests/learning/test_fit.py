from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from support.brute_force import gradient_of_bonds

from kising import bond_scales, draw_couplings, fit, gradient, infer, simulate
from kising.errors import InputError
from kising.estimators.registry import ESTIMATORS
from kising.learning.layout import slopes as blocks_of
from kising.learning.scores import scales_of
from kising.learning.session import Session
from kising.options import Learner


def problem(seed: int, *, visible: int = 8, hidden: int = 2, length: int = 4000, strength: float = 1.0):
    truth = draw_couplings(visible, hidden, strength=strength, seed=seed)
    scales = bond_scales(visible, hidden, strength=strength, connectivity=1.0)
    return truth, simulate(truth, length, seed=seed + 1).visible, scales


@pytest.mark.parametrize("step", ["scaled", "gradient"])
def test_converged_fit_is_a_maximum_of_the_likelihood(step: str) -> None:
    truth, visible, scales = problem(1)
    result = fit(
        visible, 2, estimator="exact", start="signs", truth=truth, scales=scales, seed=3, step=step,
        bias=False, prior="none", rate=1.0, momentum=0.9, max_iterations=2000,
    )  # fmt: skip
    assert result.outcome == "converged"
    assert result.converged == {"J": True, "K": True, "L": True}
    slopes = gradient_of_bonds(result.couplings, visible)
    assert max(np.abs(x).max() for x in blocks_of(slopes) if x.size) < 2e-4
    assert result.trace.log_likelihood.iloc[-1] > gradient(truth, visible, estimator="exact").log_likelihood


@pytest.mark.parametrize("more", [{"estimator": "exact"}, {"estimator": "bp", "l1": 1e-9}])
def test_with_a_prior_the_posterior_is_at_its_maximum(more) -> None:
    truth, visible, scales = problem(1)
    result = fit(
        visible, 2, start="signs", truth=truth, scales=scales, seed=3, prior=1.5, tolerance=1e-6,
        max_iterations=500, bias=False, **more,
    )  # fmt: skip
    assert result.outcome == "converged"
    slopes = gradient_of_bonds(result.couplings, visible, more["estimator"])
    pulled = [
        slope - x / (1.5 * sd) ** 2 / (len(visible) - 2)
        for slope, x, sd in zip(blocks_of(slopes), result.couplings.only(()), scales, strict=True)
        if slope.size
    ]
    assert max(np.abs(x).max() for x in pulled) < 1e-5
    assert max(np.abs(slopes.J).max(), np.abs(slopes.K).max()) > 1e-4


def test_a_prior_holds_what_the_recording_does_not_determine() -> None:
    # The second spin always follows the first: no coupling is too strong for that.
    rng = np.random.default_rng(1)
    visible = rng.choice([-1, 1], size=(400, 3)).astype(np.int8)
    visible[1:, 1] = visible[:-1, 0]
    free, held = (
        fit(visible, 1, estimator="exact", seed=2, prior=prior, max_iterations=100) for prior in (None, 3.0)
    )
    assert held.couplings.J[1, 0] < 3 < free.couplings.J[1, 0]


def test_the_two_steps_agree_on_where_they_go() -> None:
    truth, visible, scales = problem(1)
    how = {
        "estimator": "exact",
        "start": "signs",
        "truth": truth,
        "scales": scales,
        "seed": 3,
        "tolerance": 1e-6,
    }
    scaled = fit(visible, 2, prior="none", **how)
    ascent = fit(visible, 2, step="gradient", rate=1.0, momentum=0.9, max_iterations=5000, **how)
    for x, y in zip(scaled.couplings, ascent.couplings, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4)
    assert scaled.iterations < ascent.iterations / 2


def test_random_start_reaches_what_the_truth_s_signs_reach() -> None:
    truth, visible, scales = problem(4, visible=12, hidden=2, length=8000)
    how = {"estimator": "exact", "truth": truth, "scales": scales}
    told = fit(visible, 2, start="signs", seed=1, **how)
    untold = fit(visible, 2, start="random", seed=2, **how)
    assert untold.trace.log_likelihood.iloc[-1] == pytest.approx(told.trace.log_likelihood.iloc[-1], abs=1e-5)
    assert untold.rmse == pytest.approx(told.rmse, abs=1e-2)


def test_fit_without_truth_has_no_rmse() -> None:
    _, visible, _ = problem(1, length=500)
    result = fit(visible, 2, seed=3, max_iterations=5)
    assert result.rmse is None
    assert result.trace.rmse_J.isna().all()
    with pytest.raises(ValueError, match="start='signs' takes the signs of the true couplings"):
        fit(visible, 2, start="signs", seed=3)


def test_trace_has_one_row_per_iteration_and_ends_with_the_result() -> None:
    truth, visible, scales = problem(1)
    result = fit(visible, 2, estimator="bp", start="signs", truth=truth, scales=scales, seed=3, bias=False)
    assert list(result.trace.iteration) == list(range(result.iterations))
    assert {x: result.trace[f"rmse_{x}"].iloc[-1] for x in "JKL"} == result.rmse
    slopes = gradient(result.couplings, visible, estimator="bp")
    last = result.trace.iloc[-1]
    assert last.log_likelihood == slopes.log_likelihood
    assert last.bp_converged == slopes.converged
    assert (last.abs_m, last.abs_mu, last.abs_pair) == (slopes.abs_m, slopes.abs_mu, slopes.abs_pair)


def test_verdict_needs_small_steps_for_several_iterations_in_a_row() -> None:
    truth, visible, scales = problem(1)
    result = fit(
        visible, 2, estimator="exact", start="signs", truth=truth, scales=scales, seed=3, hold=4, bias=False
    )
    steps = result.trace[["step_J", "step_K", "step_L"]].to_numpy()
    settled = (steps < 1e-4).all(axis=1)
    assert settled[-4:].all()
    # It stopped at the first chance: no earlier stretch of four.
    assert not any(settled[k : k + 4].all() for k in range(len(settled) - 4))


def test_verdict_does_not_depend_on_the_learning_rate() -> None:
    """A rate so small that nothing moves must not pass for convergence."""
    truth, visible, scales = problem(1)
    result = fit(
        visible, 2, estimator="exact", start="signs", truth=truth, scales=scales, seed=3, step="gradient",
        rate=1e-9, max_iterations=10,
    )  # fmt: skip
    assert result.outcome == "stalled"
    assert not any(result.converged.values())


def test_blocks_are_judged_apart() -> None:
    """A block that has not settled does not keep the flags of the others from being set."""
    truth, visible, scales = problem(1, length=1500)
    found = {
        n: fit(
            visible,
            2,
            start="signs",
            truth=truth,
            scales=scales,
            seed=3,
            estimator="exact",
            max_iterations=n,
            bias=False,
        )
        for n in range(6, 40)
    }
    for result in found.values():
        last = result.trace[["step_J", "step_K", "step_L"]].tail(3) < 1e-4
        assert result.converged == {x: bool(last[f"step_{x}"].all()) for x in "JKL"}
    flags = [result.converged for result in found.values() if result.outcome == "stalled"]
    assert {"J": True, "K": False, "L": False} in flags


def test_a_reckless_rate_diverges_with_flags_and_without_an_exception() -> None:
    truth, visible, scales = problem(1, length=300)
    result = fit(
        visible,
        2,
        estimator="bp",
        start="signs",
        truth=truth,
        scales=scales,
        seed=3,
        step="gradient",
        rate=1e4,
        momentum=0.99,
        bias=False,
    )
    assert result.outcome == "diverged"
    assert result.converged == {"J": False, "K": False, "L": False}
    assert all(np.isfinite(x).all() for x in result.couplings)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("estimator", [each.name for each in ESTIMATORS])
@pytest.mark.parametrize("length", [3, 10])
def test_hopelessly_short_data_end_with_a_verdict(estimator: str, length: int, bias: bool) -> None:
    """`fit` refuses such recordings, or warns of them; runs of a sweep may be as short."""
    truth, visible, scales = problem(1, visible=6, length=length)
    learner = Learner(estimator=estimator, start="signs", max_iterations=60, bias=bias)
    session = Session.of(visible, 2, learner, seed=3, scales=scales, truth=truth)
    result = session.result(session.run())
    assert result.outcome in ("converged", "stalled", "diverged")
    assert all(np.isfinite(x).all() for x in result.couplings)


def test_start_may_be_couplings_and_shapes_are_checked() -> None:
    truth, visible, _ = problem(2, length=200)
    result = fit(visible, 2, start=truth, seed=0, max_iterations=1)
    assert result.couplings == truth
    with pytest.raises(InputError, match=r"truth is a network of \(Nv, Nh\) = \(8, 2\)"):
        fit(visible, 3, truth=truth, seed=0)
    with pytest.raises(InputError, match=r"start is a network of \(Nv, Nh\) = \(8, 2\)"):
        fit(visible, 3, start=truth, seed=0)
    with pytest.raises(InputError, match="start='guess': 'guess' is not a start; allowed: signs, random"):
        fit(visible, 2, start="guess", seed=0)
    with pytest.raises(InputError, match="hidden=-1: -1 is too small; allowed: whole numbers from 0"):
        fit(visible, -1, seed=0)
    with pytest.raises(
        TypeError, match="fit\\(\\) got an unexpected keyword argument 'estimater'; did you mean"
    ):
        fit(visible, 2, seed=0, estimater="bp")


@pytest.mark.parametrize("known", [True, False])
def test_scales_default_to_those_of_the_truth_or_of_a_dense_network(known: bool) -> None:
    truth, visible, _ = problem(1, length=500, strength=0.4)
    truth = truth if known else None
    nominal = bond_scales(8, 2, strength=1.0, connectivity=1.0)
    scales = nominal if truth is None else scales_of(truth)
    how = {"estimator": "exact", "truth": truth, "seed": 3, "max_iterations": 12, "prior": 1.0}
    default = fit(visible, 2, **how)
    assert default == fit(visible, 2, scales=scales, **how)
    assert default != fit(visible, 2, scales=bond_scales(8, 2, strength=0.7, connectivity=1.0), **how)


def test_the_defaults_are_those_of_a_sweep_file() -> None:
    _, visible, _ = problem(1, length=500)
    explicit = fit(
        visible, 2, seed=3, max_iterations=5, estimator="auto", start="random", correlations="bounded",
        step="scaled", prior="auto", l1=0, decimate=None, starts=1,
    )  # fmt: skip
    assert explicit == fit(visible, 2, seed=3, max_iterations=5)
    assert explicit.estimator == "exact"


def test_a_fit_goes_on_from_a_state() -> None:
    truth, visible, scales = problem(1, length=1000)
    how = {"estimator": "exact", "truth": truth, "scales": scales, "seed": 3}
    whole, short = fit(visible, 2, **how), fit(visible, 2, max_iterations=7, **how)
    with pytest.raises(InputError, match="state: it stalled and cannot be continued"):
        fit(visible, 2, state=short.state, **how)
    with pytest.raises(InputError, match=r"state: it belongs to another network, \(Nv, Nh\) = \(8, 2\)"):
        fit(visible, 3, state=whole.state, seed=3)
    assert fit(visible, 2, state=whole.state, **how) == whole
    session = Session.of(visible, 2, Learner(estimator="exact"), seed=3, scales=scales, truth=truth)
    *_, early = islice(session.states(session.begin()), 7)
    assert early.outcome == "running"
    assert fit(visible, 2, state=early, **how) == whole


def test_fits_are_printed_on_one_screen_and_compared_by_what_they_hold() -> None:
    _, visible, _ = problem(1, length=500)
    one, same, other = (fit(visible, 2, seed=seed, max_iterations=5) for seed in (3, 3, 4))
    assert one.trace.shape == (5, len(one.trace.columns))
    assert one == same
    assert one != other
    assert "J=<8×8 float64>" in repr(one)
    assert len(repr(one)) < 2000


def test_a_state_of_another_fit_is_refused_in_words() -> None:
    _, visible, _ = problem(1, length=300)
    exact, sampled = (fit(visible, 2, seed=3, estimator=x, max_iterations=5) for x in ("exact", "gibbs"))
    for state, estimator in ((exact.state, "gibbs"), (exact.state, "bp"), (sampled.state, "exact")):
        with pytest.raises(
            InputError, match=f"state: it was learned with estimator [a-z]+; this fit uses {estimator}"
        ):
            fit(visible, 2, seed=3, estimator=estimator, max_iterations=9, state=state)
    longer = problem(1, length=400)[1]
    for found in (exact, sampled):
        with pytest.raises(
            InputError,
            match="state: it was learned from 298 slices; the recording has 398: give the same data",
        ):
            fit(longer, 2, seed=3, estimator=found.estimator, max_iterations=5, state=found.state)


def test_states_that_an_older_version_saved_are_checked_as_far_as_they_can_be() -> None:
    _, visible, _ = problem(1, length=300)
    exact, sampled = (fit(visible, 2, seed=3, estimator=x, max_iterations=5) for x in ("exact", "gibbs"))
    older = [replace(found.state, estimator=None, slices=None) for found in (exact, sampled)]
    for state, found in zip(older, (exact, sampled), strict=True):
        again = fit(visible, 2, seed=3, estimator=found.estimator, max_iterations=5, state=state)
        assert again.couplings == found.couplings
    for state, estimator in zip(older, ("gibbs", "exact"), strict=True):
        with pytest.raises(InputError, match=f"state: .* samples.*this fit uses {estimator}"):
            fit(visible, 2, seed=3, estimator=estimator, max_iterations=9, state=state)
    with pytest.raises(InputError, match="state: it was learned from another recording"):
        fit(problem(1, length=400)[1], 2, seed=3, estimator="gibbs", max_iterations=5, state=older[1])


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_are_at_least_one(threads: int) -> None:
    truth, visible, _ = problem(1, length=300)
    found = fit(visible, 2, seed=3, max_iterations=2)
    gaps = np.where(np.arange(len(visible))[:, None] == 7, np.nan, visible)
    for use in (
        lambda: fit(visible, 2, seed=3, threads=threads),
        lambda: infer(truth, visible, threads=threads),
        lambda: gradient(truth, visible, threads=threads),
        lambda: found.log_likelihood(visible, threads=threads),
        lambda: found.forecast(visible, threads=threads),
        lambda: found.forecast_log_likelihood(visible, threads=threads),
        lambda: found.visible_states(gaps, threads=threads),
    ):
        with pytest.raises(InputError, match=f"threads={threads}: .*allowed: whole numbers from 1"):
            use()
