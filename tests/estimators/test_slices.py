"""Recordings of several segments: no slice crosses a border."""

from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import enumerate_slices, network_with_fields

from kising import Couplings, gradient, infer
from kising.blocks import BLOCKS
from kising.estimators.chunks import CHUNK_SLICES, fields
from kising.estimators.registry import ESTIMATORS, Estimator
from kising.estimators.slices import Slices
from kising.learning.layout import slopes

each = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.name)
SMOOTH = [entry for entry in ESTIMATORS if not entry.samples]
smooth = pytest.mark.parametrize("estimator", SMOOTH, ids=lambda estimator: estimator.name)
SETTLED = {"tolerance": 1e-24, "max_iterations": 1000}
LENGTHS = (40, 3, 25, 60)
BORDERS = np.cumsum(LENGTHS)[:-1]


@pytest.fixture(scope="module")
def cut() -> tuple[Couplings, list[np.ndarray], list[np.ndarray]]:
    couplings, recording, u = network_with_fields(3, strength=0.7, length=sum(LENGTHS))
    return couplings, np.split(recording, BORDERS), np.split(u, BORDERS)


@each
def test_averages_of_segments_are_those_of_each_by_itself(cut, estimator: Estimator) -> None:
    couplings, spins, u = cut
    how = {"estimator": estimator.name, "sweeps": 8, "seed": 1}
    whole = infer(couplings, spins, covariates=u, **how)
    assert len(whole.m) == sum(length - 2 for length in LENGTHS)
    if estimator.samples:
        first = infer(couplings, spins[0], covariates=u[0], **how)
        np.testing.assert_array_equal(whole.mu[:38], first.mu)
        return
    alone = [infer(couplings, s, covariates=x, **how) for s, x in zip(spins, u, strict=True)]
    for name in ("m", "mu", "pair", "log_likelihood"):
        joined = np.concatenate([getattr(x, name) for x in alone])
        np.testing.assert_allclose(getattr(whole, name), joined, atol=1e-12)


def test_averages_of_segments_are_sums_over_all_states(cut) -> None:
    couplings, spins, u = cut
    truth = [enumerate_slices(couplings, s, x) for s, x in zip(spins, u, strict=True)]
    found = infer(couplings, spins, covariates=u, estimator="exact")
    for name in ("m", "mu", "pair", "log_likelihood"):
        joined = np.concatenate([getattr(x, name) for x in truth])
        np.testing.assert_allclose(getattr(found, name), joined, atol=1e-10)


@smooth
def test_the_gradient_of_segments_is_the_sum_over_their_slices(cut, estimator: Estimator) -> None:
    couplings, spins, u = cut
    how = {"estimator": estimator.name, **SETTLED}
    whole = gradient(couplings, spins, covariates=u, **how)
    n = [length - 2 for length in LENGTHS]
    parts = [gradient(couplings, s, covariates=x, **how) for s, x in zip(spins, u, strict=True)]
    for name in (*BLOCKS, "log_likelihood", "freedom_visible", "visible_hidden", "hidden_hidden"):
        total = sum(k * getattr(part, name) for k, part in zip(n, parts, strict=True))
        np.testing.assert_allclose(getattr(whole, name), total / sum(n), rtol=0, atol=1e-10)


@each
def test_nothing_leaks_across_a_border(cut, estimator: Estimator) -> None:
    """Another last step, or first step, of one segment changes nothing for its neighbours."""
    couplings, spins, u = cut
    how = {"estimator": estimator.name, "sweeps": 8, "seed": 1}
    base = infer(couplings, spins, covariates=u, **how)
    ends = np.cumsum([0, *(length - 2 for length in LENGTHS)])
    for k in range(len(spins)):
        for step in (0, -1):
            poisoned = [x.copy() for x in spins]
            poisoned[k][step] *= -1
            inputs = [x.copy() for x in u]
            inputs[k][step] = 50.0
            changed = infer(couplings, poisoned, covariates=inputs, **how)
            own = np.zeros(len(base.m), dtype=bool)
            own[ends[k] : ends[k + 1]] = True
            np.testing.assert_array_equal(changed.m[~own], base.m[~own])
            np.testing.assert_array_equal(changed.mu[~own], base.mu[~own])
            np.testing.assert_array_equal(changed.log_likelihood[~own], base.log_likelihood[~own])
            assert not np.array_equal(changed.log_likelihood[own], base.log_likelihood[own])


