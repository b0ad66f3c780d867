"""Vectors against NumPy, lane by lane."""

from __future__ import annotations

import numpy as np
import pytest

from kising.kernels import vectors as v
from kising.kernels.jit import kernel

DTYPES = ["float64", "float32"]


@kernel
def _each(what: int, x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    for k in range(x.shape[0]):
        a, b = v.load(x, k), v.load(y, k)
        value = a
        if what == 0:
            value = (a + b) * (a - 2.0) / (b + 3)
        elif what == 1:
            value = v.fma(a, b, 0.5) + v.fms(a, 0.5, b) - v.fnma(a, b, a)
        elif what == 2:
            value = v.sqrt(v.magnitude(a)) + v.largest(a, b) - v.smallest(a, 0.25)
        elif what == 3:
            value = v.where_above(a, b, 1.0, v.where_above(b, 0.0, a, b))
        elif what == 4:
            value = v.power_of_two(v.exponent(a)) * v.mantissa(a)
        v.store(out, k, value)


def each(what: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    width = v.width_of(x.dtype)
    rows = [v.rows(-(-len(x) // width), x.dtype) for _ in range(3)]
    for row, values in zip(rows, (x, y), strict=False):
        row[:] = 1
        row.reshape(-1)[: len(x)] = values
    _each(what, *rows)
    return rows[2].reshape(-1)[: len(x)]


def numbers(dtype: str, n: int = 1003) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    return random.normal(size=n).astype(dtype), random.normal(size=n).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic_is_that_of_each_lane(dtype: str) -> None:
    x, y = numbers(dtype)
    two, three = x.dtype.type(2), x.dtype.type(3)
    np.testing.assert_array_equal(each(0, x, y), (x + y) * (x - two) / (y + three))


@pytest.mark.parametrize("dtype", DTYPES)
def test_fused_products(dtype: str) -> None:
    x, y = numbers(dtype)
    wide_x, wide_y = x.astype(float), y.astype(float)
    value = (wide_x * wide_y + 0.5) + (0.5 * wide_x - wide_y) - (wide_x - wide_x * wide_y)
    np.testing.assert_allclose(each(1, x, y), value, atol=20 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_roots_magnitudes_and_bounds(dtype: str) -> None:
    x, y = numbers(dtype)
    quarter = x.dtype.type(0.25)
    np.testing.assert_array_equal(
        each(2, x, y), np.sqrt(np.abs(x)) + np.maximum(x, y) - np.minimum(x, quarter)
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_lanes_are_chosen_one_by_one_and_nan_is_above_nothing(dtype: str) -> None:
    x, y = numbers(dtype)
    x[::7] = np.nan
    np.testing.assert_array_equal(each(3, x, y), np.where(x > y, 1, np.where(y > 0, x, y)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponent_and_mantissa_make_up_a_number(dtype: str) -> None:
    x = np.exp(10 * numbers(dtype)[0])
    np.testing.assert_array_equal(each(4, x, x), x)


def test_rows_are_aligned_to_cache_lines_and_sections_follow_each_other() -> None:
    array, starts = v.sections((3, 0, 5, 1), "float32")
    assert starts == [0, 3, 3, 8]
    assert array.shape == (9, 16)
    assert array.ctypes.data % v.BYTES == 0
    assert not array.any()
