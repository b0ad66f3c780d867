"""The couplings of a fit as a table, one row per coupling, with tests of whether each differs from zero.

    z = value / error      p = P(|N(0, 1)| > |z|)      q: p adjusted by Benjamini and Hochberg (1995)

The adjustment is made for each block by itself. Among the couplings of a block with q < 0.1, at most a tenth are
expected to be zero in truth.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import erfc

from kising.blocks import TABLE, Block
from kising.model import Array, Couplings

if TYPE_CHECKING:
    import pandas as pd

# Models always have these blocks. Others are left out where all of their couplings are zero.
ALWAYS = ("J", "K", "L")


def edge_table(
    couplings: Couplings,
    errors: Couplings | None,
    names: Sequence[str] | None,
    input_names: Sequence[str] | None = None,
) -> "pd.DataFrame":
    """One row per coupling, block by block, each row by row; without errors, error, z, p and q are NaN."""
    import pandas as pd

    tables = []
    for block in present_blocks(couplings):
        value = getattr(couplings, block.name)
        error = np.full(value.shape, np.nan) if errors is None else getattr(errors, block.name)
        targets = labels(block.rows, len(value), names, input_names)
        sources = labels(block.columns, value[0].size, names, input_names)
        z, p = z_and_p(value.ravel(), error.ravel())
        tables.append(
            pd.DataFrame(
                {
                    "block": block.name,
                    "target": np.repeat(np.array(targets, dtype=object), len(sources)),
                    "source": np.tile(np.array(sources, dtype=object), len(targets)),
                    "value": value.ravel(),
                    "error": error.ravel(),
                    "z": z,
                    "p": p,
                    "q": benjamini_hochberg(p),
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def present_blocks(couplings: Couplings) -> Iterator[Block]:
    """The blocks that the model has."""
    for block in TABLE:
        value = getattr(couplings, block.name)
        if value.size and (block.name in ALWAYS or value.any()):
            yield block


def labels(
    kind: str, count: int, names: Sequence[str] | None, input_names: Sequence[str] | None = None
) -> list[str]:
    """What units are called: visible spins by their names or numbers, inputs by their names or `u0`, `hidden 0`,
    `bias`.
    """
    if kind == "visible":
        return [str(name) for name in names] if names is not None else [str(i) for i in range(count)]
    if kind == "one":
        return ["bias"]
    if kind == "input" and input_names is not None:
        return [str(name) for name in input_names]
    return [f"hidden {a}" if kind == "hidden" else f"u{a}" for a in range(count)]


def z_and_p(value: Array, error: Array) -> tuple[Array, Array]:
    """Values in standard errors, and the two-sided p of each under a normal law; NaN where the error is NaN or 0."""
    z = np.full(value.shape, np.nan)
    np.divide(value, error, out=z, where=error > 0)
    p: Array = erfc(np.abs(z) / np.sqrt(2.0))
    return z, p


def benjamini_hochberg(p: Array) -> Array:
    """q_i = min over p_j ≥ p_i of p_j n / rank_j, at most 1. NaN stays NaN and does not count in n."""
    q = np.full(p.shape, np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(-p[known], kind="stable")]
    ranks = np.arange(len(order), 0, -1)
    # p n / n can be an ulp below p.
    adjusted = np.maximum(p[order] * len(order) / ranks, p[order])
    q[order] = np.minimum.accumulate(np.minimum(adjusted, 1.0))
    return q