@smooth
def test_the_order_of_segments_changes_a_gradient_by_rounding_alone(cut, estimator: Estimator) -> None:
    couplings, spins, u = cut
    how = {"estimator": estimator.name, **SETTLED}
    base = slopes(gradient(couplings, spins, covariates=u, **how))
    order = [2, 0, 3, 1]
    other = slopes(gradient(couplings, [spins[k] for k in order], covariates=[u[k] for k in order], **how))
    for x, y in zip(base, other, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-13)


@each
def test_one_segment_has_the_bits_of_an_array(estimator: Estimator) -> None:
    couplings, recording, u = network_with_fields(5, length=CHUNK_SLICES + 30, strength=0.7)
    how = {"estimator": estimator.name, "sweeps": 8, "seed": 1}
    for function in (infer, gradient):
        one = function(couplings, recording, covariates=u, **how)
        assert one == function(couplings, [recording], covariates=[u], **how)
        assert one == function(couplings, recording[None], covariates=u[None], **how)
        assert one == function(couplings, Slices.of([recording], [u]), **how)


def test_chunks_are_cut_across_segments_as_within_one() -> None:
    """The slices of many segments, chunk by chunk, are all slices in order."""
    lengths = [5, CHUNK_SLICES - 10, 40, CHUNK_SLICES, 3]
    couplings, recording, u = network_with_fields(6, length=sum(lengths), strength=0.7)
    borders = np.cumsum(lengths)[:-1]
    spins, inputs = np.split(recording, borders), np.split(u, borders)
    slices = Slices.of(spins, inputs)
    n = sum(lengths) - 2 * len(lengths)
    assert len(slices) == n
    parts = [slice(k, min(k + CHUNK_SLICES, n)) for k in range(0, n, CHUNK_SLICES)]
    chunks = [fields(couplings, slices, part) for part in parts]
    whole = {
        name: np.concatenate([getattr(chunk, name) for chunk in chunks])
        for name in ("after", "theta", "b", "g")
    }
    now, before = (np.concatenate([x[k : len(x) - 2 + k] for x in spins]) for k in (1, 0))
    u_now, u_before = (np.concatenate([x[k : len(x) - 2 + k] for x in inputs]) for k in (1, 0))
    after = np.concatenate([x[2:] for x in spins])
    np.testing.assert_array_equal(whole["after"], after)
    np.testing.assert_array_equal(slices.after, after)
    np.testing.assert_allclose(
        whole["theta"], now @ couplings.J.T + couplings.h + u_now @ couplings.F.T, atol=1e-12
    )
    field = before @ couplings.L.T + couplings.b + u_before @ couplings.G.T
    np.testing.assert_allclose(whole["b"], field, atol=1e-12)
    np.testing.assert_allclose(whole["g"], field + after @ couplings.K, atol=1e-12)
    assert gradient(couplings, slices, estimator="exact") == gradient(
        couplings, spins, covariates=inputs, estimator="exact", threads=2
    )


@pytest.mark.parametrize("n", [1, 37, 38, 39, 60, 10_000])
def test_the_first_slices_are_the_first_of_all(cut, n: int) -> None:
    couplings, spins, u = cut
    for slices in (Slices.of(spins, u), Slices.of(spins[:1], u[:1])):
        some = slices.first(n)
        assert len(some) == min(n, len(slices))
        every, few = (fields(couplings, x, slice(0, len(x))) for x in (slices, some))
        np.testing.assert_allclose(few.g, every.g[:n], atol=1e-14)
        np.testing.assert_array_equal(few.after, every.after[:n])
