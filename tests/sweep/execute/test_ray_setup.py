"""The environment of a Ray: addresses, variables, signals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kising.errors import ExecutorError
from kising.sweep.execute import ray_setup
from kising.sweep.execute.ray_internals import environment
from kising.sweep.execute.ray_setup import Variables, check_answers, shielded, silenced


@contextmanager
def server(answer: bytes | None) -> Iterator[str]:
    """A server that answers a first message with `answer`; None: not at all."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted: list[socket.socket] = []

        def serve() -> None:
            connection, _ = listener.accept()
            accepted.append(connection)
            if answer is not None:
                connection.recv(100)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()
        for connection in accepted:
            connection.close()


@pytest.mark.parametrize(
    "address", ["6379", "host", "host:", ":6379", "host:abc", "host:0", "host:70000", ""]
)
def test_an_invalid_address(address: str) -> None:
    with pytest.raises(ExecutorError, match="is not HOST:PORT"):
        check_answers(address)


def test_an_address_of_ray_client() -> None:
    with pytest.raises(ExecutorError, match="give a cluster as HOST:PORT"):
        check_answers("ray://head:10001")


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(
        ExecutorError, match=f"no cluster answers at 127.0.0.1:{port}: Connection refused; check"
    ):
        check_answers(f"127.0.0.1:{port}")


def test_no_such_host() -> None:
    with pytest.raises(ExecutorError, match=r"no cluster answers at nowhere\.invalid:6379"):
        check_answers("nowhere.invalid:6379")


def test_somebody_listens_and_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_setup, "_ANSWER_SECONDS", 0.2)
    with server(None) as address, pytest.raises(ExecutorError, match=r"nothing answers at .* within 0\.2 s"):
        check_answers(address)


def test_somebody_else_answers() -> None:
    with (
        server(b"HTTP/1.1 400 Bad Request\r\n") as address,
        pytest.raises(ExecutorError, match="is not a Ray"),
    ):
        check_answers(address)


def test_a_cluster_answers() -> None:
    with server(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])) as address:
        check_answers(address)


def test_a_ray_of_our_own_has_a_token_of_its_own() -> None:
    ours = environment(local=True)
    assert ours["RAY_AUTH_MODE"] == "token"
    assert len(ours["RAY_AUTH_TOKEN"]) == 64
    # Ray reads its token once per process: the next Ray of this process must have the same,
    assert environment(local=True) == ours
    # and that of any other process another.
    code = (
        "from kising.sweep.execute.ray_internals import environment\n"
        "print(environment(local=True)['RAY_AUTH_TOKEN'])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len(answer.stdout.strip()) == 64
    assert answer.stdout.strip() != ours["RAY_AUTH_TOKEN"]
    assert "RAY_AUTH_TOKEN" not in environment(local=False)  # the user has the token of the cluster


def test_variables_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RAY_mine": "1", "RAY_must": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RAY_new", raising=False)
    before = dict(os.environ)
    variables = Variables({"RAY_mine": "2", "RAY_must": "2", "RAY_new": "2"}, force=("RAY_must",))
    assert [os.environ[name] for name in ("RAY_mine", "RAY_must", "RAY_new")] == ["1", "2", "2"]
    variables.restore()
    assert dict(os.environ) == before


def test_signals_are_kept_from_what_starts_inside() -> None:
    def mine(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGTERM, mine)
    try:
        with shielded():
            assert signal.SIGHUP in signal.pthread_sigmask(signal.SIG_BLOCK, [])
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as ray.init does
        assert signal.SIGHUP not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_compiled_code_is_silenced(capfd: pytest.CaptureFixture[str]) -> None:
    with silenced():
        os.write(2, b"rpc_client.h: noise\n")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"
