"""Azurite, Microsoft's emulator of Azure's blob storage, in a process of its own.

`npm install azurite` brings it. It is looked for on the PATH, or where AZURITE says; tests are skipped without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from hashlib import sha256
from hmac import digest
from urllib.error import URLError
from urllib.request import Request, urlopen

from support.ports import free_port

CONTAINER = "sweeps"
PATIENCE = 120.0
ACCOUNT = "devstoreaccount1"
# The account and key that every Azurite has.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def find_azurite() -> str | None:
    """The command, if it is installed."""
    return os.environ.get("AZURITE") or shutil.which("azurite-blob")


class Azurite:
    """The emulator, with an empty container; it keeps everything in memory."""

    def __init__(self, command: str) -> None:
        port = free_port()
        self._address = f"http://127.0.0.1:{port}"
        self.environment = {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": self._address,
        }
        options = ["--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
        self._process = subprocess.Popen(
            [command, *options, "--blobHost", "127.0.0.1", "--blobPort", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self._make_container()
                return
            except (URLError, ConnectionError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def _make_container(self) -> None:
        """PUT the container, signed with the shared key."""
        date, version = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"), "2021-12-02"
        resource = f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
        headers = f"x-ms-date:{date}\nx-ms-version:{version}\n"
        text = "PUT" + "\n" * 12 + headers + resource
        signature = b64encode(digest(b64decode(KEY), text.encode(), sha256)).decode()
        request = Request(
            f"{self._address}/{ACCOUNT}/{CONTAINER}?restype=container",
            method="PUT",
            headers={
                "x-ms-date": date,
                "x-ms-version": version,
                "Authorization": f"SharedKey {ACCOUNT}:{signature}",
            },
        )
        urlopen(request, timeout=30).close()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
