"""What surrounds a Ray: its variables, its directory, its signals, and the question whether one answers.

Nothing here imports ray: most of it must be in place before ray is imported.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Final

from kising.errors import ExecutorError

_PREFIX: Final = "kising-"
_LONGEST: Final = 40  # of a directory's name: Ray appends 66 characters, and a socket's name may have 107
_ANSWER_SECONDS: Final = 3.0
_HELLO: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])

_ALWAYS: Final = {
    # Give up on a cluster that refuses us after 2 attempts, not after 20 of a second each.
    "RAY_NUM_REDIS_GET_RETRIES": "2",
    "RAY_py_gcs_connect_timeout_s": "5",
    # Notice a cut link in seconds; the defaults take seven minutes.
    "RAY_grpc_client_keepalive_time_ms": "15000",
    "RAY_grpc_client_keepalive_timeout_ms": "10000",
    # Ray warns at every start that it will one day stop hiding GPUs from tasks that ask for none.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Under `uv run` Ray would upload the working directory.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}


def environment(*, own: bool) -> dict[str, str]:
    """Return the variables that must be set before ray is imported; `own`: for a Ray that we start.

    Ray listens on every interface and runs what it is sent, so a Ray of our own gets a token of its own.
    """
    if not own:
        return dict(_ALWAYS)
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _token()}
    return {**_ALWAYS, **token, "RAY_USAGE_STATS_ENABLED": "0"}


@cache
def _token() -> str:
    """One for the life of this process: Ray reads it once, and a second Ray with another would be refused."""
    return secrets.token_hex(32)


class Variables:
    """Environment variables set for a while. What the user has set stays, except for those in `force`."""

    def __init__(self, values: Mapping[str, str], *, force: tuple[str, ...] = ()) -> None:
        self._before = {name: os.environ.get(name) for name in values}
        for name, value in values.items():
            if name in force or name not in os.environ:
                os.environ[name] = value

    def restore(self) -> None:
        """Put back what was there."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class Scratch:
    """A new directory with a short name, for Ray's sockets and logs, under a lock that dies with us."""

    def __init__(self) -> None:
        base = Path(tempfile.gettempdir())
        if len(str(base)) > _LONGEST - len(_PREFIX) - 8:
            base = Path("/tmp")
        _remove_abandoned(base)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        self._lock = (self.path / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Delete the directory."""
        self._lock.close()
        shutil.rmtree(self.path, ignore_errors=True)


def _remove_abandoned(base: Path) -> None:
    """Delete what processes that were killed could not."""
    for path in base.glob(f"{_PREFIX}*/lock"):
        with suppress(OSError), path.open("r+") as lock:
            if path.stat().st_uid == os.getuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)


@contextmanager
def shielded() -> Iterator[None]:
    """Start Ray inside: its processes ignore a closed terminal, and our handling of SIGTERM stays ours.

    Ctrl-C they ignore already. A SIGHUP would take along the workers that finish the work in flight.
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
    """Send what is written to file descriptor 2 into a file: compiled code complains there, past Python."""
    with tempfile.TemporaryFile() as sink:
        kept = os.dup(2)
        os.dup2(sink.fileno(), 2)
        try:
            yield sink
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def checkout() -> Path | None:
    """The directory of this package where it lies in a checkout: what is not installed, no other host has."""
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
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return
            connection.sendall(_HELLO)
            answer = connection.recv(9)
    except TimeoutError:
        raise ExecutorError(f"nothing answers at {address} within {_ANSWER_SECONDS:g} s; {cure}") from None
    except OSError as error:
        raise ExecutorError(f"no cluster answers at {address}: {error.strerror or error}; {cure}") from None
    # A frame: three bytes of length, then its type. Servers of this protocol begin with settings, type 4.
    if len(answer) < 4 or answer[3] != 4:
        raise ExecutorError(f"what answers at {address} is not a Ray cluster; {cure}")
