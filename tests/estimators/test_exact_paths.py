"""Exact averages of networks with couplings M among hidden spins, judged by sums over all hidden paths."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from support.brute_force import PathAverages, coupled_network, enumerate_paths

from kising import Couplings, draw_couplings, gradient, infer, simulate
from kising.blocks import BLOCKS
from kising.errors import InputError
from kising.estimators import steps
from kising.estimators.estep import EStep
from kising.estimators.exact import paths
from kising.estimators.moments import PathMoments
from kising.estimators.slices import Slices, as_slices
from kising.options import Learner

SIZES = [(3, 1, 0), (3, 2, 0), (2, 3, 1), (4, 2, 2)]


def exact(hidden: int) -> EStep:
    return EStep.of(Learner(estimator="exact"), hidden, coupled=True)


def judged(couplings: Couplings, segments: list, covariates: list | None) -> list[PathAverages]:
    inputs = covariates or [None] * len(segments)
    return [enumerate_paths(couplings, s, u) for s, u in zip(segments, inputs, strict=True)]


def total(couplings: Couplings, segments: list, covariates: list | None) -> float:
    return sum(found.log_likelihood for found in judged(couplings, segments, covariates))


@pytest.mark.parametrize(("visible", "hidden", "inputs"), SIZES)
def test_likelihood_and_gradient_are_those_of_all_paths(visible: int, hidden: int, inputs: int) -> None:
    lengths = (4, 3) if hidden == 3 else (6, 3, 5)
    couplings, segments, u = coupled_network(
        hidden, visible=visible, hidden=hidden, inputs=inputs, lengths=lengths
    )
    found = gradient(couplings, segments, covariates=u, estimator="exact")
    n = sum(lengths) - len(lengths)
    assert found.log_likelihood * n == pytest.approx(total(couplings, segments, u), abs=1e-10)
    step = 1e-5
    for name in BLOCKS:
        block = getattr(couplings, name)
        assert getattr(found, name).shape == block.shape
        for index in np.ndindex(block.shape):
            sides = []
            for sign in (1, -1):
                moved = block.copy()
                moved[index] += sign * step
                sides.append(total(couplings._replace(**{name: moved}), segments, u))
            numerical = (sides[0] - sides[1]) / (2 * step) / n
            assert getattr(found, name)[index] == pytest.approx(numerical, abs=1e-7)


@pytest.mark.parametrize(("visible", "hidden", "inputs"), SIZES)
def test_moments_are_those_of_all_paths(visible: int, hidden: int, inputs: int) -> None:
    lengths = (4, 3) if hidden == 3 else (6, 3, 5)
    couplings, segments, u = coupled_network(
        10 + hidden, visible=visible, hidden=hidden, inputs=inputs, lengths=lengths
    )
    found = infer(couplings, segments, covariates=u, estimator="exact")
    assert isinstance(found, PathMoments)
    wanted = judged(couplings, segments, u)
    for name in ("m", "mu", "pair", "in_time"):
        # The first step of a segment is not one of its slices.
        rows = np.concatenate([getattr(one, name)[1:] for one in wanted])
        np.testing.assert_allclose(getattr(found, name), rows, atol=1e-12)
    assert found.converged.all()


def test_one_step_likelihoods_are_those_of_growing_segments() -> None:
    couplings, (visible, *_), _ = coupled_network(4, lengths=(7,))
    rows = infer(couplings, visible, estimator="exact").log_likelihood
    whole = [enumerate_paths(couplings, visible[:length]).log_likelihood for length in range(2, 8)]
    np.testing.assert_allclose(rows, np.diff(whole), atol=1e-12)


def test_predicted_states_forecast_what_was_seen() -> None:
    couplings, segments, _ = coupled_network(5)
    slices = Slices.of(segments)
    p = paths.predicted(couplings, slices, threads=1)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    signs = np.array([[1.0 if k >> a & 1 else -1.0 for a in range(2)] for k in range(4)])
    rows = paths.log_likelihood(couplings, slices, exact(2), threads=1)
    t = steps.Steps.of(slices)
    for row, place in enumerate(t.places):
        s, after = slices.spins[place].astype(float), slices.spins[place + 1].astype(float)
        f = couplings.h + couplings.J @ s + signs @ couplings.K.T
        likely = p[row] @ np.exp(f @ after - np.logaddexp(f, -f).sum(axis=1))
        assert rows[row] == pytest.approx(np.log(likely), abs=1e-12)


def test_without_couplings_slices_are_what_they_always_were() -> None:
    couplings, segments, u = coupled_network(6, visible=4, hidden=3, inputs=1, lengths=(30, 3, 8))
    still = couplings._replace(M=np.zeros((3, 3)))
    slices = Slices.of(segments, u)
    inner = ~steps.Steps.of(slices).begins
    found = paths.moments(still, slices, exact(3), threads=1, keep_pairs=True)
    wanted = infer(still, slices, estimator="exact")
    assert not isinstance(wanted, PathMoments)
    for name in ("m", "mu", "pair", "log_likelihood"):
        np.testing.assert_allclose(getattr(found, name)[inner], getattr(wanted, name), atol=1e-12)
    # A zero M is the same as none, bit for bit.
    assert gradient(still, slices) == gradient(still._replace(M=np.empty((3, 0))), slices)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(steps, "CHUNK_SLICES", 50)
    couplings, segments, _ = coupled_network(7, lengths=(40, 170, 20, 30, 60))
    slices = Slices.of(segments)
    one, more = (paths.gradient(couplings, slices, exact(2), threads=n) for n in (1, threads))
    assert one == more


def test_chunks_of_a_segment_join(monkeypatch: pytest.MonkeyPatch) -> None:
    couplings, segments, _ = coupled_network(8, lengths=(40, 5, 25))
    slices = Slices.of(segments)
    whole = paths.gradient(couplings, slices, exact(2), threads=1)
    rows = paths.moments(couplings, slices, exact(2), threads=1, keep_pairs=True)
    monkeypatch.setattr(steps, "CHUNK_SLICES", 7)
    assert [len(group) for group in steps.Steps.of(slices).groups()] == [6, 4]
    parts = paths.gradient(couplings, slices, exact(2), threads=1)
    for name, value in whole._asdict().items():
        np.testing.assert_allclose(getattr(parts, name), value, atol=1e-12, err_msg=name)
    for one, other in zip(
        rows, paths.moments(couplings, slices, exact(2), threads=1, keep_pairs=True), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("limit", ["SAFE_FIELD", "SAFE_EXPONENT"])
def test_products_and_logarithms_agree(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    couplings, segments, u = coupled_network(9, visible=5, inputs=1, lengths=(30,))
    slices = Slices.of(segments, u)
    usual = paths.gradient(couplings, slices, exact(2), threads=1)
    monkeypatch.setattr(paths, limit, 3.0)
    for name, value in paths.gradient(couplings, slices, exact(2), threads=1)._asdict().items():
        np.testing.assert_allclose(value, getattr(usual, name), atol=1e-12, err_msg=name)


@pytest.mark.parametrize("scale", [10.0, 100.0])
def test_strong_couplings_stay_finite(scale: float) -> None:
    couplings, segments, _ = coupled_network(11, lengths=(6, 4))
    strong = Couplings(*(scale * x for x in couplings))
    found = gradient(strong, segments, estimator="exact")
    assert all(np.isfinite(getattr(found, name)).all() for name in BLOCKS)
    if scale == 10.0:
        assert found.log_likelihood * 8 == pytest.approx(total(strong, segments, None), rel=1e-12)


def test_sampled_paths_have_the_moments() -> None:
    couplings, segments, _ = coupled_network(12, lengths=(6, 4))
    drawn = paths.sample(couplings, Slices.of(segments), 20_000, seed=3).astype(float)
    wanted = judged(couplings, segments, None)
    np.testing.assert_allclose(drawn.mean(axis=0), np.concatenate([x.mu for x in wanted]), atol=5 / 141)
    in_time = np.einsum("nta,ntb->tab", drawn[:, 1:], drawn[:, :-1]) / len(drawn)
    for found, one in ((in_time[:4], wanted[0]), (in_time[5:], wanted[1])):
        np.testing.assert_allclose(found, one.in_time[:-1][: len(found)], atol=5 / 141)


def test_scores_of_outcomes_have_the_expected_information() -> None:
    """Σ_t ⟨ψ ψᵀ⟩ over all outcomes, with ψ from differences of the likelihood of all paths."""
    couplings, segments, _ = coupled_network(13, visible=2, hidden=1, lengths=(4, 3))
    slices = Slices.of(segments)
    where = [(name, index) for name in "JhKLbM" for index in np.ndindex(getattr(couplings, name).shape)]
    step, wanted = 1e-5, 0.0

    def moved(name: str, index: tuple, by: float) -> Couplings:
        block = getattr(couplings, name).copy()
        block[index] += by
        return couplings._replace(**{name: block})

    for visible in segments:
        for t in range(1, len(visible)):
            for outcome in product([-1, 1], repeat=2):
                seen = np.vstack([visible[:t], [outcome]])

                def value(at: Couplings, seen: np.ndarray = seen) -> float:
                    past = enumerate_paths(at, seen[:-1]).log_likelihood if len(seen) > 2 else 0.0
                    return enumerate_paths(at, seen).log_likelihood - past

                psi = np.array(
                    [(value(moved(*w, step)) - value(moved(*w, -step))) / (2 * step) for w in where]
                )
                wanted = wanted + np.exp(value(couplings)) * np.outer(psi, psi)
    rows = {"J": (0, 0), "h": (0, 2), "K": (0, 3), "L": (2, 0), "b": (2, 2), "M": (2, 3)}
    order = [
        (rows[name][0] + index[0]) * 4 + rows[name][1] + (index[1] if len(index) > 1 else 0)
        for name, index in where
    ]
    draws = 40_000
    found = sum(psi.T @ psi for psi in paths.score_chunks(couplings, slices, draws, seed=4)) / draws
    np.testing.assert_allclose(found[np.ix_(order, order)], wanted, atol=0.03)
    assert np.abs(wanted).max() > 0.5


@pytest.mark.parametrize("estimator", ["bp", "tap", "mean-field"])
def test_expansions_do_not_know_couplings_among_hidden_spins(estimator: str) -> None:
    couplings, segments, _ = coupled_network(1)
    message = f"estimator {estimator} cannot treat couplings M among hidden spins; use exact"
    for function in (infer, gradient):
        with pytest.raises(InputError, match=message):
            function(couplings, segments, estimator=estimator)
    # Without M they do.
    assert infer(couplings._replace(M=np.zeros((2, 2))), segments, estimator=estimator).mu.shape == (8, 2)


def test_too_many_coupled_spins_for_exact() -> None:
    couplings = draw_couplings(4, 9, hidden_coupling=1.0, seed=1)
    visible = simulate(couplings, 10, seed=2).visible
    with pytest.raises(InputError, match=r"hidden: 9 is too large for estimator exact .*allowed: up to 8"):
        infer(couplings, visible, estimator="exact")


def test_the_beginning_of_a_recording() -> None:
    slices = Slices.of([np.ones((n, 2), np.int8) for n in (6, 3, 5)])
    found = steps.Steps.of(slices)
    assert found.places.tolist() == [0, 1, 2, 3, 4, 6, 7, 9, 10, 11, 12]
    assert np.flatnonzero(found.begins).tolist() == [0, 5, 7]
    assert np.flatnonzero(found.ends).tolist() == [4, 6, 10]
    assert steps.Steps.of(slices.first(6)).places.tolist() == [0, 1, 2, 3, 4, 6, 7, 9, 10]
    assert len(steps.Steps.of(as_slices(np.ones((9, 2), np.int8)))) == 8
