"""Naive mean field: τ and σ independent, first order in the couplings (maths.md, "TAP and naive mean field").

m_i = tanh[ θ_i + Σ_b K_ib μ_b ]     μ_a = tanh[ g_a - Σ_i K_ia m_i ]     ⟨τ_i σ_b⟩ = m_i μ_b
"""

from kising.estimators.chunks import Block, Estimate
from kising.estimators.tap import estimate_to_order
from kising.model import Couplings


def estimate(
    couplings: Couplings,
    block: Block,
    out: Estimate,
    *,
    tolerance: float,
    damping: float,
    max_iterations: int,
) -> None:
    """Fill `out` with the mean-field averages of the block's slices."""
    estimate_to_order(
        1, couplings, block, out, tolerance=tolerance, damping=damping, max_iterations=max_iterations
    )
