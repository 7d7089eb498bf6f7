"""Who may talk to the viewer: whoever has its whole URL, from a page of its own, on a name of this machine.

It listens to this machine alone, but any page that a browser here shows could ask it something: under a foreign name
that leads here (DNS rebinding), or by a WebSocket, which browsers let any page open.
"""

from __future__ import annotations

import http
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
TOKEN_BYTES = 24


class Guard:
    """Lets a request in or not, before the viewer's own server sees it."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(TOKEN_BYTES)
        self.is_on_duty = False

    @contextmanager
    def on_duty(self) -> Iterator[None]:
        """Stand before every WebSocket server that is opened within the block."""
        import websockets.asyncio.server as servers

        serve = servers.serve

        def guarded(*arguments: Any, **options: Any) -> Any:
            options["process_request"] = self._before(options.get("process_request"))
            self.is_on_duty = True
            return serve(*arguments, **options)

        servers.serve = guarded  # type: ignore[misc, assignment]
        try:
            yield
        finally:
            servers.serve = serve  # type: ignore[misc]

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

    def _before(self, answer: Callable[..., Any] | None) -> Callable[..., Any]:
        def check(connection: Any, request: Any) -> Any:
            headers = request.headers
            if not self.lets_in(request.path, headers.get_all("Host"), headers.get_all("Origin")):
                return connection.respond(http.HTTPStatus.FORBIDDEN, "The whole URL is needed, as it was printed.\n")
            request.path = request.path.replace(f"/{self.token}", "", 1) or "/"
            response = answer(connection, request) if answer else None
            if response is not None:
                response.headers["Referrer-Policy"] = "no-referrer"
            return response

        return check


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
