from __future__ import annotations

import numpy as np
import pytest
from support.brute_force import small_network

from kising import gradient
from kising.blocks import BLOCKS
from kising.learning.scores import nominal_scales
from kising.learning.state import prepare
from kising.learning.steps.prior import pulled, with_prior
from kising.options import Learner


def test_the_pull_of_a_prior_is_the_slope_of_its_logarithm() -> None:
    couplings, recording = small_network(3, visible=4, hidden=2, length=500)
    scales, width = nominal_scales(4, 2), 2.0
    slopes = gradient(couplings, recording, estimator="exact")
    found = pulled(slopes, couplings, prepare(recording, 2, scales), width)
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
        (Learner(), False),
    ],
)
def test_plain_ascent_has_no_prior(learner: Learner, has_one: bool) -> None:
    couplings, recording = small_network(3, visible=4, hidden=2, length=100)
    slopes = gradient(couplings, recording, estimator="exact")
    found = with_prior(slopes, couplings, prepare(recording, 2, nominal_scales(4, 2)), learner)
    assert (found != slopes) == has_one
