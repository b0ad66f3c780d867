"""Places for mirrors: a folder, and a bucket of an S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.s3_server import BUCKET, S3Server

COUNT = iter(range(1_000_000))


@pytest.fixture(scope="session")
def server() -> Iterator[S3Server]:
    if find_spec("obstore") is None or find_spec("moto") is None or find_spec("flask") is None:
        pytest.skip("needs obstore and moto[server]")
    running = S3Server()
    yield running
    running.kill()


@pytest.fixture
def bucket(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty prefix."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/test-{next(COUNT)}"


@pytest.fixture(params=["folder", "bucket"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty mirror."""
    if request.param == "folder":
        return str(tmp_path / "mirror")
    found: str = request.getfixturevalue("bucket")
    return found
