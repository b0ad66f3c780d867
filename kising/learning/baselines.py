"""Two models that a network with hidden spins must beat on held-out data (docs/maths.md, "The larger model").

`visible only`   J, h and F, no hidden spins: one logistic regression per spin. What a network gains over it is due to
                 its hidden spins.
`memoryless`     K, h, b, F and G, with J = L = M = 0: hidden spins as classes of time steps, drawn independently at
                 every step. It describes which spins are active together, and ignores the past. A network that is no
                 better on held-out data has found same-time correlations, not dynamics.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kising.estimators.slices import Slices
from kising.options import Learner


def baseline_learner(learner: Learner, hidden: int) -> Learner:
    """How a baseline is learned: with biases, and without forced zeros; otherwise as the network is."""
    # Without hidden spins the likelihood has one maximum, whatever the start.
    starts = learner.starts if hidden else 1
    changes = {"bias": True, "hidden_couplings": False, "l1": 0.0, "decimate": "none", "starts": starts}
    return learner.model_copy(update=changes)


def memoryless(slices: Slices) -> Slices:
    """The slices with zeros for s⁻ and s, so that J and L have no effect.

    Learning from these is learning with J = L = 0; inputs stay as they are. Where entries are missing, a zero would be
    another one: paths are then told that visible spins act on nothing.
    """
    if slices.has_gaps:
        return replace(slices, memoryless=True)
    spins = np.zeros((3 * len(slices), slices.n_visible), dtype=np.int8)
    spins[2::3] = slices.after
    inputs = np.zeros((3 * len(slices), slices.n_inputs))
    t = slices.middle
    inputs[0::3], inputs[1::3] = slices.inputs[t - 1], slices.inputs[t]
    return Slices(spins, inputs, np.arange(1, len(spins), 3))
