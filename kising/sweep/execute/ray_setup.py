"""The environment of a Ray: variables, signals, and a check that a cluster answers at an address.

Nothing here imports ray: most of it must be in place before ray is imported.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from kising.errors import ExecutorError
from kising.sweep.execute.ray_internals import uses_tls

_ANSWER_SECONDS: Final = 3.0
_HTTP2_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


class Variables:
    """Environment variables, set until `restore`. What the user has set stays, except for those in `force`."""

    def __init__(self, values: Mapping[str, str], *, force: tuple[str, ...] = ()) -> None:
        self._before = {name: os.environ.get(name) for name in values}
        for name, value in values.items():
            if name in force or name not in os.environ:
                os.environ[name] = value

    def restore(self) -> None:
        """Put the old values back."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def shielded() -> Iterator[None]:
    """Start Ray inside: its processes ignore a closed terminal, and our handler of SIGTERM stays.

    They ignore Ctrl-C already. A SIGHUP would kill the workers that finish the work in flight.
    """
    main = threading.current_thread() is threading.main_thread()
    terminate = signal.getsignal(signal.SIGTERM)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if main and terminate is not None:
            signal.signal(signal.SIGTERM, terminate)


@contextmanager
def silenced() -> Iterator[IO[bytes]]:
    """Redirect file descriptor 2 to a file: compiled code writes to it directly, bypassing Python."""
    with tempfile.TemporaryFile() as sink:
        stderr = os.dup(2)
        os.dup2(sink.fileno(), 2)
        try:
            yield sink
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def checkout() -> Path | None:
    """The directory of this package if it is a checkout, not an installation: no other host has it."""
    package = Path(__file__).parents[2]
    return package if (package.parent / "pyproject.toml").is_file() else None


def check_answers(address: str) -> None:
    """Raise ExecutorError unless something at HOST:PORT speaks the protocol of a Ray cluster."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if "://" in address:
        raise ExecutorError(f"{address}: give a cluster as HOST:PORT (its port is 6379 unless set) or auto")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ExecutorError(f"{address!r} is not HOST:PORT, as in 10.0.0.1:6379, nor auto")
    cure = "check the address, and start a cluster with `ray start --head`, or leave --address out"
    try:
        with socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS) as connection:
            if uses_tls():
                return
            connection.sendall(_HTTP2_PREFACE)
            answer = connection.recv(9)
    except TimeoutError:
        raise ExecutorError(f"nothing answers at {address} within {_ANSWER_SECONDS:g} s; {cure}") from None
    except OSError as error:
        raise ExecutorError(f"no cluster answers at {address}: {error.strerror or error}; {cure}") from None
    # A frame of HTTP/2: three bytes of length, then its type. Servers begin with their settings, type 4.
    if len(answer) < 4 or answer[3] != 4:
        raise ExecutorError(f"what answers at {address} is not a Ray cluster; {cure}")
