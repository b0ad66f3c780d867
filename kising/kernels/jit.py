"""The options every compiled kernel shares.

`nogil` lets blocks of slices run on several Python threads; the NumPy error model turns a division by zero
into an infinity that the kernels guard against, where Python's would raise and end a run.

There is no fast-math on purpose. It lets the compiler reorder sums in the vectorised form of a loop, and the
machine code chooses between that form and the plain one by where arrays happen to lie in memory: the last
digits would then differ between threads, processes and restarts. With IEEE arithmetic kept as written, both
forms give the same bits.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def forget_older_kernels(package: Path) -> None:
    """Remove the indexes of compiled kernels that are older than any source file of the package.

    Numba compiles a kernel again when the file it is in has changed, not when that of a function it calls has: in a
    checkout under development it would go on with what that function used to be.
    """
    with suppress(OSError):
        newest = max((path.stat().st_mtime for path in package.rglob("*.py")), default=0.0)
        for index in package.rglob("__pycache__/*.nbi"):
            if index.stat().st_mtime < newest:
                index.unlink(missing_ok=True)


forget_older_kernels(Path(__file__).parents[1])


def kernel(function: F) -> F:
    """Compile a function to machine code on its first call, and keep that code on disk."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def inlined(function: F) -> F:
    """A small piece of kernels, compiled into each of them."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", forceinline=True)(function))
