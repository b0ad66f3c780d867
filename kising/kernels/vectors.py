"""Vectors: neighbouring numbers that a compiled kernel treats as one value.

A vector fills 64 bytes: 8 doubles or 16 floats, each in a *lane* of its own. Kernels give every lane a slice.
Rows of (n, width) arrays are read with `load` and written with `store`. In between, vectors are added,
subtracted, multiplied and divided like numbers, also with plain numbers, which then stand in every lane.

Compilers find such vectors in ordinary loops too. But they guard each loop with checks of the alignment of its
arrays, keep sums in memory instead of registers, and choose between several forms of the loop at run time. Here
the source alone decides which operations are done and in which order: a kernel gives the same bits wherever its
arrays lie, and compiles in a fraction of the time. Fused products, a product and a sum rounded once, are written
out for the same reason (`fma`, `fms`, `fnma`): left to the compiler, two forms of one loop would differ in their
last bits.
"""

import operator
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import types

from kising.kernels.jit import inlined
from kising.kernels.numba_internals import (
    AbstractTemplate,
    get_or_insert_function,
    infer_global,
    intrinsic,
    ir,
    lower_builtin,
    models,
    primitive,
    register_model,
    signature,
)

Vector: TypeAlias = Any
Array: TypeAlias = npt.NDArray[Any]

BYTES = 64
# The floating-point formats: the position of the exponent, and the constant added to it.
FRACTION_BITS = {types.float64: 52, types.float32: 23}
BIAS = {types.float64: 1023, types.float32: 127}
# The logarithm up to which a product of positive numbers is safe from overflow.
LARGEST_EXPONENT = {"float64": 600.0, "float32": 80.0}


def width_of(dtype: npt.DTypeLike) -> int:
    """The number of lanes of a vector of this type."""
    return BYTES // np.dtype(dtype).itemsize


def rows(n: int, dtype: npt.DTypeLike) -> Array:
    """Zeros for `n` vectors, (n, width), aligned so that no vector straddles two cache lines."""
    size = max(n, 1) * BYTES
    room = np.zeros(size + BYTES, np.uint8)
    start = -room.ctypes.data % BYTES
    array: Array = room[start : start + size].view(dtype).reshape(max(n, 1), width_of(dtype))
    return array


def sections(sizes: Sequence[int], dtype: npt.DTypeLike) -> tuple[Array, list[int]]:
    """One array of `rows` with a section for each size, and the row where each section starts.

    One array compiles faster than several: every array passed to a function adds seven arguments to it.
    """
    starts = [0, *accumulate(sizes)]
    return rows(starts[-1], dtype), starts[:-1]


