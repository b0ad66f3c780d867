"""The meanings of the symbols that occur on a report's page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pandas as pd

from kising.blocks import TABLE

_SOURCES: Final = {
    "visible": "visible spins",
    "hidden": "hidden spins",
    "one": "nothing else: a bias",
    "input": "known inputs",
}
_OF_NETWORKS: Final = {
    "g": "strength of the couplings",
    "c": "connectivity: the probability that a bond is not zero",
    "RMSE": "root mean square error of the learned couplings, in bond scales",
    "bond scale": "the standard deviation of a non-zero bond of the block",
}
_OF_INFERENCE: Final = {
    "m": "⟨tanh f⟩, the expected next state of a visible spin, averaged over hidden spins",
    "μ": "⟨σ⟩, the average of a hidden spin, given the visible ones",
    "⟨τσ⟩": "⟨tanh(f) σ⟩, the average of a pair of a visible and a hidden spin",
}


def symbols(runs: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Every symbol with its meaning."""
    yield "T", "length of the recording, in time steps"
    yield "Nv, Nh", "numbers of visible and of hidden spins; N is their sum"
    learned = runs[runs["task"] == "learn"] if len(runs) else runs
    for block in TABLE if len(learned) else ():
        if learned[f"converged_{block.name}"].notna().any():
            yield block.name, f"acts on {block.rows} spins, from {_SOURCES[block.columns]}"
    simulated = len(runs) > 0 and runs["data.file"].isna().any()
    if simulated:
        for name, meaning in _OF_NETWORKS.items():
            if name in ("g", "c") or len(learned):
                yield name, meaning
    if len(runs) and runs["rmse_pair"].notna().any():
        yield from _OF_INFERENCE.items()
