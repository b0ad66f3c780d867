"""Python in a separate process, for tests that need another process."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def python(code: str) -> Iterator[subprocess.Popen[str]]:
    """Run a child process, whose input and output are pipes; it is killed at the end."""
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def line(child: subprocess.Popen[str]) -> str:
    """The next line that a child prints."""
    assert child.stdout is not None
    return child.stdout.readline().strip()
