"""Properties that all estimators share."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.brute_force import small_network

from kising import Couplings, draw_couplings, gradient, infer, simulate
from kising.errors import InputError
from kising.estimators.assessment import assess
from kising.estimators.chunks import CHUNK_SLICES
from kising.estimators.estep import EStep
from kising.estimators.registry import ESTIMATORS, NAMES
from kising.options import Learner, choices

CORRELATIONS = choices("learner.correlations")
WAYS = [
    (entry.name, rule)
    for entry in ESTIMATORS
    for rule in (CORRELATIONS if "learner.correlations" in entry.reads else CORRELATIONS[:1])
]
SAMPLERS = {entry.name for entry in ESTIMATORS if entry.samples}
# Samples are not symmetric, whatever is sampled.
SMOOTH = [(name, rule) for name, rule in WAYS if name not in SAMPLERS]
SAMPLES = {"sweeps": 8, "seed": 1}


@pytest.mark.parametrize(("estimator", "correlations"), WAYS)
def test_shapes_and_gradient_equals_sums_of_moments(estimator: str, correlations: str) -> None:
    length = 2 * CHUNK_SLICES + 100
    couplings, recording = small_network(5, visible=5, hidden=3, length=length)
    how = {"estimator": estimator, "correlations": correlations, **SAMPLES}
    moments = infer(couplings, recording, **how)
    n = length - 2
    assert [x.shape for x in moments] == [(n, 5), (n, 3), (n, 5, 3), (n,), (n,), (n,), (n,)]
    slopes = gradient(couplings, recording, **how)
    before, now, after = recording[:-2], recording[1:-1], recording[2:]
    np.testing.assert_allclose(slopes.J, (after - moments.m).T @ now / n, atol=1e-12)
    np.testing.assert_allclose(slopes.K, after.T @ moments.mu / n - moments.pair.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(
        slopes.L, (moments.mu - np.tanh(before @ couplings.L.T)).T @ before / n, atol=1e-12
    )
    assert slopes.log_likelihood == pytest.approx(moments.log_likelihood.mean(), rel=1e-12)
    assert slopes.converged == moments.converged.mean()
    assert slopes.iterations == pytest.approx(moments.iterations.mean())
    assert slopes.abs_m == pytest.approx(np.abs(moments.m).mean())
    assert slopes.abs_mu == pytest.approx(np.abs(moments.mu).mean())
    if estimator not in SAMPLERS:
        assert slopes.abs_pair == pytest.approx(np.abs(moments.pair).mean())


@pytest.mark.parametrize(("estimator", "correlations"), WAYS)
def test_threads_do_not_enter_the_result(estimator: str, correlations: str) -> None:
    couplings, recording = small_network(5, visible=30, hidden=3, length=5 * CHUNK_SLICES)
    one, three = (
        gradient(couplings, recording, estimator=estimator, correlations=correlations, threads=n, **SAMPLES)
        for n in (1, 3)
    )
    assert all(np.array_equal(x, y) for x, y in zip(one, three, strict=True))


@pytest.mark.parametrize("estimator", ["bp", "exact"])
def test_memory_of_a_gradient_does_not_grow_with_the_recording(estimator: str) -> None:
    couplings, recording = small_network(5, visible=20, hidden=3, length=6 * CHUNK_SLICES)
    gradient(couplings, recording[:10], estimator=estimator)
    peaks = []
    for blocks in (2, 6):
        tracemalloc.start()
        try:
            gradient(couplings, recording[: blocks * CHUNK_SLICES], estimator=estimator)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0] + recording.nbytes


EXTREMES = {
    "zero couplings": lambda c: Couplings(*(0 * x for x in c)),
    "zero K": lambda c: c._replace(K=0 * c.K),
    "K = ±10": lambda c: c._replace(K=10 * np.sign(c.K)),
    "K = +10": lambda c: c._replace(K=np.full_like(c.K, 10.0)),
    "J = ±1000": lambda c: c._replace(J=1000 * np.sign(c.J)),
    "L = ±1000": lambda c: c._replace(L=1000 * np.sign(c.L)),
    "all = ±100": lambda c: Couplings(*(100 * np.sign(x) for x in c)),
    "all = ±1e308": lambda c: Couplings(*(1e308 * np.sign(x) for x in c)),
    "all = ±5e-324": lambda c: Couplings(*(5e-324 * np.sign(x) for x in c)),
}
SIZES = {"one hidden": (6, 1), "more hidden than visible": (3, 7), "one of each": (1, 1), "wide": (40, 6)}


@pytest.mark.parametrize(("estimator", "correlations"), WAYS)
@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("size", SIZES)
def test_no_finite_input_gives_nan(estimator: str, correlations: str, extreme: str, size: str) -> None:
    visible, hidden = SIZES[size]
    couplings = EXTREMES[extreme](draw_couplings(visible, hidden, seed=3))
    random = np.where(np.random.default_rng(1).random((8, visible)) < 0.5, -1, 1)
    frozen = np.ones((3, visible))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for recording in (random, frozen):
            how = {"estimator": estimator, "correlations": correlations, **SAMPLES}
            moments = infer(couplings, recording, **how)
            assert all(np.isfinite(x).all() for x in moments)
            assert np.abs(moments.m).max() <= 1
            assert np.abs(moments.mu).max() <= 1
            slopes = gradient(couplings, recording, **how)
            assert all(np.isfinite(x).all() for x in slopes)


@pytest.mark.parametrize(("estimator", "correlations"), SMOOTH)
@given(seed=st.integers(0, 10**6))
def test_symmetries_of_the_likelihood(estimator: str, correlations: str, seed: int) -> None:
    """Permuting hidden units permutes their averages; flipping one turns its own over; the rest stays."""
    couplings, recording = small_network(seed, visible=5, hidden=3, strength=0.7)
    how = {"estimator": estimator, "correlations": correlations, "tolerance": 1e-24, "max_iterations": 1000}
    rng = np.random.default_rng(seed)
    order, signs = rng.permutation(3), rng.choice([-1, 1], 3)
    J, K, L, *_ = couplings
    base = infer(couplings, recording, **how)
    moved = infer(Couplings(J, K[:, order] * signs, L[order] * signs[:, None]), recording, **how)
    settled = base.converged & moved.converged
    np.testing.assert_allclose(moved.m[settled], base.m[settled], atol=1e-9)
    np.testing.assert_allclose(moved.mu[settled], (base.mu[:, order] * signs)[settled], atol=1e-9)
    np.testing.assert_allclose(moved.pair[settled], (base.pair[:, :, order] * signs)[settled], atol=1e-8)
    np.testing.assert_allclose(moved.log_likelihood[settled], base.log_likelihood[settled], atol=1e-9)


@pytest.mark.parametrize("estimator", ["bp", "exact"])
def test_assessment_is_made_of_the_moments(estimator: str) -> None:
    couplings = draw_couplings(10, 3, seed=1)
    recording = simulate(couplings, CHUNK_SLICES + 50, seed=2)
    moments = infer(couplings, recording.visible, estimator=estimator)
    exact = infer(couplings, recording.visible, estimator="exact")
    found = assess(couplings, recording, EStep.of(Learner(estimator=estimator), 3), against_exact=True)
    assert found.converged == moments.converged.mean()
    assert found.log_likelihood == pytest.approx(moments.log_likelihood.mean(), rel=1e-12)
    assert found.overlap == pytest.approx(np.mean(np.sign(moments.mu) * recording.hidden[1:-1]), abs=1e-12)
    assert found.overlap > 0.5
    for name in ("m", "mu", "pair"):
        difference = getattr(moments, name) - getattr(exact, name)
        error = getattr(found, f"rmse_{name}")
        assert error == pytest.approx(np.sqrt(np.mean(difference**2)), rel=1e-9)
        assert (error == 0) == (estimator == "exact")
    alone = assess(couplings, recording, EStep.of(Learner(estimator=estimator), 3), against_exact=False)
    assert alone == found._replace(rmse_m=None, rmse_mu=None, rmse_pair=None)


@pytest.mark.parametrize("function", [infer, gradient])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"estimator": "bpp"}, f"'bpp' is not an estimator; allowed: {', '.join(NAMES)}; did you mean 'bp'"),
        ({"correlations": "open"}, "is not a correlation rule; allowed: iterated, closed, pair, corrected"),
        ({"tolerance": -1.0}, "tolerance=-1.0: -1.0 is out of range; allowed: numbers > 0"),
        ({"damping": 1.0}, "damping=1.0: .* allowed: adaptive, or a number with 0 <= number < 1"),
        ({"max_iterations": 0}, "max_iterations=0: 0 is too small; allowed: whole numbers from 1"),
        ({"precision": "float16"}, "allowed: auto, float64, float32"),
        ({"damping": 1.0, "tolerance": 0}, "tolerance=0: .*; damping=1.0: "),
    ],
)
def test_impossible_settings_are_refused(
    function: Callable[..., object], arguments: dict, message: str
) -> None:
    couplings, recording = small_network(5)
    with pytest.raises(InputError, match=message):
        function(couplings, recording, **arguments)


@pytest.mark.parametrize("function", [infer, gradient])
def test_a_misspelt_argument_is_a_type_error_that_names_the_right_one(
    function: Callable[..., object],
) -> None:
    couplings, recording = small_network(5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'dampping'; did you mean 'damping'"):
        function(couplings, recording, dampping=0.5)


def test_none_is_the_first_word_and_numbers_of_numpy_are_numbers() -> None:
    couplings, recording = small_network(5)
    how = {"estimator": "bp", "correlations": "closed"}
    one = infer(
        couplings, recording, damping=None, max_iterations=np.int64(50), tolerance=np.float64(1e-9), **how
    )
    assert one == infer(couplings, recording, damping="adaptive", max_iterations=50, tolerance=1e-9, **how)
