from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from learning.steps.test_scaled import NETWORK, session_of

from kising.blocks import BLOCKS
from kising.estimators.estep import EStep
from kising.estimators.gradient import checked_gradient
from kising.estimators.registry import entry
from kising.estimators.slices import Slices
from kising.learning import effort
from kising.learning.checkpoint import load, save
from kising.learning.effort import EARLY_ITERATIONS, ROUND, USUALLY_EARLY, passes, slices_of_part
from kising.learning.layout import flatten, slopes
from kising.learning.scores import nominal_scales
from kising.learning.session import Session
from kising.learning.state import EMState, Rounds
from kising.learning.steps import scaled
from kising.learning.steps.crawling import EVERY, NEARLY_THERE, WINDOWS
from kising.learning.steps.rounds import (
    FAR_ENOUGH,
    MISLED,
    before_rounds,
    of_all,
    part_used,
    rest_is_fresh,
    round_begun,
    rounds_crawl,
    with_rest,
)
from kising.options import Learner

PART, REST = 1000, 7000
TOLERANCE = 1e-4


def states_of(session: Session) -> list[EMState]:
    return list(session.states(session.begin()))


def never_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLOW", "MISLED"):
        monkeypatch.setattr(f"kising.learning.steps.rounds.{name}", np.inf)


@pytest.mark.parametrize("bias", [False, True])
def test_all_slices_have_a_say_before_learning_ends(monkeypatch: pytest.MonkeyPatch, bias: bool) -> None:
    # Every step is small enough, so that the first iteration ends the use of the part.
    session, seen = session_of(monkeypatch, tolerance=1e3, bias=bias)
    monkeypatch.setattr("kising.learning.steps.rounds.NEAR_AT_FIRST", 1e3)
    last = session.run()
    assert last.outcome == "converged"
    # The others of `hold` go through the part: the couplings have hardly moved since all slices were used.
    assert seen == [PART] + [PART, REST] + [PART] * (session.learner.hold - 1)


def test_learning_begins_on_part_of_the_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    session, seen = session_of(monkeypatch)
    session.run()
    first = seen.index(REST)
    assert 1 < first <= EARLY_ITERATIONS + 1
    assert set(seen[:first]) == {PART}


def test_rounds_go_through_all_slices_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kising.learning.steps.rounds.FAR_ENOUGH", 0.0)
    never_give_up(monkeypatch)
    session, seen = session_of(monkeypatch, estimator="tap", correlations="pair", prior=1.0)
    monkeypatch.setattr(effort, "LEAST_PART", 3 * PART)
    assert session.run().outcome == "converged"
    whole = [i for i, n in enumerate(seen) if n == 5 * PART]
    # Part and rest are E-steps of one iteration.
    assert {b - a for a, b in pairwise(whole)} == {ROUND + 2}
    # Where steps are small enough on all slices, learning ends on the part.
    assert seen[whole[-1] + 1 :] == [3 * PART] * (session.learner.hold - 1)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("estimator", ["bp", "tap"])
def test_rounds_that_are_given_up_end_where_all_slices_do(
    monkeypatch: pytest.MonkeyPatch, estimator: str, bias: bool
) -> None:
    options = {"estimator": estimator, "correlations": "pair", "bias": bias, "tolerance": 1e-8}
    found = session_of(monkeypatch, **options)[0].run()
    assert found.rounds is not None
    assert found.rounds.given_up > 0
    ends_as_without_rounds(found, monkeypatch, options)


@pytest.mark.parametrize(("estimator", "bias"), [("bp", True), ("tap", True), ("tap", False)])
def test_rounds_end_where_all_slices_do(monkeypatch: pytest.MonkeyPatch, estimator: str, bias: bool) -> None:
    """With half of the slices, and a prior that holds weak couplings."""
    options = {"estimator": estimator, "correlations": "pair", "bias": bias, "tolerance": 1e-7, "prior": 1.0}
    never_give_up(monkeypatch)
    session, _ = session_of(monkeypatch, **options)
    monkeypatch.setattr(effort, "LEAST_PART", 4 * PART)
    found = session.run()
    assert found.rounds is not None
    assert found.rounds.given_up < 0
    ends_as_without_rounds(found, monkeypatch, options)


