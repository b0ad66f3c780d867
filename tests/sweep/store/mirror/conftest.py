"""Places for mirrors: a folder, and buckets of servers that speak the languages of S3, Google and Azure."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.azurite import CONTAINER, Azurite, find_azurite
from support.gcs_server import BUCKET as GCS_BUCKET
from support.gcs_server import GCSServer
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


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GCSServer]:
    if find_spec("obstore") is None:
        pytest.skip("needs obstore")
    running = GCSServer()
    yield running
    running.kill()


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    command = find_azurite()
    if find_spec("obstore") is None or command is None:
        pytest.skip("needs obstore, and Azurite (`npm install azurite`; on the PATH, or named by AZURITE)")
    running = Azurite(command)
    yield running
    running.kill()


@pytest.fixture(params=["folder", "s3", "gs", "az"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty mirror."""
    if request.param == "folder":
        return str(tmp_path / "mirror")
    if request.param == "s3":
        found: str = request.getfixturevalue("bucket")
        return found
    server, name = {"gs": ("gcs_server", GCS_BUCKET), "az": ("azurite", CONTAINER)}[request.param]
    for variable, value in request.getfixturevalue(server).environment.items():
        monkeypatch.setenv(variable, value)
    return f"{request.param}://{name}/test-{next(COUNT)}"
