"""Held-out scores where entries are missing, of networks and of their baselines, against direct sums."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from support.path_sums import sum_paths

from kising import Couplings
from kising.estimators.paths.network import network_of
from kising.estimators.paths.timeline import Timeline
from kising.estimators.slices import Slices
from kising.learning.baselines import baseline_learner, memoryless
from kising.learning.fitted.forecasts import forecast_log_likelihood, forecasts
from kising.learning.fitted.heldout import log_likelihood
from kising.learning.scores import nominal_scales
from kising.learning.session import Session
from kising.options import Learner

NV, LENGTHS = 3, (6, 5)
MODELS = {"hidden": (2, False), "coupled": (2, True), "no hidden": (0, False)}


def some_couplings(hidden: int, *, coupled: bool) -> Couplings:
    rng = np.random.default_rng(3)
    shapes = {"J": (NV, NV), "K": (NV, hidden), "L": (hidden, NV), "h": (NV,), "b": (hidden,)}
    shapes |= {"F": (NV, 1), "G": (hidden, 1), "M": (hidden, hidden if coupled else 0)}
    return Couplings(**{name: 0.7 * rng.standard_normal(shape) for name, shape in shapes.items()})


def some_slices(lengths: tuple[int, ...] = LENGTHS, share: float = 0.25) -> Slices:
    rng = np.random.default_rng(8)
    spins = [rng.choice(np.array([-1, 1], np.int8), (n, NV)) for n in lengths]
    gaps = [np.where(rng.random(x.shape) < share, 0, x).astype(np.int8) for x in spins]
    assert sum(np.count_nonzero(x == 0) for x in gaps) > 0
    return Slices.of(gaps, [rng.standard_normal((n, 1)) for n in lengths])


class Direct:
    """Scores by their definition: ratios of sums over everything that is unknown."""

    def __init__(self, couplings: Couplings, slices: Slices) -> None:
        self.network, self.timeline = network_of(couplings), Timeline.of(slices)

    def log_p(self, start: int, stop: int, only: int | None = None, value: int = 0) -> float:
        """log P of the known spins of steps start+1..stop-1 given those of the first; with `only`, of the last step
        just one spin is known, and has a value given.
        """
        spins, missing = self.timeline.spins[start:stop].copy(), self.timeline.missing[start:stop].copy()
        if only is not None:
            missing[-1] = True
            missing[-1, only], spins[-1, only] = False, value
        bounds = np.array([0, stop - start])
        return sum_paths(
            self.network, Timeline(spins, self.timeline.inputs[start:stop], bounds, missing)
        ).log_likelihood

    def scores(self) -> tuple[float, float]:
        """Nats per slice of all known spins jointly, and of each by itself."""
        joint, single, n = 0.0, 0.0, 0
        for start, stop in pairwise(self.timeline.bounds.tolist()):
            joint += self.log_p(start, stop) - self.log_p(start, start + 2)
            n += stop - start - 2
            for t in range(start + 2, stop):
                for i in np.flatnonzero(~self.timeline.missing[t]):
                    s = int(self.timeline.spins[t, i])
                    single += self.log_p(start, t + 1, i, s) - self.log_p(start, t)
        return joint / n, single / n


def found(couplings: Couplings, slices: Slices) -> tuple[float, float]:
    joint = log_likelihood(couplings, slices, Learner(), "gibbs", seed=1)
    single = forecast_log_likelihood(forecasts(couplings, slices, seed=1), slices)
    return joint, float(np.mean(single))


@pytest.mark.parametrize("model", MODELS)
def test_scores_are_those_of_direct_sums(model: str) -> None:
    hidden, coupled = MODELS[model]
    couplings, slices = some_couplings(hidden, coupled=coupled), some_slices()
    np.testing.assert_allclose(found(couplings, slices), Direct(couplings, slices).scores(), atol=1e-10)


@pytest.mark.parametrize("hidden", [2, 0])
def test_without_memory_scores_are_those_of_a_network_with_j_and_l_zero(hidden: int) -> None:
    couplings, slices = some_couplings(hidden, coupled=False), some_slices()
    cut = couplings._replace(J=np.zeros_like(couplings.J), L=np.zeros_like(couplings.L))
    np.testing.assert_allclose(found(couplings, memoryless(slices)), Direct(cut, slices).scores(), atol=1e-10)
    assert memoryless(slices).first(3).memoryless


def test_sampled_scores_are_those_of_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    couplings, slices = some_couplings(2, coupled=True), some_slices((300, 200))
    for data in (slices, memoryless(slices)):
        summed = found(couplings, data)
        with monkeypatch.context() as patch:
            for place in ("heldout", "forecasts"):
                patch.setattr(f"kising.learning.fitted.{place}.can_enumerate", lambda *_: False)
            sampled = found(couplings, data)
        assert sampled != summed
        np.testing.assert_allclose(sampled, summed, atol=0.01)


@pytest.mark.parametrize("estimator", ["exact", "gibbs"])
def test_the_control_is_learned_from_known_entries(estimator: str) -> None:
    """Learning ends where the likelihood of the known entries has no slope in K, h and b."""
    rng = np.random.default_rng(5)
    classes = rng.random((4000, 1)) < 0.5
    spins = np.where(rng.random((4000, NV)) < np.where(classes, 0.85, [0.1, 0.3, 0.4]), 1, -1)
    # What is missing depends on the step, so that to take a gap for a state would show.
    spins[rng.random(spins.shape) < np.where(np.arange(4000)[:, None] % 2, 0.3, 0.05)] = 0
    slices = memoryless(Slices.of([spins.astype(np.int8)]))
    assert slices.has_gaps
    learner = baseline_learner(Learner(estimator=estimator, prior="none"), 1)
    session = Session.of(slices, 1, learner, seed=4, scales=nominal_scales(NV, 1))
    couplings = session.result(session.run()).couplings

    def nats(**changed: np.ndarray) -> float:
        return log_likelihood(couplings._replace(**changed), slices, learner, "exact", seed=1)

    step = 0.01 if estimator == "exact" else 0.1  # more than the samples err
    for name in ("K", "h", "b"):
        block = getattr(couplings, name)
        for place in np.ndindex(block.shape):
            for sign in (-1, 1):
                moved = block.copy()
                moved[place] += sign * step
                assert nats(**{name: moved}) < nats(), (name, place, sign)
    # Neither J nor L has an effect.
    assert nats(J=couplings.J + 1.0, L=couplings.L + 1.0) == nats()
