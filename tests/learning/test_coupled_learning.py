"""Learning couplings M among hidden spins, and what a fit that has them can do."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from support.brute_force import enumerate_paths
from support.resuming import assert_continues

from kising import bond_scales, draw_couplings, fit, gradient, infer, load_fit, simulate
from kising.blocks import BLOCKS
from kising.errors import InputError
from kising.estimators.slices import Slices
from kising.learning.checkpoint import load, save
from kising.learning.fit import Fit
from kising.learning.layout import slopes
from kising.learning.session import Session
from kising.options import Learner

LEARNED = ("J", "K", "L", "h", "b", "M")
SCALES = bond_scales(8, 2, strength=1.0, connectivity=1.0, bias=0.3, hidden_coupling=1.5)
TRUTH = draw_couplings(8, 2, bias=0.3, hidden_coupling=1.5, seed=4)


def recorded(length: int, seed: int = 5) -> np.ndarray:
    return simulate(TRUTH, length, seed=seed).visible


@pytest.fixture(scope="module")
def found() -> Fit:
    return fit(recorded(4000), 2, seed=1, hidden_couplings=True, truth=TRUTH, scales=SCALES, errors=True)


def test_couplings_among_hidden_spins_come_back(found: Fit) -> None:
    assert found.outcome == "converged"
    assert (found.estimator, set(found.rmse), set(found.converged)) == ("exact", set(LEARNED), set(LEARNED))
    assert max(found.rmse.values()) < 0.3
    without = fit(recorded(4000), 2, seed=1, truth=TRUTH, scales=SCALES)
    assert "M" not in without.rmse
    assert without.couplings.M.shape == (2, 0)
    assert found.rmse["J"] < without.rmse["J"]
    fresh = recorded(4000, seed=6)
    assert found.log_likelihood(fresh) > without.log_likelihood(fresh)


def test_a_converged_fit_is_a_maximum_in_every_block() -> None:
    visible = [recorded(600), recorded(5, seed=7), recorded(900, seed=8)]
    done = fit(visible, 2, seed=3, hidden_couplings=True, tolerance=1e-8, prior="none")
    assert done.outcome == "converged"
    here = slopes(gradient(done.couplings, visible, estimator="exact"))
    assert all(np.abs(getattr(here, name)).max() < 1e-6 for name in LEARNED)


def test_errors_are_those_of_the_curvature(found: Fit) -> None:
    """Of the likelihood's second derivative by differences; expected and observed information differ a little."""
    visible, step = recorded(4000), 1e-4
    columns = []
    for name in LEARNED:
        for index in np.ndindex(getattr(found.couplings, name).shape):
            sides = []
            for sign in (1, -1):
                block = getattr(found.couplings, name).copy()
                block[index] += sign * step
                at = gradient(found.couplings._replace(**{name: block}), visible, estimator="exact")
                sides.append(np.concatenate([getattr(at, x).ravel() for x in LEARNED]))
            columns.append((sides[0] - sides[1]) / (2 * step))
    wanted = np.sqrt(np.diag(np.linalg.inv(-3999 * np.array(columns))))
    errors = np.concatenate([getattr(found.standard_error, x).ravel() for x in LEARNED])
    assert np.mean(errors / wanted) == pytest.approx(1.0, abs=0.03)
    assert np.std(errors / wanted) < 0.06
    again = found.with_errors(visible)
    assert again.standard_error == found.standard_error


def test_what_the_recording_does_not_determine_has_an_infinite_error() -> None:
    truth = TRUTH._replace(K=TRUTH.K * [1.0, 0.0], M=np.zeros((2, 2)))
    visible = simulate(truth, 3000, seed=1).visible
    # A hidden spin that acts on nothing: whatever acts on it is unknown.
    how = {"hidden_couplings": True, "errors": True, "max_iterations": 1, "prior": "none"}
    done = fit(visible, 2, seed=1, start=truth, **how)
    assert np.isinf(done.standard_error.L[1]).all()
    assert np.isinf(done.standard_error.M[1]).all()
    assert np.isfinite(done.standard_error.J).all()


