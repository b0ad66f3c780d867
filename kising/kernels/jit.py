"""The compiler options that all kernels share.

`nogil` lets blocks of slices run on several Python threads. With the NumPy error model a division by zero gives
an infinity, which the kernels guard against; Python's error model would raise and end the run.

Fast-math is off on purpose. It lets the compiler reorder sums in the vectorised form of a loop, and the machine
code chooses between that form and the plain one by the alignment of arrays in memory: the last digits would
differ between threads, processes and restarts. With strict IEEE arithmetic both forms give the same bits.
"""

import functools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba

from kising.kernels.cache import remove_stale_kernels
from kising.kernels.numba_internals import cache_in
from kising.kernels.private_cache import private_cache

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE: Final = Path(__file__).parents[1]
_CACHE: Final = private_cache(_PACKAGE)

if _CACHE is not None:
    remove_stale_kernels(_PACKAGE, _CACHE)


def kernel(function: F) -> F:
    """Compile a function to machine code on its first call, and keep that code on disk."""
    return _compiled(function)


def inlined(function: F) -> F:
    """Compile a small function into every kernel that calls it."""
    return _compiled(function, forceinline=True)


def _compiled(function: F, **options: bool) -> F:
    """Numba looks for another place if it cannot write to the private cache: then nothing is kept, or read."""
    compile_ = functools.partial(numba.njit, nogil=True, error_model="numpy", **options)
    if _CACHE is not None:
        with cache_in(_CACHE), suppress(RuntimeError):  # it has found no place
            compiled = compile_(cache=True)(function)
            if Path(compiled.stats.cache_path or "").is_relative_to(_CACHE):
                return cast(F, compiled)
    return cast(F, compile_()(function))
