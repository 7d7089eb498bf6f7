"""`view`: patches, or the merged scene, in the browser with all their colours: served to this machine alone."""

from __future__ import annotations

import http
import mimetypes
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from splatbatch.cli.commands.loopback import (
    LOOPBACK,
    LoopbackHandler,
    RequestGuard,
    open_server,
    serve_until_interrupted,
)
from splatbatch.cli.commands.output import print_line
from splatbatch.errors import MissingPartError, SplatbatchError
from splatbatch.files import open_regular
from splatbatch.publish.joint_scene import JointScene, view_together
from splatbatch.publish.page import asset, folder_page
from splatbatch.publish.source import SCENE, viewed
from splatbatch.report.viewer.viewer import HOW, viewer_script
from splatbatch.tasks.batch import open_batch

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
    batch = open_batch(config, [name for name in names if name != SCENE]).whole()
    shown = view_together(viewed(batch, names), batch.config.scene.crs or "")
    if not viewer_script():
        raise MissingPartError("view: the viewer is not built", HOW["viewer"])
    guard = RequestGuard()
    server = open_server(port, partial(_ViewHandler, guard, shown, folder_page(shown.facts, "splat.ply")))
    what = ", ".join(splat.name for splat in shown.splats)
    url = f"http://{LOOPBACK}:{server.server_port}/{guard.token}/"
    print_line(f"{what}: serving {shown.num_gaussians:,} Gaussians at {url} until Ctrl-C")
    serve_until_interrupted(server)


class _ViewHandler(LoopbackHandler):
    """Answers with the page, its scripts, the splat and its photographs."""

    def __init__(self, guard: RequestGuard, shown: JointScene, page: str, *arguments: Any) -> None:
        self._shown, self._page = shown, page
        self._numbers = {str(number): number for number in range(len(shown.photos))}
        super().__init__(guard, *arguments)

    def answer(self, name: str) -> None:
        """Answer what was asked for below the token."""
        photo = name.removeprefix("photo/")
        if not name:
            self.send("text/html; charset=utf-8", self._page.encode())
        elif name in TEXTS:
            kind, text = TEXTS[name]
            self.send(f"{kind}; charset=utf-8", text().encode())
        elif name == "splat.ply":
            self._send_splat()
        elif name.startswith("photo/") and photo in self._numbers:
            self._send_file(self._shown.photos[self._numbers[photo]])
        else:
            self.say(http.HTTPStatus.NOT_FOUND, "There is no such file.\n")

    def _send_splat(self) -> None:
        try:
            size, pieces = self._shown.ply()
            self.begin("application/octet-stream", size)
            for piece in pieces:
                self.wfile.write(piece)
        except (SplatbatchError, OSError, ValueError):
            self.close_connection = True  # the reader misses the rest, and says so

    def _send_file(self, path: Path) -> None:
        try:
            with open_regular(path) as file:
                self.begin(mimetypes.guess_type(path.name)[0] or "image/jpeg", path.stat().st_size)
                shutil.copyfileobj(file, self.wfile)
        except OSError:
            self.close_connection = True
