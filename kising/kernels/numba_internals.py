"""Everything of numba and llvmlite that kising uses beyond their public interfaces, in one place.

A new numba may change any of this without notice, so pyproject.toml bounds its version from above, and
tests/kernels/test_numba_internals.py tests each name. Raise the bound when those tests pass.
"""

from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec, cast

from llvmlite import ir
from numba.core.cgutils import get_or_insert_function
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

__all__ = [
    "AbstractTemplate",
    "get_or_insert_function",
    "infer_global",
    "intrinsic",
    "ir",
    "lower_builtin",
    "models",
    "primitive",
    "register_model",
    "signature",
]

CACHE_INDEXES: Final = "__pycache__/*.nbi"
"""Where numba keeps the index of a kernel's compiled versions, below the directory of the kernel's source."""

P = ParamSpec("P")


def primitive(function: Callable[Concatenate[Any, P], Any]) -> Callable[P, Any]:
    """`numba.extending.intrinsic`, typed as kernels see it: without the compiler's first argument."""
    return cast(Callable[P, Any], intrinsic(function))
