"""Vectors: neighbouring numbers that a compiled kernel treats as one value.

A vector holds what fits into 64 bytes, 8 doubles or 16 floats, each in a *lane* of its own; kernels give every
lane a slice. Rows of (n, width) arrays are read with `load` and written with `store`; between them vectors are
added, subtracted, multiplied and divided like numbers, also with plain numbers, which count in every lane.

Compilers find such vectors in ordinary loops too, but guard each loop by checks of where its arrays lie, keep
sums in memory instead of registers, and choose between several forms of the loop at run time. Here the text
alone decides which operations are made and in which order: a kernel gives the same bits wherever its arrays
lie, and compiles in a fraction of the time. That a product and the sum it enters are rounded together, once, is
written too (`fma`, `fms`, `fnma`): left to the compiler, two forms of one loop would differ in their last bits.
"""

import operator
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Concatenate, ParamSpec, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from kising.kernels.jit import inlined

Vector: TypeAlias = Any
Array: TypeAlias = npt.NDArray[Any]
P = ParamSpec("P")

BYTES = 64
# e^x is 2^k e^r with |r| ≤ ½ log 2; log 2 in two parts, of which the first has zeros at its end.
LOG2_HIGH, LOG2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
LOG2_E = 1.4426950408889634
ROOT_2 = 1.4142135623730951
# Of the formats: where the exponent begins, and what is added to it.
FRACTION_BITS = {types.float64: 52, types.float32: 23}
BIAS = {types.float64: 1023, types.float32: 127}
# Beyond this, e^x is infinite or zero; half of its logarithm to base 2 is still an exponent of the format.
FARTHEST = {types.float64: 1400.0, types.float32: 170.0}


def width_of(dtype: npt.DTypeLike) -> int:
    """How many lanes a vector of these numbers has."""
    return BYTES // np.dtype(dtype).itemsize


def rows(n: int, dtype: npt.DTypeLike) -> Array:
    """Zeros for `n` vectors, (n, width), where no vector straddles two lines of cache."""
    size = max(n, 1) * BYTES
    room = np.zeros(size + BYTES, np.uint8)
    start = -room.ctypes.data % BYTES
    array: Array = room[start : start + size].view(dtype).reshape(max(n, 1), width_of(dtype))
    return array


def sections(sizes: Sequence[int], dtype: npt.DTypeLike) -> tuple[Array, list[int]]:
    """`rows` for several purposes in one array, and where each of them starts.

    One array keeps compiling quick: every array that is handed to a function adds seven arguments to it.
    """
    starts = [0, *accumulate(sizes)]
    return rows(starts[-1], dtype), starts[:-1]


def _primitive(function: Callable[Concatenate[Any, P], Any]) -> Callable[P, Any]:
    """The kernels' view of a function that tells the compiler what to generate for given types."""
    return cast(Callable[P, Any], intrinsic(function))


