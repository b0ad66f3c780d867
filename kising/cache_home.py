"""Where this user's programs keep what can be made again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def cache_homes() -> Iterator[Path]:
    """The directories that may be used, best first; none where there is no home directory.

    Relative ones are left out: they would be made in the working directory. Python leaves `~` as it is where the user
    has no home.
    """
    for found in (
        os.environ.get("XDG_CACHE_HOME") or "",
        os.path.join(os.path.expanduser("~"), ".cache"),
    ):
        if os.path.isabs(found):
            yield Path(found)
