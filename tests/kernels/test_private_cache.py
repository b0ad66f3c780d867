"""Compiled kernels are unpickled: they are kept where no other user can write, or not at all."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import struct
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


def test_a_link_that_others_could_turn_is_not_followed_again(base: Path, tmp_path: Path) -> None:
    """The directory that was checked is used, by its own name."""
    (tmp_path / "home").mkdir()
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    base.symlink_to(shared / "turn")
    (shared / "turn").symlink_to(tmp_path / "home")
    found = private_cache(PACKAGE)
    assert found is not None
    assert found.parent == tmp_path / "home" / "kising-kernels"


def test_one_that_cannot_be_written_is_not_used(base: Path) -> None:
    """Numba would look for another place, for example beside the source."""
    found = private_cache(PACKAGE)
    assert found is not None
    found.rmdir()
    found.symlink_to("/proc/self")  # nobody writes there, root included
    refused("kising-kernels")


@root
def test_others_in_the_group_of_a_user_count_as_others(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base.mkdir()
    base.chmod(0o775)
    assert private_cache(PACKAGE) is not None
    root, other = pwd.getpwuid(0), pwd.struct_passwd(("other", "x", 12345, 0, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwall", lambda: [root, other])
    refused("other users can write into .*base")


def test_a_list_of_users_who_may_write_is_noticed(base: Path) -> None:
    """An access control list shows as a group that may write, also for a group of one."""
    base.mkdir(mode=0o700)
    everybody = 0xFFFFFFFF
    entries = ((1, 7, everybody), (2, 7, 12345), (4, 0, everybody), (16, 7, everybody), (32, 0, everybody))
    listed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(base, "system.posix_acl_access", listed)
    except OSError:
        pytest.skip("the file system has no access control lists")
    refused("other users can write into .*base")


def test_without_a_home_nothing_is_made_in_the_working_directory(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("HOME", "home")
    refused("no home directory")
    assert not (tmp_path / "home").exists()


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


def test_numba_takes_no_other_place(tmp_path: Path) -> None:
    """Where numba cannot write to the private cache, it would take `__pycache__`, which others may write to."""
    (tmp_path / "doubling.py").write_text(
        "from kising.kernels.jit import kernel\n\n\n@kernel\ndef doubled(x):\n    return 2 * x\n"
    )
    code = (
        "from kising.kernels import jit\n"
        "from doubling import doubled\n"
        "assert doubled(2) == 4\n"
        "print(doubled.stats.cache_path)\n"
    )
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(tmp_path / "base"),
        "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), str(tmp_path)]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    def cache_path() -> str:
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    used = Path(cache_path())
    assert used.is_relative_to(tmp_path / "base" / "kising-kernels")
    shutil.rmtree(used)
    used.touch()
    assert cache_path() == "None"
    assert not list(tmp_path.glob("__pycache__/*"))
