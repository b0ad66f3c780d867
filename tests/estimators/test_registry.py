"""What a registry entry states holds of its estimator. A new entry is judged here without being named."""

from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import assert_is_gradient, enumerate_slices, small_network

from kising import draw_couplings, gradient, infer, simulate
from kising.arguments import INFER
from kising.errors import InputError
from kising.estimators.moments import SampledMoments
from kising.estimators.registry import (
    AUTO,
    AUTO_LARGEST_EXACT,
    ESTIMATORS,
    NAMES,
    Estimator,
    candidates,
    entry,
    iteration_limits,
    resolve,
    why_sampled,
)
from kising.learning.effort import iteration_limit
from kising.option_types import Gate
from kising.options import LEAVES, Learner, unused_keys

each = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.name)
SAMPLES = {"sweeps": 400, "seed": 3}


def test_names_are_unique_and_auto_is_none_of_them() -> None:
    assert len(set(NAMES)) == len(NAMES) == len(ESTIMATORS) + 1
    assert NAMES[0] == AUTO
    assert [entry(name) for name in NAMES[1:]] == list(ESTIMATORS)


def test_auto_is_exact_for_few_hidden_spins_and_samples_for_more() -> None:
    chosen = [resolve(AUTO, hidden) for hidden in range(1, 100)]
    assert all(x.unbiased for x in chosen)
    assert [x.samples for x in chosen] == [hidden > AUTO_LARGEST_EXACT for hidden in range(1, 100)]
    assert all(x.largest_hidden is None or hidden <= x.largest_hidden for hidden, x in enumerate(chosen, 1))
    assert set(candidates(AUTO)) == set(chosen)


@each
def test_the_code_is_where_the_entry_says(estimator: Estimator) -> None:
    assert callable(estimator.estimate)
    assert resolve(estimator.name, 3) is estimator
    assert candidates(estimator.name) == (estimator,)
    assert set(estimator.reads) <= set(LEAVES)


@each
def test_more_hidden_spins_than_it_takes_are_refused(estimator: Estimator) -> None:
    largest = estimator.largest_hidden
    if largest is None:
        # Any number: as many as would take the age of the universe to enumerate.
        couplings = draw_couplings(3, 70, strength=0.3, seed=1)
        assert infer(couplings, np.ones((4, 3)), estimator=estimator.name, **SAMPLES).mu.shape == (2, 70)
        return
    INFER.learner({"estimator": estimator.name}, {"model.hidden": largest}, function="infer")
    with pytest.raises(InputError, match=f"allowed: up to {largest}"):
        INFER.learner({"estimator": estimator.name}, {"model.hidden": largest + 1}, function="infer")


@each
def test_unbiased_averages_are_the_exact_ones_and_others_come_close_at_weak_coupling(
    estimator: Estimator,
) -> None:
    couplings, recording = small_network(4, visible=5, hidden=3, strength=0.02, length=40)
    found = infer(couplings, recording, estimator=estimator.name, **SAMPLES)
    truth = enumerate_slices(couplings, recording)
    for name in ("m", "mu", "pair"):
        difference = getattr(found, name) - getattr(truth, name)
        if estimator.samples:
            difference = difference / np.maximum(getattr(found.errors, name), 1e-12)
            assert np.sqrt(np.mean(difference**2)) < 1.5
        else:
            assert np.abs(difference).max() < (1e-12 if estimator.unbiased else 0.02)


@each
def test_it_samples_if_the_entry_says_so(estimator: Estimator) -> None:
    couplings, recording = small_network(4)
    asked = {"estimator": estimator.name, "sweeps": 20}
    one, same, other = (infer(couplings, recording, seed=seed, **asked) for seed in (1, 1, 2))
    assert isinstance(one, SampledMoments) == estimator.samples
    assert one == same
    assert (one != other) == estimator.samples
    assert (why_sampled(estimator.name, 3) == "") == estimator.samples
    if estimator.samples:
        with pytest.raises(InputError, match="seed"):
            infer(couplings, recording, **asked)


@each
def test_it_iterates_if_the_entry_says_so(estimator: Estimator) -> None:
    couplings, recording = small_network(4)
    asked = {"estimator": estimator.name, **SAMPLES}
    rough = infer(couplings, recording, max_iterations=1, tolerance=1e-30, **asked)
    fine = infer(couplings, recording, max_iterations=500, **asked)
    assert rough.converged.all() != estimator.iterates
    assert (rough != fine) == estimator.iterates
    assert (fine.iterations.max() > 1) == estimator.iterates


@each
def test_options_that_the_entry_does_not_read_change_nothing(estimator: Estimator) -> None:
    couplings, recording = small_network(4, strength=2.0)
    unused = unused_keys(Gate("infer", estimator.name, "scaled"))
    other = {
        "correlations": "pair",
        "precision": "float32",
        "tolerance": 1e-3,
        "damping": 0.3,
        "max_iterations": 2,
    }
    base = infer(couplings, recording, estimator=estimator.name, **SAMPLES)
    for name, value in other.items():
        changed = infer(couplings, recording, estimator=estimator.name, **SAMPLES, **{name: value})
        assert (changed == base) == (INFER.leaves[name].key in unused), name


@each
def test_where_it_has_a_smooth_likelihood_the_gradient_is_its_own(estimator: Estimator) -> None:
    """That of bp needs the pair belief; linear response is more accurate, and the gradient of nothing."""
    if estimator.samples:
        pytest.skip("its likelihood is noisy")
    how = {"estimator": estimator.name, "correlations": "pair", "tolerance": 1e-24, "max_iterations": 3000}
    couplings, recording = small_network(4, visible=3, hidden=2, strength=0.5)
    assert_is_gradient(gradient(couplings, recording, **how), couplings, recording, how)


@each
def test_planned_cost_grows_with_the_network(estimator: Estimator) -> None:
    def cost(nv: int, nh: int) -> float:
        return estimator.operations(nv, nh, Learner(estimator=estimator.name))

    assert 0 < cost(10, 2) < cost(20, 2) < cost(20, 4)


@each
def test_its_likelihood_is_finite_and_right_for_independent_spins(estimator: Estimator) -> None:
    couplings = draw_couplings(4, 2, strength=0.0, seed=1)
    recording = simulate(couplings, 30, seed=2).visible
    found = infer(couplings, recording, estimator=estimator.name, **SAMPLES)
    np.testing.assert_allclose(found.log_likelihood, -4 * np.log(2.0), atol=1e-9)


def test_sampling_may_take_more_iterations_the_more_spins_are_hidden() -> None:
    """Their roles take long to find; the other estimators arrive early or not at all."""
    for estimator in ESTIMATORS:
        limits = [estimator.iteration_limit(hidden) for hidden in (1, 20, 50, 200)]
        assert limits[0] == estimator.most_iterations
        assert (limits[-1] > limits[0]) == estimator.samples
        assert str(estimator.most_iterations) in iteration_limits()
    gibbs = entry("gibbs")
    assert gibbs.iteration_limit(200) == 200 * gibbs.most_per_hidden
    assert (
        f"{gibbs.most_iterations} with gibbs, or {gibbs.most_per_hidden} per hidden spin"
        in iteration_limits()
    )
    assert iteration_limit(Learner(), 200) == gibbs.iteration_limit(200)
    assert iteration_limit(Learner(estimator="bp"), 200) == 300
    assert iteration_limit(Learner(max_iterations=7), 200) == 7
