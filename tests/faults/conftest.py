"""Shared fixtures of the fault campaign."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def counts_file(request: pytest.FixtureRequest, fault_seed: int) -> Callable[[str], Path | None]:
    """The file for the counters of a campaign, if they are to be kept."""
    folder = request.config.getoption("--fault-counts")

    def file(name: str) -> Path | None:
        if folder is None:
            return None
        Path(folder).mkdir(parents=True, exist_ok=True)
        stem, _, suffix = name.partition(".")
        return Path(folder) / f"{stem}-{fault_seed}.{suffix}"

    return file