def ends_as_without_rounds(
    found: EMState, monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    session, _ = session_of(monkeypatch, **options)
    monkeypatch.setattr(effort, "LEAST_PART", 10_000)
    usual = session.run()
    assert usual.rounds is None
    assert (found.outcome, usual.outcome) == ("converged", "converged")
    for x, y in zip(found.couplings, usual.couplings, strict=True):
        np.testing.assert_allclose(x, y, atol=5e-5)


def test_the_gradient_of_a_round_is_that_of_all_slices_where_it_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, _ = session_of(monkeypatch)
    slices, couplings = session.problem.slices, session.start
    estep = EStep.of(session.learner, 2)

    def gradient_of(some: Slices):  # type: ignore[no-untyped-def]
        return checked_gradient(couplings, some, estep, threads=1)

    everything, rest = of_all(gradient_of, slices, PART)
    shifted = with_rest(gradient_of(slices.first(PART)), rest)
    for x, y, z in zip(slopes(gradient_of(slices)), slopes(everything), slopes(shifted), strict=True):
        np.testing.assert_allclose(y, x, atol=1e-12)
        np.testing.assert_allclose(z, x, atol=1e-12)
    assert everything.log_likelihood == pytest.approx(gradient_of(slices).log_likelihood, rel=1e-12)


def test_blocks_stay_settled_while_part_of_the_slices_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a block has been settled for counts iterations on all slices, and on the part where all slices have just
    settled; others neither add to it nor end it.
    """
    session, _ = session_of(monkeypatch, correlations="pair")
    states = states_of(session)
    before = session.begin()
    for state in states:
        counted = session.step.counts(before)
        assert counted or state.held == before.held
        before = state
    assert any(0 < state.held[0] < session.learner.hold for state in states)


def test_the_last_iteration_goes_through_all_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the last row of a trace is that of the whole recording."""
    never_give_up(monkeypatch)
    monkeypatch.setattr("kising.learning.steps.rounds.FAR_ENOUGH", 0.0)
    session, seen = session_of(monkeypatch, tolerance=1e-12, max_iterations=3 * EARLY_ITERATIONS)
    last = session.run()
    assert last.outcome == "stalled"
    assert last.rounds is not None
    assert last.rounds.left > 0
    assert seen[-2:] == [PART, REST]


@pytest.mark.parametrize(("name", "value"), [("MISLED", 0.0), ("SLOW", 0.0)])
def test_a_part_that_misleads_is_given_up(monkeypatch: pytest.MonkeyPatch, name: str, value: float) -> None:
    """Learning returns to where the step was smallest, and uses all slices from there on."""
    session, seen = session_of(monkeypatch, correlations="pair")
    monkeypatch.setattr(f"kising.learning.steps.rounds.{name}", value)
    states = states_of(session)
    first = next(i for i, state in enumerate(states) if state.rounds and state.rounds.given_up >= 0)
    rounds = states[first].rounds
    assert rounds is not None
    assert rounds.given_up == first + 1
    assert states[-1].outcome == "converged"
    back = flatten(states[first].couplings, session.problem.scales)
    np.testing.assert_allclose(back, rounds.best, rtol=1e-12)
    assert seen[-3:] == [PART + REST] * 3
    assert seen.count(PART + REST) == len(states) - first - 1


def test_the_best_start_of_a_round_is_remembered() -> None:
    rounds = before_rounds(NETWORK, nominal_scales(8, 2))
    a, b, c = (np.full_like(rounds.start, x) for x in (1.0, 2.0, 3.0))
    rounds = round_begun(rounds, a, 0.3, 1e-4, 10)
    rounds = round_begun(rounds, b, 0.2, 1e-4, 17)
    assert rounds.given_up < 0
    rounds = round_begun(rounds, c, 0.5, 1e-4, 24)
    assert rounds.given_up == 25
    assert rounds.best[0] == 2.0


def test_rounds_continue_from_a_checkpoint_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    session, _ = session_of(monkeypatch, tolerance=1e-7)
    states = states_of(session)
    for iterations in (3, 12, 25, 40):
        again = list(session.states(load(save(states[iterations - 1]))))
        assert len(again) == len(states) - iterations
        for x, y in zip(again[-1].couplings, states[-1].couplings, strict=True):
            np.testing.assert_array_equal(x, y)
        np.testing.assert_array_equal(again[-1].trace, states[-1].trace)


@pytest.mark.parametrize(
    "options",
    [
        {"estimator": "exact"},
        {"step": "gradient"},
        {"l1": 1.0},
        {"max_iterations": 3 * EARLY_ITERATIONS - 1},
    ],
)
def test_others_use_all_slices_in_every_iteration(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    session, seen = session_of(monkeypatch, **options)
    session.advance(session.begin())
    assert set(seen) == {PART + REST}


def test_the_part_is_an_eighth_within_bounds() -> None:
    assert [slices_of_part(n) for n in (100, 19_999, 20_000, 80_000, 160_000, 800_000)] == [
        100, 19_999, 10_000, 10_000, 20_000, 40_000,
    ]  # fmt: skip


def test_passes_count_what_iterations_cost() -> None:
    learner, bp = Learner(estimator="bp"), entry("bp")
    assert passes(learner, bp, 1000, 50) == 50
    assert passes(learner, bp, 80_000, 8) == 1.0
    # Two thirds of the later iterations go through an eighth of the slices.
    assert passes(learner, bp, 80_000, USUALLY_EARLY + 24) == pytest.approx(USUALLY_EARLY / 8 + 8 + 16 / 8)


def test_passes_are_near_those_that_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    session, seen = session_of(monkeypatch, correlations="pair")
    last = session.run()
    assert last.outcome == "converged"
    estimate = passes(session.learner, entry("bp"), PART + REST, last.iteration)
    assert estimate == pytest.approx(sum(seen) / (PART + REST), rel=0.5)


def test_learning_stalls_only_where_all_slices_were_used_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, seen = session_of(monkeypatch, tolerance=1e-9)
    monkeypatch.setattr(scaled, "is_still", lambda *_: True)
    monkeypatch.setattr(scaled, "is_out_of_reach", lambda *_: True)
    monkeypatch.setattr("kising.learning.steps.rounds.SLOW", 0.0)
    last = session.run()
    assert last.outcome == "stalled"
    assert last.rounds is not None
    # One window: the rounds before stand for another.
    watched, window = last.iteration - last.rounds.given_up, min(window.length for window in WINDOWS)
    assert window < watched <= window + EVERY
    assert seen.count(PART + REST) == watched


def test_after_rounds_that_were_given_up_steps_are_compared_with_the_best_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, _ = session_of(monkeypatch, tolerance=1e-9)
    compared: list[list[float]] = []

    def record(sizes: list[float], *_: object) -> bool:
        compared.append(list(sizes))
        return False

    monkeypatch.setattr(scaled, "is_still", lambda *_: True)
    monkeypatch.setattr(scaled, "is_out_of_reach", record)
    monkeypatch.setattr("kising.learning.steps.rounds.SLOW", 0.0)
    last = session.run()
    assert last.rounds is not None
    assert compared
    of_steps = last.trace[last.rounds.given_up :, 1 : 1 + len(BLOCKS)].max(axis=1)
    for sizes in compared:
        assert sizes[0] == np.min(last.rounds.sizes)
        assert sizes[1:] == list(of_steps[: len(sizes) - 1])


def crept(sizes: list[float], *, arrived: bool = False) -> Rounds:
    """Rounds of seven iterations whose steps on all slices had these sizes."""
    rounds = before_rounds(NETWORK, nominal_scales(8, 2))
    for k, size in enumerate(sizes):
        rounds = round_begun(rounds, rounds.start, size, TOLERANCE, 10 + 7 * k)
    return rounds._replace(arrived=arrived)


@pytest.mark.parametrize(
    ("size", "arrived", "given_up"),
    [
        (5 * TOLERANCE, True, True),
        (5 * TOLERANCE, False, False),  # the part is not to blame
        (NEARLY_THERE * TOLERANCE, False, True),
        (5 * MISLED * TOLERANCE, False, True),
    ],
)
def test_small_steps_that_hardly_shrink_on_the_part_either_are_no_reason_to_give_it_up(
    size: float, arrived: bool, given_up: bool
) -> None:
    rounds = crept([5 * TOLERANCE, 5 * TOLERANCE], arrived=arrived)
    assert (round_begun(rounds, rounds.start, size, TOLERANCE, 24).given_up == 25) == given_up


def test_rounds_crawl_where_steps_shrink_too_slowly_for_the_iterations_left() -> None:
    rounds = crept([8 * TOLERANCE, 6 * TOLERANCE])
    iteration, size = 24, 4 * TOLERANCE
    # Halved in the 14 iterations of two rounds: another 28 are needed.
    assert rounds_crawl(rounds, size, TOLERANCE, iteration, iteration + 27)
    assert not rounds_crawl(rounds, size, TOLERANCE, iteration, iteration + 29)


@pytest.mark.parametrize("before", [[], [5 * TOLERANCE]])
def test_one_round_is_too_little_to_judge(before: list[float]) -> None:
    assert not rounds_crawl(crept(before), 5 * TOLERANCE, TOLERANCE, 100, 101)


@pytest.mark.parametrize(
    ("size", "arrived", "crawls"),
    [
        (5 * TOLERANCE, False, True),
        (5 * TOLERANCE, True, False),  # the part says too little: see what all slices say
        (NEARLY_THERE * TOLERANCE, False, False),
        (0.9 * TOLERANCE, False, False),  # settled, and waiting for the verdict
    ],
)
def test_only_small_steps_crawl_in_rounds(size: float, arrived: bool, crawls: bool) -> None:
    rounds = crept([size, size], arrived=arrived)
    assert rounds_crawl(rounds, size, TOLERANCE, 24, 300) == crawls


def test_whether_the_part_came_as_far_as_it_was_to_go_is_remembered() -> None:
    rounds = crept([1.0])
    for _ in range(ROUND):
        rounds = part_used(rounds, 2 * FAR_ENOUGH, TOLERANCE)
    assert (rounds.left, rounds.arrived) == (0, False)
    rounds = part_used(round_begun(rounds, rounds.start, 1.0, TOLERANCE, 20), 0.5 * FAR_ENOUGH, TOLERANCE)
    assert (rounds.left, rounds.arrived) == (0, True)


def test_a_round_that_waits_for_the_verdict_does_not_end_early() -> None:
    rounds = crept([0.9 * TOLERANCE])
    rounds = part_used(rounds, 0.5 * FAR_ENOUGH * TOLERANCE, TOLERANCE)
    assert (rounds.left, rounds.arrived) == (ROUND - 1, True)


@pytest.mark.parametrize(
    ("sizes", "fresh"),
    [([], False), ([0.9 * TOLERANCE], True), ([1.1 * TOLERANCE], False), ([0.5, 0.9 * TOLERANCE], True)],
)
def test_the_rest_is_fresh_where_the_step_on_all_slices_was_below_the_tolerance(
    sizes: list[float], fresh: bool
) -> None:
    assert rest_is_fresh(crept(sizes), TOLERANCE) == fresh


def test_steps_on_the_part_that_grow_again_begin_the_count_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """They count where all slices have just settled, also against convergence."""
    never_give_up(monkeypatch)
    session, _ = session_of(monkeypatch, estimator="tap", prior=1.0)
    monkeypatch.setattr(effort, "LEAST_PART", 4 * PART)
    states = states_of(session)
    settled = next(
        state
        for state in states
        if state.rounds is not None and rest_is_fresh(state.rounds, session.learner.tolerance)
    )
    assert min(settled.held) == 1
    state, gradient = session.step.observe(settled, threads=1)
    larger = gradient._replace(J=gradient.J + 1.0)
    assert session.conclude(state, gradient).held[0] == settled.held[0] + 1
    assert session.conclude(state, larger).held[0] == 0


@pytest.mark.parametrize("far", [False, True])
def test_learning_that_crawls_in_rounds_ends_where_all_slices_were_used(
    monkeypatch: pytest.MonkeyPatch, far: bool
) -> None:
    """Unless couplings still move."""
    monkeypatch.setattr(scaled, "rounds_crawl", lambda *_: True)
    monkeypatch.setattr(scaled, "is_still", lambda *_: not far)
    session, seen = session_of(monkeypatch, correlations="pair")
    last = session.run()
    assert last.rounds is not None
    if far:
        assert last.outcome == "converged"
        return
    assert (last.outcome, last.rounds.given_up) == ("stalled", -1)
    assert seen[-2:] == [PART, REST]
    assert seen.count(REST) == 3
    assert "shrinks too slowly" in session.step.missing(last)["K"].text
