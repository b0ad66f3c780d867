"""The live page of a running driver, in a separate process: drawing figures must not slow the driver down."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kising.live.server import LiveServer, free_port


@contextmanager
def page_of(path: Path) -> Iterator[str]:
    """Serve the page of a sweep's directory, which may not exist yet, inside the block; yields its address.

    The process ends with the driver, however that ends: its input is closed then.
    """
    port = free_port()
    command = [sys.executable, "-m", "kising.live.child", str(path), str(port)]
    # In its own session: Ctrl-C is for the driver, and the page shows how it stops.
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        assert child.stdin is not None
        child.stdin.close()
        try:
            child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def main() -> None:
    """Serve until the input is closed."""
    server = LiveServer(Path(sys.argv[1]), port=int(sys.argv[2]))

    def end_with_the_driver() -> None:
        sys.stdin.buffer.read()
        server.shutdown()

    threading.Thread(target=end_with_the_driver, daemon=True).start()
    server.serve_forever(poll_interval=0.2)
    server.server_close()


if __name__ == "__main__":
    main()
