"""The columns of a trace, which has one row per EM iteration. Imports no numba: tables are read without a compiler."""

from typing import Final

from kising.blocks import BLOCKS

TRACE: Final[dict[str, str]] = {
    "iteration": "EM iteration, counted from 0",
    **{f"step_{x}": f"√(mean Δ{x}²)/sd_{x} of the scale-free step" for x in BLOCKS},
    **{f"rmse_{x}": f"RMSE of {x} in bond scales; NaN where there is no truth" for x in BLOCKS},
    "bp_converged": "fraction of slices whose E-step reached its tolerance",
    "corrected": "fraction of pair averages that were replaced",
    "abs_m": "mean of |m_i|",
    "abs_mu": "mean of |μ_b|",
    "abs_pair": "mean of |⟨τ_i σ_b⟩|",
    "log_likelihood": "nats per slice",
    "estep_iterations": "iterations of the E-step, mean over slices",
    **{
        f"noise_{x}": f"Monte-Carlo error of the averaged {x} divided by its statistical error; NaN without sampling"
        for x in BLOCKS
    },
}
"""Names and meanings."""

TRACE_COLUMNS: Final = tuple(TRACE)
NOISE: Final = [TRACE_COLUMNS.index(f"noise_{name}") for name in BLOCKS]
"""Where the Monte-Carlo errors of all blocks are."""
