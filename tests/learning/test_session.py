"""A session: from the start to the result, with a stop anywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.resuming import assert_continues

from kising import bond_scales, draw_couplings, fit, simulate
from kising.learning.checkpoint import save
from kising.learning.session import Session
from kising.learning.starts import from_signs
from kising.options import Learner

TRUTH = draw_couplings(8, 2, seed=2)
SCALES = bond_scales(8, 2, strength=1.0, connectivity=1.0)
VISIBLE = simulate(TRUTH, 1000, seed=3).visible


def session(**options) -> Session:
    learner = Learner(**{"start": "signs", "max_iterations": 15} | options)
    return Session.of(VISIBLE, 2, learner, seed=1, scales=SCALES, truth=TRUTH)


@pytest.mark.parametrize("step", ["scaled", "gradient"])
@pytest.mark.parametrize("stop", [1, 6, 11])
def test_a_saved_state_continues_bit_for_bit(step: str, stop: int) -> None:
    learning = session(estimator="bp", step=step, momentum=0.5, tolerance=1e-12)
    # Patient for a while, so that the count of steps that shrank is part of what is saved.
    assert_continues(replace(learning, step=replace(learning.step, patience=3)), stop=stop)


def test_every_iteration_is_a_state_and_the_last_one_ends_it() -> None:
    learning = session(estimator="exact", max_iterations=300)
    states = list(learning.states(learning.begin()))
    assert [state.iteration for state in states] == list(range(1, len(states) + 1))
    assert {state.outcome for state in states[:-1]} == {"running"}
    assert states[-1].outcome == "converged"
    assert learning.run() == states[-1]
    assert list(learning.states(states[-1])) == []


def test_the_result_is_that_of_fit() -> None:
    learning = session(estimator="gibbs", max_iterations=80)
    ours = learning.result(learning.run(), errors=True)
    theirs = fit(
        VISIBLE, 2, estimator="gibbs", start="signs", max_iterations=80, seed=1, scales=SCALES, truth=TRUTH,
        errors=True,
    )  # fmt: skip
    assert vars(ours).keys() < vars(theirs).keys()
    assert ours.standard_error is not None
    assert ours.state == theirs.state
    assert (ours.couplings, ours.standard_error) == (theirs.couplings, theirs.standard_error)
    np.testing.assert_array_equal(theirs.trace.to_numpy(), ours.state.trace)


def test_a_checkpoint_of_another_network_or_none_at_all_is_not_resumed() -> None:
    learning = session()
    other = Session.of(
        VISIBLE, 3, learning.learner, seed=1, scales=SCALES, start=draw_couplings(8, 3, seed=4)
    )
    assert learning.resume(None) is None
    assert learning.resume(b"nonsense") is None
    assert learning.resume(save(other.begin())) is None
    assert learning.resume(save(learning.begin())) == learning.begin()


def test_the_start_decides_how_long_steps_wait_for_acceleration() -> None:
    given = Session.of(VISIBLE, 2, Learner(), seed=1, scales=SCALES, start=from_signs(TRUTH, SCALES, 1))
    assert [x.step.patience for x in (session(), session(start="random"), given)] == [0, 10, 0]


def test_hidden_units_are_matched_unless_the_start_knows_them() -> None:
    """Couplings to start from are, more often than not, those of an earlier fit from a random start."""
    other_way_round = TRUTH._replace(K=-TRUTH.K[:, ::-1], L=-TRUTH.L[::-1])
    given = Session.of(VISIBLE, 2, Learner(), seed=1, scales=SCALES, truth=TRUTH, start=other_way_round)
    assert [x.problem.aligned for x in (session(), session(start="random"), given)] == [False, True, True]
    assert given.problem.rmse(given.start) == pytest.approx(dict.fromkeys(["J", "K", "L", "h", "b"], 0.0))
    found = fit(VISIBLE, 2, seed=1, truth=TRUTH, start=other_way_round, max_iterations=2)
    assert max(found.rmse.values()) < 0.2
