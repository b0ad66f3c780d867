"""exp, log and tanh of vectors against NumPy's in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from kising.kernels import vector_math
from kising.kernels.jit import kernel
from kising.kernels.vectors import load, rows, store, width_of

DTYPES = ["float64", "float32"]
EXP, LOG, TANH = range(3)


@kernel
def _apply(function: int, x: np.ndarray, out: np.ndarray) -> None:
    for k in range(x.shape[0]):
        value = load(x, k)
        if function == EXP:
            value = vector_math.exp(value)
        elif function == LOG:
            value = vector_math.log(value)
        else:
            value = vector_math.tanh(value)
        store(out, k, value)


def apply(function: int, x: np.ndarray) -> np.ndarray:
    given, out = (rows(-(-len(x) // width_of(x.dtype)), x.dtype) for _ in range(2))
    given[:] = 1
    given.reshape(-1)[: len(x)] = x
    _apply(function, given, out)
    return out.reshape(-1)[: len(x)]


def numbers(dtype: str, n: int = 1003) -> np.ndarray:
    return np.random.default_rng(5).normal(size=n).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponential(dtype: str) -> None:
    x = numbers(dtype)
    x *= 25
    value = np.exp(x.astype(float))
    np.testing.assert_allclose(apply(EXP, x), value, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponential_at_the_ends_of_floating_point(dtype: str) -> None:
    end = np.log(np.finfo(dtype).max)
    x = np.array(
        [0, end * 0.999, end * 1.01, 1e6, np.inf, -end * 0.98, -2 * end, -1e6, -np.inf, np.nan], dtype
    )
    with np.errstate(over="ignore"):
        expected = np.exp(x)
    np.testing.assert_allclose(apply(EXP, x), expected, rtol=1e-4 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_logarithm_and_hyperbolic_tangent(dtype: str) -> None:
    x = numbers(dtype)
    size = np.exp(20 * x)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(apply(LOG, size), np.log(size.astype(float)), rtol=4 * eps, atol=4 * eps)
    np.testing.assert_allclose(apply(TANH, 5 * x), np.tanh((5 * x).astype(float)), atol=4 * eps)
