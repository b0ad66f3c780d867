"""Everything of numba and llvmlite that kising uses beyond their public interfaces, in one place.

A new numba may change any of this without notice, so pyproject.toml bounds its version from above, and
tests/kernels/test_numba_internals.py tests each name. Raise the bound when those tests pass.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, cast

from llvmlite import ir
from numba.core import config
from numba.core.cgutils import get_or_insert_function
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

__all__ = [
    "AbstractTemplate",
    "cache_in",
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

CACHE_INDEXES: Final = "*.nbi"
"""The index of a kernel's compiled versions, in numba's cache."""

P = ParamSpec("P")


@contextmanager
def cache_in(directory: Path | None) -> Iterator[None]:
    """What is decorated inside keeps its compiled versions in this directory; the user's own functions do not."""
    settings: Any = config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(directory or "")
    try:
        yield
    finally:
        settings.CACHE_DIR = before


def primitive(function: Callable[Concatenate[Any, P], Any]) -> Callable[P, Any]:
    """`numba.extending.intrinsic`, typed as kernels see it: without the compiler's first argument."""
    return cast(Callable[P, Any], intrinsic(function))
