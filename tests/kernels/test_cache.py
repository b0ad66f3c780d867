"""Kernels on disk are removed when their source has changed, and only then."""

from __future__ import annotations

import os
from pathlib import Path

import kising
from kising.kernels.cache import kernel_sources, remove_stale_kernels


def write(package: Path, name: str, text: str) -> Path:
    path = package / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def age(*paths: Path) -> None:
    """Give files increasing times of change."""
    for time, path in enumerate(paths):
        os.utime(path, (1000 + time, 1000 + time))


def package_with_kernels(place: Path) -> tuple[dict[str, Path], list[Path]]:
    """A package with two kernels, a file they depend on, and one that has nothing to do with them."""
    package = place / "demo"
    sources = {
        "kernel": write(
            package, "inner/kernel.py", "from demo.kernels import vectors\nfrom demo import tuples\n"
        ),
        "helper": write(package, "helper.py", "import numba\n"),
        "tuples": write(package, "tuples.py", "from typing import NamedTuple\n"),
        "report": write(package, "report.py", "from demo.inner import kernel\nimport numbers\n"),
    }
    indexes = [write(place / "cache", f"inner_0123/{name}.nbi", "") for name in ("first", "second")]
    return sources, indexes


def test_kernels_older_than_a_source_they_may_depend_on_are_removed(tmp_path: Path) -> None:
    for name in ("kernel", "helper", "tuples"):
        sources, (first, second) = package_with_kernels(tmp_path / name)
        bytecode = write(tmp_path / name / "cache", "inner_0123/kernel.nbc", "")
        changed = sources.pop(name)
        age(bytecode, *sources.values(), first, changed, second)
        remove_stale_kernels(tmp_path / name / "demo", tmp_path / name / "cache")
        assert (first.exists(), second.exists(), bytecode.exists()) == (False, True, True), name


def test_other_sources_leave_kernels_alone(tmp_path: Path) -> None:
    sources, (first, second) = package_with_kernels(tmp_path)
    changed = sources.pop("report")
    age(*sources.values(), first, second, changed)
    remove_stale_kernels(tmp_path / "demo", tmp_path / "cache")
    assert first.exists()
    assert second.exists()


def test_a_missing_package_is_no_error(tmp_path: Path) -> None:
    remove_stale_kernels(tmp_path / "nowhere", tmp_path / "neither")


def test_kernel_sources_are_the_science_and_not_the_sweep() -> None:
    package = Path(kising.__file__).parent
    found = {str(path.relative_to(package)) for path in kernel_sources(package)}
    assert {"model.py", "kernels/vectors.py", "kernels/counter.py", "estimators/chunks.py"} <= found
    assert not [name for name in found if name.startswith(("sweep/", "report/", "cli", "run"))]
    for path in package.rglob("*.py"):
        if any(word in path.read_text() for word in ("@kernel\n", "@inlined\n", "@primitive\n")):
            assert str(path.relative_to(package)) in found
