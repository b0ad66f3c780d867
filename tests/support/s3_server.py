"""An S3 server in a separate process, which can be stopped, continued, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress

from support.ports import free_port

PATIENCE = 120.0
BUCKET = "sweeps"


class S3Server:
    """moto's server. It keeps everything in memory: one that was killed comes back empty."""

    def __init__(self) -> None:
        self._port = free_port()
        self.environment = {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": "us-east-1",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, with an empty bucket."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ},
        )
        end = time.monotonic() + PATIENCE
        while True:
            with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                self.request("PUT", BUCKET)
                return
            assert time.monotonic() < end
            time.sleep(0.1)

    def request(self, method: str, path: str, data: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self.address}/{path}", method=method, data=data)
        with urllib.request.urlopen(request, timeout=30) as answer:
            body: bytes = answer.read()
        return body

    def stop(self) -> None:
        """Let it answer nobody."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
