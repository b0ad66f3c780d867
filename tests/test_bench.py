from __future__ import annotations

import numpy as np
import pytest

from kising import draw_couplings, gradient, simulate
from kising.bench import peers
from kising.bench.measure import interleave
from kising.estimators.inference import EStep


@pytest.mark.parametrize("estimator", ["bp", "exact", "tap", "mean-field"])
def test_peers_do_the_same_maths(estimator: str) -> None:
    couplings = draw_couplings(10, 3, strength=0.5, seed=1)
    visible = simulate(couplings, 1500, seed=2).visible
    how = {"estimator": estimator, "tolerance": 1e-24}
    ours = gradient(couplings, visible, **how)
    theirs = peers.gradient(couplings, visible, EStep(**how))
    for name in "JKL":
        np.testing.assert_allclose(getattr(theirs, name), getattr(ours, name), atol=1e-9)


@pytest.mark.parametrize("estimator", ["bp", "exact", "tap", "mean-field"])
def test_peers_compute_the_likelihood_too(estimator: str) -> None:
    couplings = draw_couplings(6, 2, strength=0.5, seed=1)
    visible = simulate(couplings, 50, seed=2).visible
    estep = EStep(estimator=estimator, tolerance=1e-24)
    (block,) = peers._chunks(couplings, visible)
    log_z = peers.moments(couplings, block, estep)[3]
    value = np.sum(block.after * block.theta, axis=1) + log_z - np.logaddexp(block.b, -block.b).sum(axis=1)
    ours = gradient(couplings, visible, estimator=estimator, tolerance=1e-24).log_likelihood
    assert value.mean() == pytest.approx(ours, rel=1e-9)


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    calls: list[str] = []
    # The clock: not asked for the end of the first round, then 5 and 4, then 3 and 6.
    times = iter([0, 0, 0, 5, 0, 4, 0, 3, 0, 6])
    best = interleave(
        [lambda name=name: calls.append(name) for name in "ab"], rounds=2, clock=lambda: next(times)
    )
    assert "".join(calls) == "ababab"
    assert best == [3, 4]
