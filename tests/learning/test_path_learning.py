"""Learning from sampled paths: with couplings among hidden spins, and with missing entries."""

from __future__ import annotations

import numpy as np
import pytest
from support.resuming import assert_continues

from kising import draw_couplings, fit, gradient, load_fit, simulate
from kising.errors import InputError
from kising.estimators.paths.sampler import sweep
from kising.estimators.slices import Slices
from kising.learning.errors.paths import path_standard_errors
from kising.learning.errors.sampled import sampled_standard_errors
from kising.learning.errors.standard import standard_errors
from kising.learning.scores import nominal_scales
from kising.learning.session import Session
from kising.learning.steps.sampling import phases
from kising.learning.steps.sampling.paths import PathStep
from kising.learning.steps.sampling.phases import LEAST_APPROACH
from kising.options import Learner
from kising.recordings import as_segments
from kising.seeds import Seed

NETWORK = draw_couplings(12, 2, bias=0.3, hidden_coupling=1.0, seed=1)
VISIBLE = simulate(NETWORK, 1500, seed=2).visible
WITHOUT_M = draw_couplings(12, 2, bias=0.3, seed=1)
# Of the statistical error: what the verdict lets pass of drift, 0.2, and of noise, 0.1, together.
LIMIT = 0.23
NO_M_VISIBLE = simulate(WITHOUT_M, 1500, seed=2).visible


def with_gaps(visible: np.ndarray, share: float, seed: Seed = 3) -> np.ndarray:
    return np.where(np.random.default_rng(seed).random(visible.shape) < share, np.nan, visible)


def session(visible: np.ndarray, learner: Learner, threads: int = 1) -> Session:
    slices = Slices.of(as_segments(visible).spins)
    return Session.of(slices, 2, learner, seed=5, scales=nominal_scales(12, 2), threads=threads)


@pytest.mark.parametrize(("share", "coupled"), [(0.0, True), (0.1, True), (0.1, False)])
@pytest.mark.parametrize("stop", [3, 70])
def test_a_stopped_fit_goes_on_with_the_same_bits(share, coupled, stop):
    learner = Learner(estimator="gibbs", hidden_couplings=coupled, max_iterations=100)
    found = session(with_gaps(VISIBLE[:300], share), learner)
    assert isinstance(found.step, PathStep)
    assert_continues(found, stop=stop)


def test_threads_change_no_bit(monkeypatch):
    monkeypatch.setattr("kising.estimators.paths.sampler.PORTION", 100)
    learner = Learner(estimator="gibbs", hidden_couplings=True, max_iterations=10)
    data = with_gaps(np.tile(VISIBLE, (5, 1)), 0.05)
    one, two = (session(data, learner, threads=n).run() for n in (1, 3))
    assert one == two


@pytest.fixture
def numbers(monkeypatch) -> list[int]:
    """The numbers of all sweeps, in their order; a short recording is swept as a long one is."""
    found = []

    def counted(*args, iteration, **how):
        found.append(iteration)
        sweep(*args, iteration=iteration, **how)

    monkeypatch.setattr("kising.learning.steps.sampling.paths.sweep", counted)
    monkeypatch.setattr("kising.learning.steps.sampling.paths.STEPS_PER_ITERATION", 1)
    monkeypatch.setattr(phases, "NEAR", np.inf)
    return found


def test_averages_take_more_sweeps_and_no_random_number_twice(numbers):
    learner = Learner(estimator="gibbs", hidden_couplings=True, max_iterations=LEAST_APPROACH + 5)
    found = session(VISIBLE[:300], learner)
    averages, sweeps = [False], []
    for state in found.states(found.begin()):
        sweeps.append(len(numbers) - sum(sweeps))
        averages.append(state.sampler.averages)
    assert averages[LEAST_APPROACH - 1 :][:2] == [False, True]
    assert sweeps == [4 if averaged else 1 for averaged in averages[:-1]]
    assert len(set(numbers)) == len(numbers)


