from __future__ import annotations

import os
from pathlib import Path

from kising.kernels.jit import forget_older_kernels


def test_kernels_older_than_any_source_are_forgotten(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    (inner / "__pycache__").mkdir(parents=True)
    sources = [tmp_path / "one.py", inner / "two.py"]
    indexes = [inner / "__pycache__" / name for name in ("old.nbi", "new.nbi")]
    other = inner / "__pycache__" / "two.pyc"
    for time, path in enumerate([other, sources[0], indexes[0], sources[1], indexes[1]]):
        path.touch()
        os.utime(path, (1000 + time, 1000 + time))
    forget_older_kernels(tmp_path)
    assert [x.exists() for x in (*indexes, *sources, other)] == [False, True, True, True, True]


def test_a_package_without_sources_is_no_reason_to_stop(tmp_path: Path) -> None:
    forget_older_kernels(tmp_path / "nowhere")
