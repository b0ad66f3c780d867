"""All kinds of mirror behave alike."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kising.errors import InputError
from kising.sweep.store.mirror.places import ConflictError, UnreachableError, open_place


def test_files_come_back(url: str) -> None:
    place = open_place(url)
    assert place.get("a") is None
    assert place.list("parts") == set()
    place.put("parts/a", b"1")
    place.put("parts/b", b"")
    place.put("c", b"x" * 7_000_000)  # larger than a piece of an upload
    assert place.list("parts") == {"a", "b"}
    found = place.get("parts/a")
    assert found is not None
    assert found[0] == b"1"
    large = place.get("c")
    assert large is not None
    assert large[0] == b"x" * 7_000_000
    place.put("parts/a", b"2")
    again = place.get("parts/a")
    assert again is not None
    assert again[0] == b"2"
    assert again[1] != found[1]
    place.remove("parts/a")
    place.remove("parts/a")
    assert place.list("parts") == {"b"}
    assert open_place(url).list("parts") == {"b"}


def test_one_of_two_creates(url: str) -> None:
    place, other = open_place(url), open_place(url)
    tag = place.create("lease", b"1")
    with pytest.raises(ConflictError):
        other.create("lease", b"2")
    found = other.get("lease")
    assert found == (b"1", tag)


def test_one_of_two_replaces(url: str) -> None:
    place, other = open_place(url), open_place(url)
    first = place.create("lease", b"1")
    second = other.replace("lease", b"2", first)
    with pytest.raises(ConflictError):
        place.replace("lease", b"3", first)
    assert other.get("lease") == (b"2", second)
    place.remove("lease")
    with pytest.raises(ConflictError):
        other.replace("lease", b"4", second)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = open_place(str(tmp_path / "file" / "mirror"))
    for ask in (lambda: place.put("a", b""), lambda: place.create("a", b""), lambda: place.list("")):
        with pytest.raises(UnreachableError):
            ask()


def test_a_bucket_that_is_not_there(bucket: str) -> None:
    place = open_place("s3://no-such-bucket/prefix")
    for ask in (lambda: place.put("a", b""), lambda: place.create("a", b"")):
        with pytest.raises(UnreachableError) as caught:
            ask()
        assert "\n" not in str(caught.value)


def test_a_server_that_is_not_there(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    place = open_place(bucket)
    for ask in (lambda: place.put("a", b""), lambda: place.get("a"), lambda: place.list("a")):
        with pytest.raises(UnreachableError):
            ask()


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/x",
        "s3://",
        "s3:///x",
        "file://host/x",
        "file://",
        "http://host/x",
        "s3://[x",
        "",
        " ",
        "s3:bucket",
        "GS:x",
    ],
)
def test_urls_that_are_no_place(url: str) -> None:
    with pytest.raises(InputError, match="--mirror"):
        open_place(url)


def test_a_scheme_in_capitals_is_the_same(bucket: str) -> None:
    scheme, _, rest = bucket.partition("://")
    open_place(bucket).put("a", b"1")
    found = open_place(f"{scheme.upper()}://{rest}").get("a")
    assert found is not None
    assert found[0] == b"1"


@given(st.text(max_size=30))
def test_no_url_is_a_traceback(text: str) -> None:
    with suppress(InputError):
        open_place(f"s3://{text}")
    with suppress(InputError):
        open_place(f"Az://{text}")
    with suppress(InputError):
        open_place(f"{text}://{text}")


def test_a_path_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_place("one").put("a", b"1")
    open_place(f"file://{tmp_path}/two%20").put("a", b"1")
    assert (tmp_path / "one" / "a").read_bytes() == (tmp_path / "two " / "a").read_bytes() == b"1"


def test_without_obstore_the_cure_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(InputError, match=r"pip install 'kising\[mirror\]'"):
        open_place("s3://bucket/prefix")
