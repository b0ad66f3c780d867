from __future__ import annotations

import numpy as np
from support.brute_force import small_network

from kising import gradient
from kising.learning.state import no_history
from kising.learning.steps.plain import ascend
from kising.options import Learner


def test_momentum_adds_a_share_of_the_last_move() -> None:
    couplings, recording = small_network(3, visible=4, hidden=2, length=100)
    slopes = gradient(couplings, recording, estimator="exact")
    n, learner = sum(x.size for x in couplings), Learner(rate=0.5, momentum=0.9)
    first, history = ascend(couplings, slopes, no_history(n), learner)
    np.testing.assert_allclose(first.J, couplings.J + 0.5 * slopes.J)
    second, _ = ascend(first, slopes, history, learner)
    np.testing.assert_allclose(second.L - first.L, (0.5 + 0.45) * slopes.L, atol=1e-14)
