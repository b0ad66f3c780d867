from __future__ import annotations

import numpy as np
import pytest
from support.resuming import assert_continues

from kising import Couplings, bond_scales, draw_couplings, fit, gradient, simulate
from kising.errors import CheckpointError
from kising.estimators.inference import EStep
from kising.learning.checkpoint import load, save
from kising.learning.em import Learning, begin, pose
from kising.learning.scores import nominal_scales
from kising.learning.starts import from_signs


def problem(seed: int, *, visible: int = 8, hidden: int = 2, length: int = 4000, strength: float = 1.0):
    truth = draw_couplings(visible, hidden, strength=strength, seed=seed)
    scales = bond_scales(visible, hidden, strength=strength, connectivity=1.0)
    return truth, simulate(truth, length, seed=seed + 1).visible, scales


@pytest.mark.parametrize("step", ["scaled", "gradient"])
def test_converged_fit_is_a_maximum_of_the_likelihood(step: str) -> None:
    truth, visible, scales = problem(1)
    result = fit(
        visible, 2, estimator="exact", start="signs", truth=truth, scales=scales, seed=3, step=step,
        rate=1.0, momentum=0.9, max_iterations=2000,
    )  # fmt: skip
    assert result.outcome == "converged"
    assert result.converged == {"J": True, "K": True, "L": True}
    slopes = gradient(result.couplings, visible, estimator="exact")
    assert max(np.abs(x).max() for x in (slopes.J, slopes.K, slopes.L)) < 2e-4
    assert result.trace.log_likelihood.iloc[-1] > gradient(truth, visible, estimator="exact").log_likelihood


@pytest.mark.parametrize("more", [{"estimator": "exact"}, {"estimator": "bp", "l1": 1e-9}])
def test_with_a_prior_the_posterior_is_at_its_maximum(more) -> None:
    truth, visible, scales = problem(1)
    result = fit(
        visible, 2, start="signs", truth=truth, scales=scales, seed=3, prior=1.5, tolerance=1e-6,
        max_iterations=500, **more,
    )  # fmt: skip
    assert result.outcome == "converged"
    slopes = gradient(result.couplings, visible, estimator=more["estimator"], correlations="corrected")
    pulled = [
        slope - x / (1.5 * sd) ** 2 / (len(visible) - 2)
        for slope, x, sd in zip((slopes.J, slopes.K, slopes.L), result.couplings, scales, strict=True)
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
    scaled = fit(visible, 2, **how)
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


def test_trace_has_a_row_an_iteration_and_ends_with_the_result() -> None:
    truth, visible, scales = problem(1)
    result = fit(visible, 2, start="signs", truth=truth, scales=scales, seed=3)
    assert list(result.trace.iteration) == list(range(result.iterations))
    assert {x: result.trace[f"rmse_{x}"].iloc[-1] for x in "JKL"} == result.rmse
    slopes = gradient(result.couplings, visible, correlations="corrected")
    last = result.trace.iloc[-1]
    assert last.log_likelihood == slopes.log_likelihood
    assert last.bp_converged == slopes.converged
    assert (last.abs_m, last.abs_mu, last.abs_pair) == (slopes.abs_m, slopes.abs_mu, slopes.abs_pair)


def test_verdict_needs_small_steps_for_several_iterations_in_a_row() -> None:
    truth, visible, scales = problem(1)
    result = fit(visible, 2, estimator="exact", start="signs", truth=truth, scales=scales, seed=3, hold=4)
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
    """Without hidden influence on the visible spins L cannot be known, and does not stop J from settling."""
    truth, visible, scales = problem(1, length=1500)
    result = fit(
        visible, 2, start="signs", truth=truth, scales=scales, seed=3, estimator="exact", max_iterations=9
    )
    assert result.outcome == "stalled"
    assert result.converged["J"] in (True, False)
    held = (result.trace[["step_J", "step_K", "step_L"]].tail(3) < 1e-4).all()
    assert result.converged == {x: bool(held[f"step_{x}"]) for x in "JKL"}


def test_a_reckless_rate_diverges_with_flags_and_without_an_exception() -> None:
    truth, visible, scales = problem(1, length=300)
    result = fit(
        visible,
        2,
        start="signs",
        truth=truth,
        scales=scales,
        seed=3,
        step="gradient",
        rate=1e4,
        momentum=0.99,
    )
    assert result.outcome == "diverged"
    assert result.converged == {"J": False, "K": False, "L": False}
    assert all(np.isfinite(x).all() for x in result.couplings)


@pytest.mark.parametrize("estimator", ["exact", "bp", "tap", "mean-field"])
@pytest.mark.parametrize("length", [3, 10])
def test_hopelessly_short_data_end_with_a_verdict(estimator: str, length: int) -> None:
    truth, visible, scales = problem(1, visible=6, length=length)
    result = fit(
        visible, 2, estimator=estimator, start="signs", truth=truth, scales=scales, seed=3, max_iterations=60
    )
    assert result.outcome in ("converged", "stalled", "diverged")
    assert all(np.isfinite(x).all() for x in result.couplings)


@pytest.mark.parametrize("step", ["scaled", "gradient"])
@pytest.mark.parametrize("stop", [1, 6, 11])
def test_a_saved_state_continues_bit_for_bit(step: str, stop: int) -> None:
    truth, visible, scales = problem(2, length=1000)
    learning = Learning(
        estep=EStep(correlations="corrected"), step=step, momentum=0.5, max_iterations=15, tolerance=1e-12,
        patience=3,
    )  # fmt: skip
    posed = pose(visible, scales, truth, aligned=False)
    assert_continues(begin(from_signs(truth, scales, seed=1)), posed, learning, stop=stop)


def test_damaged_states_are_refused() -> None:
    truth, _, scales = problem(2, length=100)
    data = save(begin(from_signs(truth, scales, seed=1)))
    for broken in (b"", data[:50], data[:-30], b"x" * 100):
        with pytest.raises(CheckpointError, match="not a saved state"):
            load(broken)


def test_start_may_be_couplings_and_shapes_are_checked() -> None:
    truth, visible, _ = problem(2, length=200)
    result = fit(visible, 2, start=truth, seed=0, max_iterations=1)
    assert all(np.array_equal(x, y) for x, y in zip(result.couplings, truth, strict=True))
    with pytest.raises(ValueError, match=r"truth is a network of \(Nv, Nh\) = \(8, 2\)"):
        fit(visible, 3, truth=truth, seed=0)
    with pytest.raises(ValueError, match="must be one of signs, random, or couplings"):
        fit(visible, 2, start="guess", seed=0)


def test_scales_default_to_nominal_without_a_truth() -> None:
    assert nominal_scales(8, 2) == bond_scales(8, 2, strength=1.0, connectivity=1.0)
    assert Couplings._fields == ("J", "K", "L")
