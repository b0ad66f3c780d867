"""Chunks of a recording on several threads, with results that do not depend on how many."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

from kising.estimators.chunks import cut

Out = TypeVar("Out")


def in_order(work: Callable[[slice], Out], n_slices: int, threads: int) -> Iterator[Out]:
    """The results of all chunks of a recording, in their order."""
    parts = cut(n_slices)
    with one_blas_thread():
        if threads == 1 or len(parts) == 1:
            yield from map(work, parts)
        else:
            with ThreadPoolExecutor(threads) as pool:
                yield from pool.map(work, parts)


def one_blas_thread() -> AbstractContextManager[object]:
    """Matrix products on one thread each: the way BLAS divides a product among threads could change its last digits."""
    limit: AbstractContextManager[object] = _blas().limit(limits=1, user_api="blas")
    return limit


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()