class VectorType(types.Type):
    """The compiler's name for a vector of `dtype`."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.width = 8 * BYTES // dtype.bitwidth
        super().__init__(name=f"Vector({dtype})")

    @property
    def key(self) -> Any:
        """What tells two such types apart."""
        return self.dtype


@register_model(VectorType)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, of: VectorType) -> None:
        super().__init__(manager, of, ir.VectorType(_element(of), of.width))


def _element(of: VectorType) -> Any:
    return ir.DoubleType() if of.dtype == types.float64 else ir.FloatType()


def _integers(of: VectorType) -> Any:
    return ir.VectorType(ir.IntType(of.dtype.bitwidth), of.width)


def _spread(context: Any, builder: Any, value: Any, given: Any, wanted: VectorType) -> Any:
    """A vector as it is; a number in every lane."""
    if isinstance(given, VectorType):
        return value
    number = context.cast(builder, value, given, wanted.dtype)
    kind = context.get_value_type(wanted)
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), wanted.width), [0] * wanted.width)
    return builder.shuffle_vector(first, nothing, everywhere)


def _place(context: Any, builder: Any, array_type: Any, array: Any, row_type: Any, row: Any) -> Any:
    """A pointer to a row."""
    kind = context.get_value_type(VectorType(array_type.dtype))
    start = context.make_array(array_type)(context, builder, array).data
    row = context.cast(builder, row, row_type, types.intp)
    offset = builder.mul(row, ir.Constant(row.type, kind.count))
    return builder.bitcast(builder.gep(start, [offset]), kind.as_pointer())


@_primitive
def load(typing: Any, array: Any, row: Any) -> Any:
    """A row of an array."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        where = _place(context, builder, sig.args[0], args[0], sig.args[1], args[1])
        return builder.load(where, align=sig.args[0].dtype.bitwidth // 8)

    return VectorType(array.dtype)(array, row), generate


@_primitive
def store(typing: Any, array: Any, row: Any, value: Any) -> Any:
    """Write a vector, or a number for all lanes, to a row of an array."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        where = _place(context, builder, sig.args[0], args[0], sig.args[1], args[1])
        vector = _spread(context, builder, args[2], sig.args[2], VectorType(sig.args[0].dtype))
        builder.store(vector, where, align=sig.args[0].dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, row, value), generate


def _arithmetic(operators: tuple[Any, ...], instruction: str) -> None:
    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x, y = (_spread(context, builder, a, t, sig.return_type) for a, t in zip(args, sig.args, strict=True))
        return getattr(builder, instruction)(x, y)

    for op in operators:

        @infer_global(op)
        class Rule(AbstractTemplate):
            def generic(self, args: Any, kws: Any) -> Any:
                found = [a for a in args if isinstance(a, VectorType)]
                plain = [a for a in args if isinstance(a, types.Number)]
                return signature(found[0], *args) if found and len(found) + len(plain) == 2 else None

        for pair in ((VectorType, VectorType), (VectorType, types.Number), (types.Number, VectorType)):
            lower_builtin(op, *pair)(generate)


_arithmetic((operator.add, operator.iadd), "fadd")
_arithmetic((operator.sub, operator.isub), "fsub")
_arithmetic((operator.mul, operator.imul), "fmul")
_arithmetic((operator.truediv, operator.itruediv), "fdiv")


def _function(name: str, arity: int) -> Any:
    """One of LLVM's own functions of vectors."""

    def typed(typing: Any, *args: Any) -> Any:
        wanted = next(a for a in args if isinstance(a, VectorType))

        def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            kind = context.get_value_type(wanted)
            vectors = [_spread(context, builder, v, t, wanted) for v, t in zip(values, sig.args, strict=True)]
            full_name = f"{name}.v{wanted.width}f{wanted.dtype.bitwidth}"
            function_type = ir.FunctionType(kind, [kind] * len(vectors))
            function = get_or_insert_function(builder.module, function_type, full_name)
            return builder.call(function, vectors)

        return signature(wanted, *args), generate

    if arity == 1:
        return intrinsic(lambda typing, x: typed(typing, x))
    if arity == 2:
        return intrinsic(lambda typing, x, y: typed(typing, x, y))
    return intrinsic(lambda typing, x, y, z: typed(typing, x, y, z))


sqrt = _function("llvm.sqrt", 1)
magnitude = _function("llvm.fabs", 1)
nearest = _function("llvm.rint", 1)
largest = _function("llvm.maxnum", 2)
smallest = _function("llvm.minnum", 2)


_fuse = _function("llvm.fmuladd", 3)


@_primitive
def _negative(typing: Any, x: Any) -> Any:
    return x(x), lambda context, builder, sig, args: builder.fneg(args[0])


@inlined
def fma(a: Vector, b: Vector, c: Vector) -> Vector:
    """a b + c, rounded once where the machine can."""
    return _fuse(a, b, c)


@inlined
def fms(a: Vector, b: Vector, c: Vector) -> Vector:
    """a b - c, rounded once where the machine can."""
    return _fuse(a, b, _negative(c))


@inlined
def fnma(a: Vector, b: Vector, c: Vector) -> Vector:
    """c - a b, rounded once where the machine can."""
    return _fuse(_negative(a), b, c)


@_primitive
def where_above(typing: Any, a: Any, b: Any, yes: Any, no: Any) -> Any:
    """`yes` in the lanes where a > b, elsewhere, and where either is no number, `no`."""
    of = next(x for x in (a, b) if isinstance(x, VectorType))

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x, y, z, w = (_spread(context, builder, v, t, of) for v, t in zip(args, sig.args, strict=True))
        return builder.select(builder.fcmp_ordered(">", x, y), z, w)

    return signature(of, a, b, yes, no), generate


@_primitive
def power_of_two(typing: Any, k: Any) -> Any:
    """2^k of whole numbers k within the range of the format's exponents."""
    fraction, bias = FRACTION_BITS[k.dtype], BIAS[k.dtype]

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        small = builder.fptosi(args[0], ir.VectorType(ir.IntType(32), k.width))
        wide = small if k.dtype == types.float32 else builder.sext(small, _integers(k))
        biased = builder.add(wide, ir.Constant(_integers(k), [bias] * k.width))
        bits = builder.shl(biased, ir.Constant(_integers(k), [fraction] * k.width))
        return builder.bitcast(bits, context.get_value_type(k))

    return k(k), generate


@_primitive
def _exponent(typing: Any, x: Any) -> Any:
    """k of x = 2^k f, 1 ≤ f < 2, for positive numbers of full precision."""
    fraction, bias = FRACTION_BITS[x.dtype], BIAS[x.dtype]

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = builder.bitcast(args[0], _integers(x))
        k = builder.lshr(bits, ir.Constant(_integers(x), [fraction] * x.width))
        small = ir.VectorType(ir.IntType(32), x.width)
        k = k if x.dtype == types.float32 else builder.trunc(k, small)
        k = builder.sub(k, ir.Constant(small, [bias] * x.width))
        return builder.sitofp(k, context.get_value_type(x))

    return x(x), generate


@_primitive
def _mantissa(typing: Any, x: Any) -> Any:
    """f of x = 2^k f, 1 ≤ f < 2, for positive numbers of full precision."""
    fraction, bias = FRACTION_BITS[x.dtype], BIAS[x.dtype]

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = builder.bitcast(args[0], _integers(x))
        bits = builder.and_(bits, ir.Constant(_integers(x), [(1 << fraction) - 1] * x.width))
        bits = builder.or_(bits, ir.Constant(_integers(x), [bias << fraction] * x.width))
        return builder.bitcast(bits, context.get_value_type(x))

    return x(x), generate


@_primitive
def _farthest(typing: Any, x: Any) -> Any:
    value = FARTHEST[x.dtype]
    return types.float64(x), lambda context, builder, sig, args: ir.Constant(ir.DoubleType(), value)


@inlined
def exp(given: Vector) -> Vector:
    """e^x to within four units of the last place; 0 and ∞ beyond the format's range."""
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
    # In halves: 2^k itself may lie beyond the format where e^x does not.
    half = nearest(0.5 * k)
    value = p * power_of_two(half) * power_of_two(k - half)
    # What is no number stays so.
    return where_above(magnitude(given), -1.0, value, given)


@inlined
def log(x: Vector) -> Vector:
    """The natural logarithm of positive numbers of full precision, to within four units of the last place or of
    the sum's larger part.
    """
    k, f = _exponent(x), _mantissa(x)
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
    """tanh x, to within two units of the last place of 1."""
    return 1.0 - 2.0 / (1.0 + exp(x + x))
