"""Vectors against NumPy doing the same on every number."""

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
            value = v.exp(a)
        elif what == 5:
            value = v.log(a)
        elif what == 6:
            value = v.tanh(a)
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
def test_choices_by_lane_and_what_is_no_number_is_above_nothing(dtype: str) -> None:
    x, y = numbers(dtype)
    x[::7] = np.nan
    np.testing.assert_array_equal(each(3, x, y), np.where(x > y, 1, np.where(y > 0, x, y)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponential(dtype: str) -> None:
    x, _ = numbers(dtype)
    x *= 25
    value = np.exp(x.astype(float))
    np.testing.assert_allclose(each(4, x, x), value, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponential_at_the_ends_of_floating_point(dtype: str) -> None:
    end = np.log(np.finfo(dtype).max)
    x = np.array(
        [0, end * 0.999, end * 1.01, 1e6, np.inf, -end * 0.98, -2 * end, -1e6, -np.inf, np.nan], dtype
    )
    with np.errstate(over="ignore"):
        expected = np.exp(x)
    np.testing.assert_allclose(each(4, x, x), expected, rtol=1e-4 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_logarithm_and_hyperbolic_tangent(dtype: str) -> None:
    x, _ = numbers(dtype)
    size = np.exp(20 * x)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(each(5, size, x), np.log(size.astype(float)), rtol=4 * eps, atol=4 * eps)
    np.testing.assert_allclose(each(6, 5 * x, x), np.tanh((5 * x).astype(float)), atol=4 * eps)


def test_rows_begin_at_lines_of_cache_and_sections_follow_each_other() -> None:
    array, starts = v.sections((3, 0, 5, 1), "float32")
    assert starts == [0, 3, 3, 8]
    assert array.shape == (9, 16)
    assert array.ctypes.data % v.BYTES == 0
    assert not array.any()
