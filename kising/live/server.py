"""The server of the live page: reads a sweep's directory and answers GET requests. The standard library is enough.

By default it listens on the loopback interface. Requests must then name a loopback host, so that a foreign page whose
name resolves to 127.0.0.1 is refused. On any other interface every request needs the token: first in the address, then
in a cookie.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
import socket
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from kising.errors import InputError
from kising.live.rendering import Renderer
from kising.live.shell import SCRIPT, shell
from kising.live.state import live_state

PORT: Final = 8765
COOKIE: Final = "kising-token"
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


class LiveServer(ThreadingHTTPServer):
    """Serves the page of one sweep."""

    daemon_threads = True
    # A driver that is restarted gets its port back at once.
    allow_reuse_address = True

    def __init__(self, path: Path, host: str = "127.0.0.1", port: int = PORT) -> None:
        self.path = path
        self.token = None if is_loopback(host) else secrets.token_urlsafe(16)
        self.renderer = Renderer(path)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InputError(
                f"cannot listen on {host} port {port}: {reason}; choose another with --port"
            ) from error
        self.renderer.start()

    @property
    def url(self) -> str:
        """The address of the page, with the token where one is needed."""
        host, port = str(self.server_address[0]), self.server_address[1]
        if host in ("0.0.0.0", "::"):
            host = socket.gethostname()
        query = f"?token={self.token}" if self.token else ""
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/{query}"

    def server_close(self) -> None:
        """Stop listening, and stop looking at the directory."""
        self.renderer.stop()
        super().server_close()


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    server_version, sys_version = "kising", ""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        given = parse_qs(parts.query).get("token", [""])[0]
        if not self._is_allowed(given):
            self._answer(
                "token needed: open the address that `kising serve` printed\n",
                "text/plain",
                HTTPStatus.FORBIDDEN,
            )
            return
        latest = self.server.renderer.latest
        name = parts.path.removeprefix("/")
        if name in ("", "index.html"):
            # The token goes to a cookie and leaves the address: it should not stay in the browser's history.
            if given:
                self._forget_token()
                return
            self._answer(shell(self.server.path.resolve().name), "text/html")
        elif name == "live.js":
            self._answer(SCRIPT, "text/javascript")
        elif name == "state.json":
            state = live_state(self.server.path) | {"report": latest.version}
            self._answer(json.dumps(state), "application/json")
        elif name == "report.html":
            self._answer(latest.html, "text/html")
        elif name in latest.files:
            self._answer(latest.files[name], "text/csv")
        else:
            self._answer("there is no such page\n", "text/plain", HTTPStatus.NOT_FOUND)

    def _is_allowed(self, given: str) -> bool:
        token = self.server.token
        if token is None:
            host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
            return host in _LOOPBACK_NAMES
        try:
            kept = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        except CookieError:
            kept = None
        offered = given or (kept.value if kept is not None else "")
        return hmac.compare_digest(offered.encode(), token.encode())

    def _forget_token(self) -> None:
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Set-Cookie", f"{COOKIE}={self.server.token}; HttpOnly; SameSite=Strict; Path=/")
        self.send_header("Location", "/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, text: str, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Log nothing: there is a request every second."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def free_port(wanted: int = PORT) -> int:
    """The wanted port of the loopback interface, or another one if it is taken."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise InputError("no port is free for the page")
