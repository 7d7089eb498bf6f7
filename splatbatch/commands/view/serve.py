"""`view`: patches, or the merged scene, in the browser with all their colours: served to this machine alone."""

from __future__ import annotations

import http
import mimetypes
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import typer

from splatbatch.commands.view.guard import Guard
from splatbatch.commands.view.together import Together, view_together
from splatbatch.errors import MissingPartError, OutputError, SplatbatchError
from splatbatch.plain_text import one_line
from splatbatch.publish.page.page import asset, folder_page
from splatbatch.publish.source import viewed
from splatbatch.report.viewer.viewer import HOW, viewer_script
from splatbatch.tasks.batch import open_batch

LOOPBACK = "127.0.0.1"
INTERRUPTED = 130
MOST_PORTS = 100
"""Tried from the named one on."""
TEXTS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "viewer.js": ("text/javascript", viewer_script),
    "page.js": ("text/javascript", partial(asset, "page.js")),
    "page.css": ("text/css", partial(asset, "page.css")),
}


def serve(config: Path | None, names: Sequence[str], port: int) -> None:
    """Serve splats until Ctrl-C, then exit with 130.

    Raises:
        MissingPartError: the viewer is not built.
        ConfigError: one of them has no splat.
        OutputError: a splat is broken, or not what was accepted; or no port is free.
    """
    batch = open_batch(config)
    shown = view_together(viewed(batch, names), batch.config.scene.crs or "")
    if not viewer_script():
        raise MissingPartError("view: the viewer is not built", HOW["viewer"])
    guard = Guard()
    server = _open_server(port, partial(_Handler, guard, shown, folder_page(shown.facts, "splat.ply")))
    what = ", ".join(splat.name for splat in shown.splats)
    url = f"http://{LOOPBACK}:{server.server_port}/{guard.token}/"
    typer.echo(one_line(f"{what}: {shown.num_gaussians:,} Gaussians at {url} until Ctrl-C"))
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()
        raise typer.Exit(INTERRUPTED) from None


def _open_server(port: int, handler: Callable[..., Any]) -> ThreadingHTTPServer:
    for one in range(port, min(port + MOST_PORTS, 65536)):
        try:
            return ThreadingHTTPServer((LOOPBACK, one), handler)
        except OSError:
            continue
    raise OutputError(f"--port {port}: neither it nor the next {MOST_PORTS} can be used", "Name another port.")


class _Handler(BaseHTTPRequestHandler):
    """Answers whoever has the whole URL."""

    def __init__(self, guard: Guard, shown: Together, page: str, *arguments: Any) -> None:
        self._guard, self._shown, self._page = guard, shown, page
        super().__init__(*arguments)

    def log_message(self, format: str, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer."""
        hosts, origins = self.headers.get_all("Host") or [], self.headers.get_all("Origin") or []
        if not self._guard.lets_in(self.path, hosts, origins):
            self._say(http.HTTPStatus.FORBIDDEN, "The whole URL is needed, as it was printed.\n")
            return
        name = self.path.partition("?")[0].replace(f"/{self._guard.token}", "", 1).lstrip("/")
        photo = name.removeprefix("photo/")
        if not name:
            self._send("text/html; charset=utf-8", self._page.encode())
        elif name in TEXTS:
            kind, text = TEXTS[name]
            self._send(f"{kind}; charset=utf-8", text().encode())
        elif name == "splat.ply":
            self._send_splat()
        elif name.startswith("photo/") and photo.isdecimal() and int(photo) < len(self._shown.photos):
            self._send_file(self._shown.photos[int(photo)])
        else:
            self._say(http.HTTPStatus.NOT_FOUND, "There is nothing of that name.\n")

    def _begin(self, kind: str, size: int, status: http.HTTPStatus = http.HTTPStatus.OK) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(size), "Referrer-Policy": "no-referrer"}
        for name, value in {**headers, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, kind: str, content: bytes) -> None:
        self._begin(kind, len(content))
        self.wfile.write(content)

    def _say(self, status: http.HTTPStatus, words: str) -> None:
        self._begin("text/plain; charset=utf-8", len(words.encode()), status)
        self.wfile.write(words.encode())

    def _send_splat(self) -> None:
        try:
            size, pieces = self._shown.ply()
            self._begin("application/octet-stream", size)
            for piece in pieces:
                self.wfile.write(piece)
        except (SplatbatchError, OSError, ValueError):
            self.close_connection = True  # the reader misses the rest, and says so

    def _send_file(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                self._begin(mimetypes.guess_type(path.name)[0] or "image/jpeg", path.stat().st_size)
                shutil.copyfileobj(file, self.wfile)
        except OSError:
            self.close_connection = True
