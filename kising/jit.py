"""The options every compiled kernel shares.

`nogil` lets blocks of slices run on several Python threads; the NumPy error model turns a division by zero
into an infinity that the kernels guard against, where Python's would raise and end a run.

There is no fast-math on purpose. It lets the compiler reorder sums in the vectorised form of a loop, and the
machine code chooses between that form and the plain one by where arrays happen to lie in memory: the last
digits would then differ between threads, processes and restarts. With IEEE arithmetic kept as written, both
forms give the same bits.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function to machine code on its first call, and keep that code on disk."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def inlined(function: F) -> F:
    """A small piece of kernels, compiled into each of them."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", forceinline=True)(function))
