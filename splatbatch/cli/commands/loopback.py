"""A server for this machine alone: it answers whoever has its whole URL, and nobody else."""

from __future__ import annotations

import contextlib
import http
import secrets
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import typer

from splatbatch.errors import OutputError

LOOPBACK = "127.0.0.1"
INTERRUPTED = 130
STUCK_S = 30.0
"""Who sends no whole request, or takes nothing of an answer, for so long is let go: a thread waits for each."""
MOST_PORTS = 100
"""Tried from the named one on."""
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
TOKEN_BYTES = 24


def open_server(port: int, handler: Callable[..., Any]) -> ThreadingHTTPServer:
    """Listen on a port, or the next that is free.

    Raises:
        OutputError: none of them is.
    """
    for one in range(port, min(port + MOST_PORTS, 65536)):
        try:
            return ThreadingHTTPServer((LOOPBACK, one), handler)
        except OSError:
            continue
    raise OutputError(f"--port {port}: none of the {MOST_PORTS} ports from {port} on is free", "Give another port.")


def serve_until_interrupted(server: ThreadingHTTPServer) -> None:
    """Answer until Ctrl-C, then exit with 130."""
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()
        raise typer.Exit(INTERRUPTED) from None


class LoopbackHandler(BaseHTTPRequestHandler):
    """Lets requests in or not; what it answers is the matter of who derives from it."""

    timeout = STUCK_S

    def __init__(self, guard: RequestGuard, *arguments: Any) -> None:
        self._guard = guard
        super().__init__(*arguments)

    def log_message(self, format: str, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer."""
        hosts, origins = self.headers.get_all("Host") or [], self.headers.get_all("Origin") or []
        if not self._guard.lets_in(self.path, hosts, origins):
            self.say(http.HTTPStatus.FORBIDDEN, "Open the complete URL that the command has printed.\n")
            return
        with contextlib.suppress(ConnectionError, TimeoutError):  # a page that was closed
            self.answer(self.path.partition("?")[0].replace(f"/{self._guard.token}", "", 1).lstrip("/"))

    def answer(self, name: str) -> None:
        """Answer what was asked for below the token."""
        raise NotImplementedError

    def begin(self, kind: str, size: int | None, status: http.HTTPStatus = http.HTTPStatus.OK) -> None:
        """Send the head of an answer; one without a size ends with the connection."""
        self.send_response(status)
        headers = {"Content-Type": kind, "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY"}
        headers |= {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        headers |= {} if size is None else {"Content-Length": str(size)}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def send(self, kind: str, content: bytes) -> None:
        """Send a whole answer."""
        self.begin(kind, len(content))
        self.wfile.write(content)

    def say(self, status: http.HTTPStatus, words: str) -> None:
        """Send words."""
        self.begin("text/plain; charset=utf-8", len(words.encode()), status)
        self.wfile.write(words.encode())


class RequestGuard:
    """Lets a request in or not, before the viewer's own server sees it."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(TOKEN_BYTES)

    def lets_in(self, path: str, hosts: list[str], origins: list[str]) -> bool:
        """Return whether a request may be answered.

        Args:
            path: what it asks for; the token is its first part.
            hosts: its Host headers: what the browser takes us for.
            origins: its Origin headers: whose page asks; a page of ours, or no page at all.
        """
        if len(hosts) != 1 or _name(f"//{hosts[0]}") not in LOOPBACK_NAMES:
            return False
        is_of_ours = not origins or origins == [f"http://{hosts[0]}"]
        first_part = path.partition("?")[0].lstrip("/").partition("/")[0]
        return is_of_ours and secrets.compare_digest(first_part.encode(), self.token.encode())


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
