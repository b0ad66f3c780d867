"""Small pieces that several kernels share."""

from kising.estimators.chunks import Estimate
from kising.kernels.jit import kernel
from kising.model import Array


@kernel
def clip(x: float, bound: float) -> float:
    """The value of [-bound, bound] nearest to x."""
    return min(max(x, -bound), bound)


@kernel
def damping_at(iteration: int, damping: float, max_iterations: int) -> float:
    """The damping of an iteration: the constant given, or, where that is negative, the adaptive schedule.

    Adaptive: undamped for the first sixteenth of the cap, which most slices never leave; 0.5 up to half of
    the cap, which settles most of those that oscillate; 0.8 for the rest.
    """
    if damping >= 0.0:
        return damping
    if 16 * iteration < max_iterations:
        return 0.0
    return 0.5 if 2 * iteration < max_iterations else 0.8


@kernel
def sum_lanes(rows: Array, pair_abs: int, pair_sum: int, out: Estimate) -> None:
    """Add to the sums of `out` what every lane has gathered in row `pair_abs` and in the rows from `pair_sum` on,
    of which i Nh + b is that of ⟨τ_i σ_b⟩; in the order of the lanes.
    """
    nv, nh = out.pair_sum.shape
    for lane in range(rows.shape[1]):
        out.pair_abs[0] += rows[pair_abs, lane]
        for i in range(nv):
            for b in range(nh):
                out.pair_sum[i, b] += rows[pair_sum + i * nh + b, lane]
