"""The damping of iterated estimators."""

from kising.kernels.jit import kernel


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
