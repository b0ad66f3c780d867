"""What runs in a worker: a check that its kising is the driver's, then the batch.

Ray sends this function as code, not by name, so that the check runs whatever kising a host has, or none. That is
why it imports inside, and uses nothing else of this package before the check has passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def stream(load: bytes, version: str, numerics: int, recording: Any = None) -> Iterator[Any]:
    """Run a pickled batch and its work; yield its events. `version`, `numerics`: of the driver.

    `recording`: what the work takes besides a run, if anything. It comes from Ray's object store, whose arrays all
    workers of a host share.
    """
    import pickle
    import socket
    from functools import partial

    host = socket.gethostname()
    try:
        from kising.version import NUMERICS, __version__
    except ImportError as error:
        raise RuntimeError(
            f"host {host} has no kising ({error}), the driver has kising {version}: install it there"
        ) from None
    if (__version__, NUMERICS) != (version, numerics):
        raise RuntimeError(
            f"host {host} has kising {__version__} (numerics {NUMERICS}), the driver has kising {version} "
            f"(numerics {numerics}): install the same version on both"
        )
    from kising.sweep.execute.batch_loop import run_batch

    batch, work = pickle.loads(load)
    if recording is not None:
        work = partial(work, recording=recording)
    yield from run_batch(batch, work)
