from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import small_network

from kising import Couplings, gradient
from kising.blocks import BLOCKS
from kising.learning.scores import nominal_scales
from kising.learning.state import prepare
from kising.learning.steps.prior import own_widths, pulled, widths_of, with_prior
from kising.options import Learner


def test_the_pull_of_a_prior_is_the_slope_of_its_logarithm() -> None:
    couplings, recording = small_network(3, visible=4, hidden=2, length=500)
    scales, width = nominal_scales(4, 2), 2.0
    slopes = gradient(couplings, recording, estimator="exact")
    problem = prepare(recording, 2, scales)
    widths = widths_of(slopes, couplings, problem, Learner(prior=width))
    found = pulled(slopes, couplings, problem.n_slices, widths)
    for name, x, sd in zip(BLOCKS, couplings, scales, strict=True):

        def log_prior(x: np.ndarray, sd: float = sd) -> np.ndarray:
            return -0.5 * (x / (width * sd)) ** 2 / 498

        expected = (log_prior(x + 1e-4) - log_prior(x - 1e-4)) / 2e-4
        np.testing.assert_allclose(getattr(found, name) - getattr(slopes, name), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("learner", "has_one"),
    [
        (Learner(prior=2.0), True),
        (Learner(prior=2.0, step="gradient"), False),
        (Learner(prior="none"), False),
        (Learner(), True),
    ],
)
def test_plain_ascent_has_no_prior(learner: Learner, has_one: bool) -> None:
    couplings, recording = small_network(3, visible=4, hidden=2, length=100)
    slopes = gradient(couplings, recording, estimator="exact")
    found = with_prior(slopes, couplings, prepare(recording, 2, nominal_scales(4, 2)), learner)
    assert (found != slopes) == has_one


def test_a_block_sets_its_own_width() -> None:
    """The root mean square of a block that is large against its errors, whatever its unit; the error of a coupling
    where the block is zero.
    """
    couplings, recording = small_network(3, visible=4, hidden=2, length=500)
    slopes = gradient(couplings, recording, estimator="exact")
    large = Couplings(*(100 * x for x in couplings))
    for name, width in own_widths(slopes, large, 498).items():
        block = getattr(large, name)
        assert width == pytest.approx(np.sqrt(np.mean(block**2)) if block.any() else 1.0, rel=1e-2) or (
            not block.any() and width < 0.2
        )
    none = own_widths(slopes, Couplings(*(0 * x for x in couplings)), 498)
    assert none["J"] == pytest.approx(np.sqrt(np.mean(1 / (498 * slopes.freedom_visible))))
    assert none["L"] == pytest.approx(np.sqrt(np.mean(1 / (498 * slopes.freedom_hidden))))
