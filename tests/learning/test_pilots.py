"""Several starts: learning goes on from the likeliest."""

from __future__ import annotations

import numpy as np
import pytest

from kising import bond_scales, draw_couplings, fit, gradient, simulate
from kising.estimators.inference import EStep
from kising.learning import metric, pilots
from kising.learning.em import Learning, pose
from kising.learning.pilots import choose_start, pilot
from kising.learning.starts import from_signs, seeds_of
from kising.sweep.drive import cost

# The likelihood of this one has maxima that differ by a thousand nats.
TRUTH = draw_couplings(20, 4, strength=2.0, connectivity=0.3, seed=50)
SCALES = bond_scales(20, 4, strength=2.0, connectivity=0.3)
LENGTH = 4_000
VISIBLE = simulate(TRUTH, LENGTH, seed=60).visible


def nats(result) -> float:
    return gradient(result.couplings, VISIBLE, estimator="exact").log_likelihood * (LENGTH - 2)


@pytest.mark.parametrize("estimator", ["exact", "gibbs"])
def test_learning_goes_on_from_the_likeliest_pilot(estimator: str) -> None:
    learning = Learning(estep=EStep(estimator=estimator))
    problem = pose(VISIBLE, SCALES, None, aligned=False)
    found = [
        pilot(from_signs(TRUTH, SCALES, own), own, problem, learning, threads=1) for own in seeds_of(0, 3)
    ]
    assert found[0][1] < max(found, key=lambda one: one[1])[1]
    chosen = choose_start(lambda own: from_signs(TRUTH, SCALES, own), 0, 3, problem, learning, threads=1)
    for ours, best in zip(chosen, max(found, key=lambda one: one[1])[0], strict=True):
        np.testing.assert_array_equal(ours, best)


def test_several_starts_reach_a_higher_maximum_than_a_bad_one() -> None:
    one, three = (
        fit(VISIBLE, 4, estimator="exact", start="signs", truth=TRUTH, scales=SCALES, seed=0, starts=starts)
        for starts in (1, 3)
    )
    assert nats(three) > nats(one) + 100
    truth = gradient(TRUTH, VISIBLE, estimator="exact").log_likelihood * (LENGTH - 2)
    assert nats(three) > truth


def test_pilots_see_the_beginning_of_the_recording_alone() -> None:
    learning = Learning(estep=EStep(estimator="exact"), max_iterations=5)
    changed = VISIBLE.copy()
    changed[1_002:] *= -1
    chosen = []
    for visible in (VISIBLE, changed):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pilots, "SLICES", 1_000)
            problem = pose(visible, SCALES, None, aligned=False)
            chosen.append(
                choose_start(lambda own: from_signs(TRUTH, SCALES, own), 1, 2, problem, learning, threads=1)
            )
    for one, other in zip(*chosen, strict=True):
        np.testing.assert_array_equal(one, other)


def test_where_all_pilots_diverge_the_first_start_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pilots, "pilot", lambda start, *_, **__: (start, -np.inf))
    problem = pose(VISIBLE, SCALES, None, aligned=False)
    learning = Learning(estep=EStep(estimator="exact"))
    chosen = choose_start(lambda own: from_signs(TRUTH, SCALES, own), 7, 3, problem, learning, threads=1)
    np.testing.assert_array_equal(chosen.K, from_signs(TRUTH, SCALES, 7).K)


def test_a_run_that_diverges_is_never_the_likeliest() -> None:
    learning = Learning(estep=EStep(estimator="bp"), step="gradient", rate=1e6)
    problem = pose(VISIBLE, SCALES, None, aligned=False)
    assert pilot(TRUTH, 1, problem, learning, threads=1)[1] == -np.inf


def test_starts_are_apart_and_the_first_is_the_only_one() -> None:
    assert seeds_of(5, 1) == [5]
    assert len({str(own) for own in seeds_of((1, 2), 4)}) == 4


def test_couplings_to_start_from_are_one_start() -> None:
    with pytest.raises(ValueError, match="starts=2: must be at least 1, and 1 where start= gives couplings"):
        fit(VISIBLE, 4, start=TRUTH, starts=2, seed=1)


def test_the_cost_of_pilots_is_that_of_pilots() -> None:
    assert (cost.PILOT_SLICES, cost.PILOT_ITERATIONS) == (pilots.SLICES, pilots.ITERATIONS)
    assert cost.METRIC_NUMBERS == metric.MOST_NUMBERS
