"""exp, log and tanh of vectors, from additions, multiplications and the bits of floating-point numbers alone.

The mathematical library of the host is not used, so results do not depend on it.
"""

from typing import Any

from numba import types

from kising.kernels.jit import inlined
from kising.kernels.numba_internals import ir, primitive
from kising.kernels.vectors import (
    Vector,
    exponent,
    fma,
    fnma,
    largest,
    magnitude,
    mantissa,
    nearest,
    power_of_two,
    smallest,
    where_above,
)

# e^x is 2^k e^r with |r| ≤ ½ log 2. log 2 is split in two parts; the first ends in zeros, so k times it is exact.
LOG2_HIGH, LOG2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
LOG2_E = 1.4426950408889634
ROOT_2 = 1.4142135623730951
# Beyond this, e^x is infinite or zero; half of its logarithm to base 2 is still an exponent of the format.
FARTHEST = {types.float64: 1400.0, types.float32: 170.0}


@primitive
def _farthest(typing: Any, x: Any) -> Any:
    """`FARTHEST` of the type of x, as a constant."""
    value = FARTHEST[x.dtype]
    return types.float64(x), lambda context, builder, sig, args: ir.Constant(ir.DoubleType(), value)


@inlined
def exp(given: Vector) -> Vector:
    """e^x to within 4 ulp; 0 and ∞ beyond the range of the format."""
    x = smallest(largest(given, -_farthest(given)), _farthest(given))
    k = nearest(x * LOG2_E)
    r = fnma(k, LOG2_LOW, fnma(k, LOG2_HIGH, x))
    p = fma(r, 1.0 / 6227020800.0, 1.0 / 479001600.0)
    p = fma(p, r, 1.0 / 39916800.0)
    p = fma(p, r, 1.0 / 3628800.0)
    p = fma(p, r, 1.0 / 362880.0)
    p = fma(p, r, 1.0 / 40320.0)
    p = fma(p, r, 1.0 / 5040.0)
    p = fma(p, r, 1.0 / 720.0)
    p = fma(p, r, 1.0 / 120.0)
    p = fma(p, r, 1.0 / 24.0)
    p = fma(p, r, 1.0 / 6.0)
    p = fma(p, r, 0.5)
    p = fma(p * r, r, r) + 1.0
    # In two halves: 2^k may overflow where e^x does not.
    half = nearest(0.5 * k)
    value = p * power_of_two(half) * power_of_two(k - half)
    # NaN propagates.
    return where_above(magnitude(given), -1.0, value, given)


@inlined
def log(x: Vector) -> Vector:
    """The natural logarithm of positive normal numbers, to within 4 ulp of the result or of the larger term of
    its sum, k log 2 + log f.
    """
    k, f = exponent(x), mantissa(x)
    k = where_above(f, ROOT_2, k + 1.0, k)
    f = where_above(f, ROOT_2, 0.5 * f, f)
    # log f = 2 atanh s, and s² ≤ 0.0295.
    s = (f - 1.0) / (f + 1.0)
    z = s * s
    p = fma(z, 2.0 / 21.0, 2.0 / 19.0)
    p = fma(p, z, 2.0 / 17.0)
    p = fma(p, z, 2.0 / 15.0)
    p = fma(p, z, 2.0 / 13.0)
    p = fma(p, z, 2.0 / 11.0)
    p = fma(p, z, 2.0 / 9.0)
    p = fma(p, z, 2.0 / 7.0)
    p = fma(p, z, 0.4)
    p = fma(p, z, 2.0 / 3.0)
    return fma(k, LOG2_HIGH, fma(k, LOG2_LOW, fma(p * z, s, s + s)))


@inlined
def tanh(x: Vector) -> Vector:
    """tanh x, to within 2 ulp of 1."""
    return 1.0 - 2.0 / (1.0 + exp(x + x))


@inlined
def scaled(x: Vector, k: Vector) -> Vector:
    """x 2^k of whole numbers k; 0 below the range of the format."""
    k = largest(k, -_farthest(k))
    half = nearest(0.5 * k)
    return x * power_of_two(half) * power_of_two(k - half)


@inlined
def exp_parts(x: Vector) -> tuple[Vector, Vector]:
    """f near 1 and a whole number k with e^x = f 2^k, for x beyond the range of e^x too."""
    k = nearest(x * LOG2_E)
    return exp(fnma(k, LOG2_LOW, fnma(k, LOG2_HIGH, x))), k
