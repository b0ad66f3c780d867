from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kising import Couplings, bond_scales, draw_couplings, simulate
from kising.learning.scores import nominal_scales
from kising.learning.state import first_state, prepare
from kising.learning.trace_columns import TRACE_COLUMNS
from kising.learning.verdict import LARGEST_GROWTH, converged_blocks, has_diverged, judge, relative_sizes
from kising.options import Learner

NETWORK = draw_couplings(4, 2, bias=0.3, seed=1)
# Of h, b, F, G and M, of which the last three are not learned: there are no inputs, and no M.
FIELDS = (5, 5, 5, 5, 5)
SETTLED = (True, True, True, True, True)
PROBLEM = prepare(simulate(NETWORK, 50, seed=2).visible, 2, nominal_scales(4, 2))


def sized(scale: float, *, of: str) -> Couplings:
    """Couplings of which one block has this root mean square, and the others nearly none."""
    return Couplings(
        **{name: np.full(x.shape, scale if name == of else 1e-6) for name, x in NETWORK._asdict().items()}
    )


@pytest.mark.parametrize("block", ["J", "K", "L", "h", "b"])
@pytest.mark.parametrize("strength", [0.01, 1.0, 3.0])
def test_a_block_has_diverged_beyond_its_scale_or_that_of_a_dense_network(
    block: str, strength: float
) -> None:
    """The larger of the two counts: in a weak ensemble, couplings of ordinary size are no divergence."""
    scales = bond_scales(4, 2, strength=strength, connectivity=1.0, bias=strength)
    unit = getattr(nominal_scales(4, 2), block)
    limit = LARGEST_GROWTH * max(getattr(scales, block), unit)
    assert limit == pytest.approx(LARGEST_GROWTH * max(strength, 1.0) * unit)
    assert not has_diverged(sized(0.999 * limit, of=block), scales)
    assert has_diverged(sized(1.001 * limit, of=block), scales)


def test_what_is_not_a_number_has_diverged() -> None:
    assert has_diverged(sized(np.nan, of="K"), PROBLEM.scales)
    assert has_diverged(sized(np.inf, of="L"), PROBLEM.scales)


def state_after(iterations: int, held: tuple[int, ...] = (0, 0, 0)):
    """J, K and L settled for this long, all else for five iterations."""
    return replace(
        first_state(NETWORK), trace=np.zeros((iterations, len(TRACE_COLUMNS))), held=(*held, *FIELDS)
    )


def test_flags_are_counted_block_by_block() -> None:
    learner = Learner(hold=3)
    found = judge(state_after(5, (2, 2, 1)), NETWORK, (True, False, True, *SETTLED), PROBLEM, learner)
    assert found == ((3, 0, 2, 6, 6, 6, 6, 6), "running")
    state = replace(state_after(6), held=found.held)
    assert converged_blocks(state, learner) == {"J": True, "K": False, "L": False, "h": True, "b": True}
    assert judge(state_after(5, (2, 3, 2)), NETWORK, (True, True, True, *SETTLED), PROBLEM, learner) == (
        (3, 4, 3, 6, 6, 6, 6, 6),
        "converged",
    )
    # A bias that has not settled keeps learning going as any other block does.
    moving = (True, True, True, False, True, True, True, True)
    assert judge(state_after(5, (2, 3, 2)), NETWORK, moving, PROBLEM, learner).outcome == "running"


def test_learning_ends_at_its_limit_unless_it_has_converged() -> None:
    learner = Learner(hold=1, max_iterations=6)
    settled, unsettled = (True, True, True, *SETTLED), (True, True, False, *SETTLED)
    assert judge(state_after(4), NETWORK, unsettled, PROBLEM, learner).outcome == "running"
    assert judge(state_after(5), NETWORK, unsettled, PROBLEM, learner).outcome == "stalled"
    assert judge(state_after(5), NETWORK, settled, PROBLEM, learner).outcome == "converged"


def test_divergence_takes_all_flags_back() -> None:
    learner = Learner(hold=1)
    settled = (True, True, True, *SETTLED)
    nothing = (0, 0, 0, 0, 0, 0, 0, 0)
    assert judge(state_after(5, (4, 4, 4)), None, settled, PROBLEM, learner) == (nothing, "diverged")
    far = replace(state_after(5, (4, 4, 4)), couplings=sized(1e3, of="J"))
    assert judge(far, NETWORK, settled, PROBLEM, learner) == (nothing, "diverged")


def test_sizes_of_steps_are_root_mean_squares_in_bond_scales() -> None:
    step = Couplings(*(0.3 * sd * np.sign(x) for x, sd in zip(NETWORK, PROBLEM.scales, strict=True)))
    assert relative_sizes(step, PROBLEM.scales) == pytest.approx((0.3, 0.3, 0.3, 0.3, 0.3, 0.0, 0.0, 0.0))
    assert relative_sizes(None, PROBLEM.scales) == (np.inf,) * 8