class VectorType(types.Type):
    """The compiler's type of a vector of `dtype`."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.width = 8 * BYTES // dtype.bitwidth
        super().__init__(name=f"Vector({dtype})")

    @property
    def key(self) -> Any:
        """Two vector types are equal if their keys are."""
        return self.dtype


@register_model(VectorType)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, of: VectorType) -> None:
        super().__init__(manager, of, ir.VectorType(_element(of), of.width))


def _element(of: VectorType) -> Any:
    return ir.DoubleType() if of.dtype == types.float64 else ir.FloatType()


def _integers(of: VectorType, bits: int | None = None) -> Any:
    """The type of a vector of integers with the lanes of `of`, by default as wide as its numbers."""
    return ir.VectorType(ir.IntType(bits or of.dtype.bitwidth), of.width)


def _constant(kind: Any, value: int) -> Any:
    """A vector of integers with the same value in every lane."""
    return ir.Constant(kind, [value] * kind.count)


def _spread(context: Any, builder: Any, value: Any, given: Any, wanted: VectorType) -> Any:
    """A vector as it is; a number in every lane."""
    if isinstance(given, VectorType):
        return value
    number = context.cast(builder, value, given, wanted.dtype)
    undefined = ir.Constant(context.get_value_type(wanted), ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, undefined, _constant(_integers(wanted, 32), 0))


def _spread_all(context: Any, builder: Any, sig: Any, args: Any, wanted: VectorType) -> list[Any]:
    """All arguments of a call as vectors."""
    return [_spread(context, builder, a, t, wanted) for a, t in zip(args, sig.args, strict=True)]


def _place(context: Any, builder: Any, array_type: Any, array: Any, row_type: Any, row: Any) -> Any:
    """A pointer to a row of an array."""
    kind = context.get_value_type(VectorType(array_type.dtype))
    start = context.make_array(array_type)(context, builder, array).data
    row = context.cast(builder, row, row_type, types.intp)
    offset = builder.mul(row, ir.Constant(row.type, kind.count))
    return builder.bitcast(builder.gep(start, [offset]), kind.as_pointer())


@primitive
def load(typing: Any, array: Any, row: Any) -> Any:
    """A row of an array."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        where = _place(context, builder, sig.args[0], args[0], sig.args[1], args[1])
        return builder.load(where, align=sig.args[0].dtype.bitwidth // 8)

    return VectorType(array.dtype)(array, row), generate


@primitive
def store(typing: Any, array: Any, row: Any, value: Any) -> Any:
    """Write a vector, or a number for all lanes, to a row of an array."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        where = _place(context, builder, sig.args[0], args[0], sig.args[1], args[1])
        vector = _spread(context, builder, args[2], sig.args[2], VectorType(sig.args[0].dtype))
        builder.store(vector, where, align=sig.args[0].dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, row, value), generate


def _arithmetic(operators: tuple[Any, ...], instruction: str) -> None:
    """Compile operators between vectors, or vectors and numbers, to an instruction."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return getattr(builder, instruction)(*_spread_all(context, builder, sig, args, sig.return_type))

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
    """One of LLVM's intrinsic functions, applied to vectors."""

    def typed(typing: Any, *args: Any) -> Any:
        wanted = next(a for a in args if isinstance(a, VectorType))

        def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            kind = context.get_value_type(wanted)
            vectors = _spread_all(context, builder, sig, values, wanted)
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


@primitive
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


@primitive
def where_above(typing: Any, a: Any, b: Any, yes: Any, no: Any) -> Any:
    """`yes` in the lanes where a > b, `no` elsewhere and where either is NaN."""
    of = next(x for x in (a, b) if isinstance(x, VectorType))

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x, y, z, w = _spread_all(context, builder, sig, args, of)
        return builder.select(builder.fcmp_ordered(">", x, y), z, w)

    return signature(of, a, b, yes, no), generate


@primitive
def power_of_two(typing: Any, k: Any) -> Any:
    """2^k of whole numbers k that are valid exponents of the format."""
    wide = _integers(k)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        exponent = builder.fptosi(args[0], _integers(k, 32))
        if k.dtype == types.float64:
            exponent = builder.sext(exponent, wide)
        biased = builder.add(exponent, _constant(wide, BIAS[k.dtype]))
        bits = builder.shl(biased, _constant(wide, FRACTION_BITS[k.dtype]))
        return builder.bitcast(bits, context.get_value_type(k))

    return k(k), generate


@primitive
def exponent(typing: Any, x: Any) -> Any:
    """k of x = 2^k f, 1 ≤ f < 2, for positive normal numbers."""
    wide, narrow = _integers(x), _integers(x, 32)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = builder.bitcast(args[0], wide)
        k = builder.lshr(bits, _constant(wide, FRACTION_BITS[x.dtype]))
        if x.dtype == types.float64:
            k = builder.trunc(k, narrow)
        k = builder.sub(k, _constant(narrow, BIAS[x.dtype]))
        return builder.sitofp(k, context.get_value_type(x))

    return x(x), generate


@primitive
def mantissa(typing: Any, x: Any) -> Any:
    """f of x = 2^k f, 1 ≤ f < 2, for positive normal numbers."""
    wide, fraction = _integers(x), FRACTION_BITS[x.dtype]

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = builder.bitcast(args[0], wide)
        bits = builder.and_(bits, _constant(wide, (1 << fraction) - 1))
        bits = builder.or_(bits, _constant(wide, BIAS[x.dtype] << fraction))
        return builder.bitcast(bits, context.get_value_type(x))

    return x(x), generate
