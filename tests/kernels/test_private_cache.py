"""Compiled kernels are unpickled: they are kept where no other user can write, or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import kising
from kising.kernels.private_cache import private_cache

PACKAGE = Path(kising.__file__).parent
root = pytest.mark.skipif(os.getuid() != 0, reason="gives a directory to another user")


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """NUMBA_CACHE_DIR, with nothing to fall back on."""
    nowhere = tmp_path / "file"
    nowhere.touch()
    monkeypatch.setenv("HOME", str(nowhere))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "base"))
    return tmp_path / "base"


def test_it_is_private_whatever_the_umask(base: Path) -> None:
    mask = os.umask(0)
    try:
        base.mkdir(mode=0o755)
        found = private_cache(PACKAGE)
    finally:
        os.umask(mask)
    assert found is not None
    assert found.parent == base / "kising-kernels"
    assert stat.S_IMODE(found.parent.stat().st_mode) == 0o700
    assert private_cache(PACKAGE) == found


def test_one_that_others_could_read_is_closed(base: Path) -> None:
    (base / "kising-kernels").mkdir(parents=True)
    (base / "kising-kernels").chmod(0o755)
    assert private_cache(PACKAGE) is not None
    assert stat.S_IMODE((base / "kising-kernels").stat().st_mode) == 0o700


def refused(words: str) -> None:
    with pytest.warns(RuntimeWarning, match=words):
        assert private_cache(PACKAGE) is None


@pytest.mark.parametrize("mode", [0o777, 0o702, 0o1777])
def test_one_that_others_could_write_is_not_used(base: Path, mode: int) -> None:
    (base / "kising-kernels").mkdir(parents=True)
    (base / "kising-kernels").chmod(mode)
    refused("other users can write into it")


def test_one_that_others_could_replace_is_not_used(base: Path) -> None:
    base.mkdir()
    base.chmod(0o777)
    refused("other users can write into .*base")
    base.chmod(0o1777)  # sticky, as /tmp: what is ours stays ours
    assert private_cache(PACKAGE) is not None


def test_a_link_is_not_used(base: Path, tmp_path: Path) -> None:
    (tmp_path / "planted").mkdir(mode=0o700)
    base.mkdir()
    (base / "kising-kernels").symlink_to(tmp_path / "planted")
    refused("it is not a directory")


@root
def test_one_that_another_user_owns_is_not_used(base: Path) -> None:
    (base / "kising-kernels").mkdir(parents=True, mode=0o700)
    os.chown(base / "kising-kernels", 12345, 12345)
    refused("other users can write into it")


@root
def test_one_in_a_directory_of_another_user_is_not_used(base: Path) -> None:
    base.mkdir()
    os.chown(base, 12345, 12345)
    refused("other users can write into .*base")


@root
def test_a_group_of_others_counts_as_others(base: Path) -> None:
    base.mkdir()
    os.chown(base, 0, 12345)
    base.chmod(0o775)
    refused("other users can write into .*base")


def test_the_next_place_is_tried(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base.mkdir()
    base.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = private_cache(PACKAGE)
    assert found is not None
    assert found.parent.parent == tmp_path / "cache"


def test_planted_kernels_are_not_unpickled(tmp_path: Path) -> None:
    """With a cache that others can write, kernels are compiled and nothing is read from it or written to it."""
    shared = tmp_path / "shared"
    (shared / "kising-kernels").mkdir(parents=True)
    (shared / "kising-kernels").chmod(0o777)
    code = (
        "import warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from kising.kernels import jit\n"
        "function = jit.kernel(lambda x: x + 1)\n"
        "assert function(1) == 2\n"
        "print(function.stats.cache_path)\n"
    )
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(shared),
        "HOME": "/dev/null",
        "PYTHONPATH": str(PACKAGE.parent),
    }
    environment.pop("XDG_CACHE_HOME", None)
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "None"
    assert list((shared / "kising-kernels").iterdir()) == []
