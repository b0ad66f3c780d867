"""A line on stderr when this process ends without one.

Ray's compiled code ends the process it runs in, without a message, when it loses its raylet at certain moments; so
does the kernel when memory runs out. A child process waits for the end of this one, and writes the line if it came
before `close`.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import Final

LINE: Final = (
    "kising: this process ended before its sweep, ended by Ray or from outside: what is committed is safe, and "
    "the same command resumes"
)
# The pipe closes with this process, however it ends. In a session of its own: Ctrl-C is not for it.
_CODE: Final = "import sys; sys.stdin.buffer.read() or print(sys.argv[1], file=sys.stderr)"


class ExitNotice:
    """Waits from now until `close`."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        with suppress(OSError):  # no process left for it: then there is no line
            self._child = subprocess.Popen(
                [sys.executable, "-ISc", _CODE, LINE],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def close(self) -> None:
        """There is no need for the line any more."""
        if self._child is not None:
            with suppress(OSError):
                self._child.communicate(b"closed")