def test_no_random_number_twice_on_the_way_back(numbers, monkeypatch):
    average = 80
    monkeypatch.setattr(phases, "LEAST_AVERAGE", average)
    monkeypatch.setattr(phases, "MOST_BATCHES", average // phases.FIRST_BATCH)
    monkeypatch.setattr(phases, "_average_drifts", lambda *_: True)
    limit = 2 * (LEAST_APPROACH + average) + 10
    found = session(VISIBLE[:100], Learner(estimator="gibbs", hidden_couplings=True, max_iterations=limit))
    usual = []
    state, went_back = found.begin(), []
    while state.outcome == "running":
        repeats, i = (4 if state.sampler.averages else 1), state.iteration
        usual += [repeats * i + k for k in range(repeats)]
        went_back += repeats * [i >= LEAST_APPROACH + average]
        state = found.advance(state)
    assert state.iteration == limit
    assert len(set(numbers)) == len(numbers) == len(usual)
    # Straight and tilted paths, and two ways to cut time, take turns as ever.
    assert [n % 4 for n in numbers] == [n % 4 for n in usual]
    first = went_back.index(True)
    assert numbers[:first] == usual[:first]


def test_samples_lead_where_exact_averages_lead():
    how = {"hidden_couplings": True, "seed": 4, "truth": NETWORK, "threads": 1}
    exact, sampled = (fit(VISIBLE, 2, estimator=name, errors=True, **how) for name in ("exact", "gibbs"))
    assert sampled.estimator == "gibbs"
    assert sampled.monte_carlo_error is not None
    for name in exact.converged:
        off = getattr(sampled.couplings, name) - getattr(exact.couplings, name)
        error = getattr(exact.standard_error, name)
        assert np.sqrt(np.mean((off / error) ** 2)) < LIMIT, name
    assert abs(sampled.training_log_likelihood - exact.training_log_likelihood) < 0.001


def test_spins_that_seldom_have_a_choice_do_not_make_a_fit_diverge():
    """Some visible spins are nearly always the same; their rows of J must not start far out."""
    truth = draw_couplings(8, 2, strength=1.5, bias=0.3, hidden_coupling=1.0, seed=(10, 110))
    data = with_gaps(simulate(truth, 4000, seed=(11, 110)).visible, 0.1, seed=(13, 110))
    found = fit(data, 2, estimator="gibbs", hidden_couplings=True, seed=(12, 110, 0), truth=truth, threads=1)
    assert found.outcome == "converged"
    assert max(found.rmse[name] for name in "JKLM") < 0.5


@pytest.mark.parametrize("share", [0.02, 0.1])
def test_missing_entries_are_sampled_or_summed_over(share):
    data = with_gaps(NO_M_VISIBLE, share)
    how = {"seed": 4, "truth": WITHOUT_M, "threads": 1}
    exact = fit(data, 2, estimator="exact", errors=True, **how)
    # The most likely couplings are where steps of samples lead nowhere.
    sampled = fit(data, 2, start=exact.couplings, **how)
    assert sampled.estimator == "gibbs"
    for name in exact.converged:
        off = getattr(sampled.couplings, name) - getattr(exact.couplings, name)
        error = getattr(exact.standard_error, name)
        assert np.sqrt(np.mean((off / error) ** 2)) < LIMIT, name


@pytest.mark.filterwarnings("ignore::kising.errors.RecordingWarning")
def test_sampling_beats_dropping():
    data = with_gaps(NO_M_VISIBLE, 0.1)
    how = {"seed": 4, "truth": WITHOUT_M, "threads": 1}
    dropped = fit(data, 2, missing="drop", **how)
    kept, whole = fit(data, 2, **how), fit(NO_M_VISIBLE, 2, **how)
    assert kept.rmse["J"] < 0.7 * dropped.rmse["J"]
    assert kept.rmse["J"] < 1.3 * whole.rmse["J"]


def test_a_network_without_hidden_spins_learns_from_gaps():
    truth = draw_couplings(6, 0, bias=0.3, seed=1)
    visible = simulate(truth, 3000, seed=2).visible
    data = with_gaps(visible, 0.1)
    found, whole = (fit(x, 0, seed=1, truth=truth, threads=1) for x in (data, visible))
    assert found.rmse["J"] < 1.3 * whole.rmse["J"]


def test_what_a_fit_says_about_recordings_with_gaps(tmp_path):
    found = fit(NO_M_VISIBLE, 2, seed=4, threads=1)
    data = with_gaps(NO_M_VISIBLE[:200], 0.1)
    missing = np.isnan(data)
    states = found.visible_states(data)
    assert np.array_equal(states[~missing], data[~missing])
    assert np.all(np.abs(states[missing]) < 1)
    right = np.mean(np.sign(states[missing]) == NO_M_VISIBLE[:200][missing])
    assert right > 0.6
    assert np.array_equal(found.visible_states(NO_M_VISIBLE[:200]), NO_M_VISIBLE[:200])
    assert found.forecast(data).shape == (198, 12)
    assert found.hidden_states(data).shape == (198, 2)
    whole = found.log_likelihood(NO_M_VISIBLE[:200])
    assert whole < found.log_likelihood(data) < 0.8 * whole
    # Little is lost in what is known of a step by an entry missing far away.
    far = NO_M_VISIBLE[:200].astype(float)
    far[10, 2] = np.nan
    np.testing.assert_allclose(found.forecast(far)[100:], found.forecast(NO_M_VISIBLE[:200])[100:], atol=1e-9)
    trials = [data[:80], data[80:]]
    assert [x.shape for x in found.visible_states(trials)] == [(80, 12), (120, 12)]
    assert len(found.forecast(trials)) == 2
    found.save(tmp_path / "fit.npz")
    assert load_fit(tmp_path / "fit.npz").log_likelihood(data) == found.log_likelihood(data)


def test_many_missing_entries_are_sampled_when_a_fit_is_asked():
    found = fit(NO_M_VISIBLE, 2, seed=4, threads=1)
    wide = with_gaps(NO_M_VISIBLE[:300], 0.6)
    few = found.log_likelihood(wide)
    assert -12 * 0.4 * np.log(2) < few < 0
    assert found.forecast_log_likelihood(wide) <= few + 0.05


@pytest.mark.parametrize(("option", "value"), [("step", "gradient"), ("l1", 1.0), ("decimate", 0.5)])
def test_what_does_not_go_with_gaps(option, value):
    with pytest.raises(InputError, match=f"{option}=.* entries are missing .* missing='drop'"):
        fit(with_gaps(NO_M_VISIBLE, 0.1), 2, seed=1, **{option: value})


def test_errors_from_samples_are_those_of_other_ways():
    slices = Slices.of([simulate(NETWORK, 6000, seed=2).visible])
    for one, other in zip(
        path_standard_errors(NETWORK, slices, seed=1),
        sampled_standard_errors(NETWORK, slices, seed=1),
        strict=True,
    ):
        # One is what a recording tells on average, the other what this one tells.
        assert not one.size or abs(np.mean(other / one) - 1) < 0.12
    lean = WITHOUT_M.lean
    slices = Slices.of([simulate(WITHOUT_M, 6000, seed=2).visible])
    for one, other in zip(
        standard_errors(lean, slices, seed=1), sampled_standard_errors(lean, slices, seed=1), strict=True
    ):
        np.testing.assert_allclose(other, one, rtol=0.15)


@pytest.mark.parametrize("coupled", [True, False])
def test_errors_with_gaps_are_those_of_the_curvature(coupled):
    """Of the likelihood's second derivative, by differences of the exact gradient."""
    truth = draw_couplings(4, 1, strength=1.5, bias=0.3, hidden_coupling=float(coupled), seed=5)
    truth = truth if coupled else truth.lean
    names = [name for name in truth._fields if getattr(truth, name).size]
    data, step = with_gaps(simulate(truth, 3000, seed=2).visible, 0.15), 1e-4
    columns = []
    for name in names:
        for index in np.ndindex(getattr(truth, name).shape):
            sides = []
            for sign in (1, -1):
                block = getattr(truth, name).copy()
                block[index] += sign * step
                at = gradient(truth._replace(**{name: block}), data, estimator="exact")
                sides.append(np.concatenate([getattr(at, x).ravel() for x in names]))
            columns.append((sides[0] - sides[1]) / (2 * step))
    wanted = np.sqrt(np.diag(np.linalg.inv(-2999 * np.array(columns))))
    errors = sampled_standard_errors(truth, Slices.of(as_segments(data).spins), seed=1)
    ratio = np.concatenate([getattr(errors, x).ravel() for x in names]) / wanted
    assert np.mean(ratio) == pytest.approx(1.0, abs=0.03)
    assert np.std(ratio) < 0.06


def test_missing_entries_make_errors_larger():
    visible = simulate(WITHOUT_M, 4000, seed=2).visible
    lean = WITHOUT_M.lean
    whole, holes = (
        standard_errors(lean, Slices.of(as_segments(x).spins), seed=1)
        for x in (visible, with_gaps(visible, 0.2))
    )
    ratio = np.mean(holes.J / whole.J)
    assert 1.08 < ratio < 1.5
