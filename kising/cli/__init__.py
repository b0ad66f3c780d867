"""The command `kising`: arguments in, calls out. Everything heavy is imported by the command that needs it.

Each module holds the commands that belong together; `main` collects them.
"""

from kising.cli.group import main

__all__ = ["main"]
