"""Kernels on disk that are older than the code they were compiled from."""

import re
from contextlib import suppress
from pathlib import Path

from kising.kernels.numba_internals import CACHE_INDEXES

_IMPORT = re.compile(r"^(?:from ([\w.]+) import (\([^)]*\)|.*)|import ([\w.]+))", re.MULTILINE)


def remove_stale_kernels(package: Path, cache: Path) -> None:
    """Remove the indexes of compiled kernels that are older than a source file they may depend on.

    Numba recompiles a kernel when its own file has changed, but not when the file of a function that it calls has
    changed: in a checkout under development it would keep using the old function.
    """
    with suppress(OSError):
        indexes = {path: path.stat().st_mtime for path in cache.rglob(CACHE_INDEXES)}
        if not indexes:
            return
        oldest = min(indexes.values())
        changed = {path: time for path in package.rglob("*.py") if (time := path.stat().st_mtime) > oldest}
        if not changed:
            return
        relevant = changed.keys() & kernel_sources(package)
        newest = max((changed[path] for path in relevant), default=0.0)
        for index, time in indexes.items():
            if time < newest:
                index.unlink(missing_ok=True)


def kernel_sources(package: Path) -> set[Path]:
    """The source files that can change machine code.

    These are the files that import numba or the package's kernels, and the files they import in turn: they
    define constants and named tuples that kernels compile in.
    """
    imports = {path: _imports(path.read_text()) for path in package.rglob("*.py")}
    compilers = {"numba", "llvmlite", f"{package.name}.kernels"}
    compiled = {path for path, names in imports.items() if not compilers.isdisjoint(names)}
    used = set().union(*(imports[path] for path in compiled))
    return compiled | {path for path in imports if _module(path, package) in used}


def _imports(source: str) -> set[str]:
    """What a file imports at its top level: for `from a.b import c` the names a, a.b and a.b.c."""
    found: set[str] = set()
    for base, names, module in _IMPORT.findall(source):
        imported = [f"{base}.{name}" for name in re.findall(r"\w+", names)] if base else [module]
        for name in imported:
            parts = name.split(".")
            found.update(".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return found


def _module(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
