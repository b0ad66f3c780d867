"""How commands end: exit codes, and errors in one line each.

Exit codes: 0 success, 1 failed runs or a failure of the machine, 2 a mistake in the request, 128 + n stopped by
signal n.
"""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click

from kising.errors import InputError, KisingError, SpecError

FAILED: Final = 1
MISTAKE: Final = 2


def stopped_by(reason: str) -> int:
    """The exit code of a command that was stopped: by a signal, if the reason is the name of one."""
    return 128 + signal.Signals[reason] if reason in signal.Signals.__members__ else FAILED


def plainly(command: Callable[..., None]) -> Callable[..., None]:
    """Report errors in one line each, without a traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except SpecError as error:
            click.echo(str(error), err=True)
            sys.exit(MISTAKE)
        except KisingError as error:
            click.echo(f"kising: {error}", err=True)
            sys.exit(MISTAKE if isinstance(error, InputError) else FAILED)
        except MemoryError as error:
            click.echo(f"kising: not enough memory: {error}", err=True)
            sys.exit(FAILED)
        except BrokenPipeError:
            # The reader has closed the pipe (`kising status | head`): nobody reads the message.
            sys.stderr.close()
            sys.exit(FAILED)
        except OSError as error:
            # A name that no file can have is a mistake; anything else that was not foreseen is the machine's.
            name = str(error.filename or "")[:200]
            click.echo(f"kising: {name}: {error.strerror or error}", err=True)
            sys.exit(MISTAKE if error.errno == errno.ENAMETOOLONG else FAILED)

    return wrapped
