"""A server with the part of Google Cloud Storage's XML interface that mirrors use, in a process of its own.

Written from the documentation of that interface: the emulators that can be installed from package registries lack lists
or removal in XML. Objects have generations, and a write may be conditional on the one that it replaces
(x-goog-if-generation-match; 0: none). As a script: the port.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from support.nodes import TESTS
from support.ports import free_port

BUCKET = "sweeps"
PATIENCE = 60.0


class Stored(NamedTuple):
    """An object."""

    data: bytes
    generation: int

    def headers(self) -> dict[str, str]:
        return {
            "ETag": f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"',
            "x-goog-generation": str(self.generation),
            "Last-Modified": formatdate(usegmt=True),
        }


class Handler(BaseHTTPRequestHandler):
    """Answers requests for objects and lists."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, Stored] = {}  # noqa: RUF012  # of all connections
    lock = threading.Lock()
    generation = 0

    def _split(self) -> tuple[str, str]:
        bucket, _, key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
        return bucket, key

    def _answer(self, status: int, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_PUT(self) -> None:
        bucket, key = self._split()
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if bucket != BUCKET:
            return self._answer(404)
        wanted = self.headers.get("x-goog-if-generation-match")
        with self.lock:
            found = self.objects.get(key)
            if wanted is not None and int(wanted) != (found.generation if found else 0):
                return self._answer(412)
            Handler.generation += 1
            stored = self.objects[key] = Stored(data, Handler.generation)
        return self._answer(200, headers=stored.headers())

    def do_GET(self) -> None:
        bucket, key = self._split()
        if bucket != BUCKET:
            return self._answer(404)
        if not key:
            return self._list()
        found = self.objects.get(key)
        return self._answer(404) if found is None else self._answer(200, found.data, found.headers())

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        _, key = self._split()
        with self.lock:
            self._answer(404 if self.objects.pop(key, None) is None else 204)

    def _list(self) -> None:
        prefix = parse_qs(urlsplit(self.path).query).get("prefix", [""])[0]
        moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
        with self.lock:
            entries = "".join(
                f"<Contents><Key>{escape(key)}</Key><Generation>{found.generation}</Generation>"
                f"<LastModified>{moment}</LastModified><ETag>&quot;x&quot;</ETag><Size>{len(found.data)}</Size>"
                "</Contents>"
                for key, found in sorted(self.objects.items())
                if key.startswith(prefix)
            )
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
        self._answer(200, text.encode(), {"Content-Type": "application/xml"})

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class GCSServer:
    """The server as its users see it."""

    def __init__(self) -> None:
        port = free_port()
        address = f"http://127.0.0.1:{port}"
        key = {"gcs_base_url": address, "disable_oauth": True}
        nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        self.environment = {
            "GOOGLE_BASE_URL": address,
            "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps({**key, **nobody}),
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(port)], env={**os.environ, "PYTHONPATH": TESTS}
        )
        end = time.monotonic() + PATIENCE
        while True:
            with suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/{BUCKET}", timeout=10).close()
                return
            assert time.monotonic() < end
            time.sleep(0.05)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