def test_scores_forecasts_and_states_are_those_of_the_whole_past(found: Fit) -> None:
    visible = recorded(7, seed=9)
    c = found.couplings
    rows = np.diff([enumerate_paths(c, visible[:n]).log_likelihood for n in range(2, 8)])
    assert found.log_likelihood(visible) == pytest.approx(np.mean(rows), abs=1e-12)
    np.testing.assert_allclose(found.hidden_states(visible), enumerate_paths(c, visible).mu[1:], atol=1e-12)
    forecast = found.forecast(visible)
    assert forecast.shape == (5, 8)
    # The marginal of one spin, from the joint probability of all: the others have 2^7 outcomes.
    k, i, total = 3, 2, 0.0
    past = enumerate_paths(c, visible[: k + 2]).log_likelihood
    for others in product([-1.0, 1.0], repeat=7):
        s = np.insert(others, i, 1.0)
        total += np.exp(enumerate_paths(c, np.vstack([visible[: k + 2], s])).log_likelihood - past)
    assert forecast[k, i] == pytest.approx(total, abs=1e-10)
    both = found.forecast([visible, visible[:4]])
    # On some CPUs the last bit of a product of matrices depends on their shape.
    np.testing.assert_allclose(both[0], forecast, rtol=1e-14)
    np.testing.assert_allclose(both[1], forecast[:2], rtol=1e-14)


def test_the_training_likelihood_is_that_of_its_slices(found: Fit) -> None:
    rows = infer(found.couplings, recorded(4000), estimator="exact").log_likelihood
    assert found.log_likelihood() == pytest.approx(rows.mean(), abs=1e-12)


def test_edges_summary_and_file_have_the_block(found: Fit, tmp_path) -> None:
    edges = found.edges()
    own = edges[edges["block"] == "M"]
    np.testing.assert_array_equal(own["value"], found.couplings.M.ravel())
    assert own["target"].tolist() == ["hidden 0", "hidden 0", "hidden 1", "hidden 1"]
    assert own["source"].tolist() == ["hidden 0", "hidden 1"] * 2
    assert np.isfinite(own["q"]).all()
    assert "M  hidden <- hidden" in found.summary()
    assert "(exact)" in found.summary()
    found.save(tmp_path / "fit.npz")
    read = load_fit(tmp_path / "fit.npz")
    assert read == found
    assert read.learner.hidden_couplings
    assert read.simulate(50, seed=1) == simulate(found.couplings, 50, seed=1)


def session(**options) -> Session:
    learner = Learner(
        **{"estimator": "exact", "hidden_couplings": True, "max_iterations": 40, "tolerance": 1e-12} | options
    )
    visible = recorded(700)
    slices = Slices.of([visible[:400], visible[400:]])
    return Session.of(slices, 2, learner, seed=1, scales=SCALES, truth=TRUTH)


@pytest.mark.parametrize(
    ("options", "stop"),
    [
        ({}, 20),
        ({"bias": False}, 5),
        ({"start": "signs"}, 9),
        ({"starts": 2}, 3),
        ({"step": "gradient"}, 7),
        ({"l1": 1.0}, 9),
        ({"decimate": "known"}, 25),
        ({"prior": 2.0}, 9),
    ],
)
def test_learning_continues_bit_for_bit(options: dict, stop: int) -> None:
    learning = session(**options)
    assert_continues(learning, stop=stop)
    begun = learning.begin()
    assert begun.couplings.M.shape == (2, 2)
    # A state with M is none of a session without, nor the other way round.
    other = session(**options, hidden_couplings=False)
    assert other.resume(save(begun)) is None
    assert learning.resume(save(other.begin())) is None
    assert learning.resume(save(begun)) == load(save(begun)) == begun


def test_threads_change_no_bit() -> None:
    visible = [recorded(n, seed=n) for n in (4200, 300, 4500)]
    how = {"seed": 1, "hidden_couplings": True, "max_iterations": 4}
    one, two = (fit(visible, 2, threads=threads, **how) for threads in (1, 2))
    assert one.couplings == two.couplings
    assert one.training_log_likelihood == two.training_log_likelihood


