"""Who may talk to the viewer: whoever has its whole URL, from a page of its own, on a name of this machine.

It listens to this machine alone, but any page that a browser here shows could ask it something: under a foreign name
that leads here (DNS rebinding), or by a WebSocket, which browsers let any page open.
"""

from __future__ import annotations

import secrets
from urllib.parse import urlsplit

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
TOKEN_BYTES = 24


class Guard:
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
