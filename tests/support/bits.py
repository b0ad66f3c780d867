"""However a sweep is run, its rows are the same, bit for bit."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kising.sweep.store.columns import DETERMINISTIC_COLUMNS


def assert_same_bits(one: pd.DataFrame, other: pd.DataFrame) -> None:
    columns = list(DETERMINISTIC_COLUMNS)
    assert len(one) == len(other)
    for name in columns:
        a, b = one[name], other[name]
        assert a.isna().equals(b.isna()), name
        if a.dtype == np.float64:
            np.testing.assert_array_equal(a.to_numpy().view(np.uint64), b.to_numpy().view(np.uint64), name)
        else:
            assert list(a.dropna()) == list(b.dropna()), name
