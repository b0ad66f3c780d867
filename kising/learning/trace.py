"""The trace: one row per iteration, and the table of all of them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kising.blocks import BLOCKS
from kising.estimators.gradient import Gradient
from kising.learning.trace_columns import TRACE_COLUMNS
from kising.model import Array

if TYPE_CHECKING:
    import pandas as pd


def trace_row(
    iteration: int,
    sizes: Sequence[float],
    errors: Mapping[str, float] | None,
    gradient: Gradient,
    noise: Sequence[float],
) -> Array:
    """The row of an iteration; `sizes` of the step and `noise` are per block, `errors` the RMSE by block."""
    return np.array(
        [
            iteration,
            *sizes,
            *(errors.get(x, np.nan) if errors else np.nan for x in BLOCKS),
            gradient.converged,
            gradient.corrected,
            gradient.abs_m,
            gradient.abs_mu,
            gradient.abs_pair,
            gradient.log_likelihood,
            gradient.iterations,
            *noise,
        ]
    )


def trace_table(trace: Array) -> "pd.DataFrame":
    """The rows with the names of their columns."""
    import pandas as pd

    return pd.DataFrame(trace, columns=list(TRACE_COLUMNS)).astype({"iteration": np.int64})
