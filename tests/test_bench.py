from __future__ import annotations

import numpy as np
import pytest

from kising import draw_couplings, gradient, simulate
from kising.bench import numpy_estep
from kising.bench.measure import interleave
from kising.bench.sampling import Swept, exponent, race
from kising.bench.strength import NETWORKS, STRENGTHS, by_strength
from kising.estimators.estep import EStep
from kising.options import EStep as EStepOptions
from kising.options import Learner


def precise(estimator: str, *, hidden: int) -> EStep:
    learner = Learner(estimator=estimator, correlations="closed", estep=EStepOptions(tolerance=1e-24))
    return EStep.of(learner, hidden)


@pytest.mark.parametrize("estimator", ["bp", "exact", "tap", "mean-field"])
def test_numpy_does_the_same_maths(estimator: str) -> None:
    couplings = draw_couplings(10, 3, strength=0.5, seed=1)
    visible = simulate(couplings, 1500, seed=2).visible
    ours = gradient(couplings, visible, estimator=estimator, correlations="closed", tolerance=1e-24)
    theirs = numpy_estep.gradient(couplings, visible, precise(estimator, hidden=3))
    for name in "JKL":
        np.testing.assert_allclose(getattr(theirs, name), getattr(ours, name), atol=1e-9)


@pytest.mark.parametrize("estimator", ["bp", "exact", "tap", "mean-field"])
def test_numpy_computes_the_likelihood_too(estimator: str) -> None:
    couplings = draw_couplings(6, 2, strength=0.5, seed=1)
    visible = simulate(couplings, 50, seed=2).visible
    estep = precise(estimator, hidden=2)
    (block,) = numpy_estep._chunks(couplings, visible)
    log_z = numpy_estep.moments(couplings, block, estep)[3]
    value = np.sum(block.after * block.theta, axis=1) + log_z - np.logaddexp(block.b, -block.b).sum(axis=1)
    ours = gradient(couplings, visible, estimator=estimator, tolerance=1e-24).log_likelihood
    assert value.mean() == pytest.approx(ours, rel=1e-9)


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    calls: list[str] = []
    # The clock is not read at the end of the first round; then rounds of 5 and 4, and of 3 and 6.
    times = iter([0, 0, 0, 5, 0, 4, 0, 3, 0, 6])
    best = interleave(
        [lambda name=name: calls.append(name) for name in "ab"], rounds=2, clock=lambda: next(times)
    )
    assert "".join(calls) == "ababab"
    assert best == [3, 4]


def test_the_race_gives_all_learners_the_same_recording() -> None:
    found = {one.estimator: one for one in race(visible=6, hidden=1, connectivity=1.0, length=2000)}
    assert set(found) == {"gibbs", "bp", "exact"}
    # One hidden spin is a tree: belief propagation is exact there.
    for name in ("rmse_J", "rmse_K", "rmse_L"):
        exact = getattr(found["exact"], name)
        assert getattr(found["bp"], name) == pytest.approx(exact, rel=1e-2)
        assert getattr(found["gibbs"], name) == pytest.approx(exact, rel=0.2)
    assert all(one.seconds > 0 for one in found.values())


def test_the_exponent_of_growth_is_that_of_a_power() -> None:
    swept = [Swept(visible=80, hidden=n, microseconds=3.0 * n**0.7) for n in (4, 8, 64)]
    assert exponent(swept) == pytest.approx(0.7)


def test_strengths_are_compared_with_the_weakest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kising.bench.strength.SLICES", 20)
    monkeypatch.setattr("kising.bench.strength.NETWORKS", {"bp": (8, 3), "exact": (8, 3)})
    found = by_strength(rounds=1)
    assert [(one.estimator, one.strongest) for one in found] == [(e, s) for e in NETWORKS for s in STRENGTHS]
    for estimator in NETWORKS:
        costs = [one for one in found if one.estimator == estimator]
        assert costs[0].ratio == 1.0
        for one in costs:
            assert one.ratio == pytest.approx(one.nanoseconds / costs[0].nanoseconds)
    # Sums over 8 spins and 8 states.
    assert found[-1].microseconds == pytest.approx(64e-3 * found[-1].nanoseconds)
