"""Contracts with interfaces that other packages may change without notice."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest


@contextmanager
def contract(package: str, interface: str, home: Path) -> Iterator[None]:
    """Turn any error inside into a failure that names the interface, and the one file that uses it."""
    try:
        yield
    except Exception as error:
        pytest.fail(
            f"{package} {version(package)}: {interface} is gone or behaves differently "
            f"({type(error).__name__}: {error}); kising uses it in {home.name} alone: adapt that file"
        )


def imported_names(path: Path) -> set[str]:
    """Everything that a file imports, at any level, with full dotted names."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names