def test_penalty_and_decimation_reach_the_couplings_among_hidden_spins() -> None:
    forced = fit(recorded(1500), 2, seed=1, hidden_couplings=True, decimate=0.5, start="signs", truth=TRUTH)
    assert np.count_nonzero(forced.couplings.M) == 2
    known = fit(
        recorded(1500),
        2,
        seed=1,
        hidden_couplings=True,
        decimate="known",
        truth=TRUTH._replace(M=np.empty((2, 0))),
    )
    assert not known.couplings.M.any()
    penalised = fit(recorded(1500), 2, seed=1, hidden_couplings=True, l1=100.0, max_iterations=60)
    assert not penalised.couplings.M.any()
    assert penalised.couplings.h.any()


def test_starts_draw_the_new_block_last() -> None:
    with_M, without = (session(hidden_couplings=flag).start for flag in (True, False))
    assert with_M.only(("h", "b")) == without
    assert np.abs(with_M.M).max() > 0
    signs = session(start="signs").start
    np.testing.assert_array_equal(np.sign(signs.M), np.sign(TRUTH.M))


def test_a_truth_without_the_block_is_one_of_zeros() -> None:
    plain = TRUTH._replace(M=np.empty((2, 0)))
    visible = simulate(plain, 4000, seed=3).visible
    how = {"seed": 1, "truth": plain, "scales": SCALES}
    needless, right = (fit(visible, 2, hidden_couplings=flag, **how) for flag in (True, False))
    assert needless.rmse["M"] < 0.4
    assert needless.rmse["J"] == pytest.approx(right.rmse["J"], rel=0.1)


def test_no_hidden_spins_have_no_couplings() -> None:
    asked, plain = (fit(recorded(500), 0, seed=1, hidden_couplings=flag) for flag in (True, False))
    assert asked.couplings == plain.couplings
    assert set(asked.converged) == {"J", "h"}


@pytest.mark.parametrize("estimator", ["bp", "tap", "mean-field"])
def test_estimators_that_do_not_know_the_block_say_so(estimator: str) -> None:
    message = (
        f"hidden_couplings: estimator {estimator} cannot treat couplings M among hidden spins; use exact "
        r"\(up to 8 hidden spins\).*, or leave it out"
    )
    with pytest.raises(InputError, match=message):
        fit(recorded(100), 2, seed=1, hidden_couplings=True, estimator=estimator)
    # They learn from such data without it.
    assert fit(recorded(300), 2, seed=1, estimator=estimator, max_iterations=2).couplings.M.size == 0


def test_inputs_go_with_it() -> None:
    rng = np.random.default_rng(1)
    truth = TRUTH._replace(F=0.4 * rng.standard_normal((8, 1)), G=0.4 * rng.standard_normal((2, 1)))
    u = rng.standard_normal((4000, 1))
    visible = simulate(truth, 4000, covariates=u, seed=2).visible
    smaller = truth._replace(F=truth.F / 100, G=truth.G / 100)
    how = {"covariates": 100 * u, "hidden_couplings": True, "errors": True, "truth": smaller}
    done = fit(visible, 2, seed=1, **how)
    assert set(done.rmse) == set(BLOCKS)
    for name in BLOCKS:
        error = getattr(done.standard_error, name)
        assert error.shape == getattr(done.couplings, name).shape
        assert np.isfinite(error).all()
    assert max(done.rmse[name] for name in "FG") < 0.3


def test_a_start_without_M_learns_it_where_it_is_asked_for() -> None:
    visible = recorded(400)
    short = fit(visible, 2, seed=1, max_iterations=3)
    assert not short.couplings.M.size
    longer = fit(visible, 2, seed=1, max_iterations=3, hidden_couplings=True, start=short.couplings)
    assert "M" in longer.converged
    assert longer.couplings.M.any()
