"""The web server of `serve` and `view`: a live report, or splats, for a browser on this machine.

It listens on the loopback address alone; other machines reach it through `ssh -L`. It answers only requests with the
secret token of the URL, and none from a page of another origin.
"""

from __future__ import annotations

import contextlib
import hashlib
import http
import json
import mimetypes
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from typer import Exit

from splatbatch.errors import OutputError, SplatbatchError

if TYPE_CHECKING:
    from splatbatch.publish.joint_scene import JointScene
    from splatbatch.tasks.batch import Batch
    from splatbatch.tasks.status import PatchStatus

LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
INTERRUPTED = 130
MOST_PORTS = 100
"""Number of ports that are tried, from the named port on."""
TOKEN_BYTES = 24
STUCK_S = 30.0
"""Seconds without a byte after which a connection is closed, since each connection keeps a thread waiting."""
MOST_STREAMS = 16
"""Largest number of pages that may follow the batch at the same time."""
PING_S = 15.0
"""Seconds without news after which a page is sent a comment, so that a closed page is noticed."""
LOOK_S = 2.0
"""Seconds for which the state of the batch, read once, serves all pages."""
REST = 20.0
"""Least age of a report before it is made anew, as a multiple of the CPU time that making it took."""
OF_A_PATCH = (
    "patch", "phase", "step", "max_steps", "loss", "psnr_covered", "psnr", "num_gaussians", "steps_per_s", "eta_s",
    "gpu_used_mib", "gpu_temperature_c", "node",
)  # fmt: skip


class Request(BaseHTTPRequestHandler):
    """One HTTP request to the server, with methods to answer it; each request is handled in a thread of its own."""

    timeout = STUCK_S
    server: LoopbackServer

    def log_message(self, format: str, *_: Any) -> None:
        """Write nothing: requests are not logged."""

    def do_GET(self) -> None:
        """Answer the request if `lets_in` allows it, else with status 403. A page closed in between is no error."""
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        if not lets_in(self.server.token, self.path, hosts, origins):
            return self.say(http.HTTPStatus.FORBIDDEN, "Open the complete URL that the command has printed.\n")
        with contextlib.suppress(ConnectionError, TimeoutError):  # the page was closed
            self.server.answer(self, self.path.partition("?")[0].replace(f"/{self.server.token}", "", 1).lstrip("/"))

    def begin(self, kind: str, size: int | None, status: http.HTTPStatus = http.HTTPStatus.OK) -> None:
        """Send the headers of an answer; the body follows.

        Args:
            kind: the media type of the body.
            size: the size of the body in bytes; None: unknown, and the body ends with the connection.
            status: the HTTP status.
        """
        self.send_response(status)
        headers = {"Content-Type": kind, "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY"}
        headers |= {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        headers |= {} if size is None else {"Content-Length": str(size)}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def send(self, kind: str, text: str, status: http.HTTPStatus = http.HTTPStatus.OK) -> None:
        """Send a complete answer with a text of the media type `kind`."""
        content = text.encode()
        self.begin(kind, len(content), status)
        self.wfile.write(content)

    def say(self, status: http.HTTPStatus, words: str) -> None:
        """Send a complete answer with plain text and a status."""
        self.send("text/plain; charset=utf-8", words, status)


def lets_in(token: str, path: str, hosts: list[str], origins: list[str]) -> bool:
    """Return whether a request may be answered: it has the token, a loopback host, and no foreign origin.

    Args:
        token: the secret part of the URL.
        path: the requested path; its first part must be the token.
        hosts: the Host headers of the request; exactly one is required, with a loopback name.
        origins: the Origin headers, which name the page that sent the request; must be empty, or name this server.
    """
    if len(hosts) != 1 or _name(f"//{hosts[0]}") not in LOOPBACK_NAMES:
        return False
    is_of_ours = not origins or origins == [f"http://{hosts[0]}"]
    first_part = path.partition("?")[0].lstrip("/").partition("/")[0]
    return is_of_ours and secrets.compare_digest(first_part.encode(), token.encode())


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


class LoopbackServer(ThreadingHTTPServer):
    """An HTTP server on the loopback address, whose URLs begin with a random token.

    `answer` is called with each allowed request, and its path below the token. If `port` cannot be used, making the
    server raises an OSError.
    """

    def __init__(self, port: int, answer: Callable[[Request, str], None]) -> None:
        self.token, self.answer = secrets.token_hex(TOKEN_BYTES), answer
        super().__init__((LOOPBACK, port), Request)

    @property
    def url(self) -> str:
        """URL of the page, with the token that a request must have."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}/"

    def serve_until_interrupted(self) -> None:
        """Answer requests until Ctrl-C.

        Raises:
            Exit: Ctrl-C was pressed; its code is 130.
        """
        try:
            self.serve_forever()
        except KeyboardInterrupt:
            self.server_close()
            raise Exit(INTERRUPTED) from None


def open_server(port: int, answer: Callable[[Request, str], None]) -> LoopbackServer:
    """Return a server that listens on a port, or on the next free one.

    Args:
        port: the first port to try.
        answer: is called with each allowed request, and its path below the token.

    Raises:
        OutputError: none of `MOST_PORTS` ports is free.
    """
    for one in range(port, min(port + MOST_PORTS, 65536)):
        with contextlib.suppress(OSError):
            return LoopbackServer(one, answer)
    raise OutputError(f"--port {port}: none of the {MOST_PORTS} ports from {port} on is free", "Give another port.")


class LiveStatus:
    """The live report of a batch, with its progress; it reads files when asked, starts nothing and writes nothing."""

    def __init__(self, batch: Batch) -> None:
        from splatbatch.output.workers import Watcher

        self._batch, self._watcher = batch, Watcher(batch.output)
        self._looking, self._making = threading.Lock(), threading.Lock()
        self._streams = threading.BoundedSemaphore(MOST_STREAMS)
        self._now: dict[str, Any] = {}
        self._looked_at = -LOOK_S
        self._page = self._page_version = ""
        self._made_at = self._took_s = 0.0

    def answer(self, request: Request, name: str) -> None:
        """Answer with the page (empty name), the progress as JSON (`now`), or a stream of progress (`events`).

        A stream lasts until the page is closed. Another name gets status 404; an error of splatbatch gets 503, with its
        message, and so does a stream beyond `MOST_STREAMS`.
        """
        try:
            match name:
                case "":
                    request.send("text/html; charset=utf-8", self.page())
                case "now":
                    request.send("application/json", self._spelled_now())
                case "events":
                    self._stream(request)
                case _:
                    request.say(http.HTTPStatus.NOT_FOUND, "There is no such page.\n")
        except SplatbatchError as error:
            request.say(http.HTTPStatus.SERVICE_UNAVAILABLE, f"{error.message}\n")

    def _stream(self, request: Request) -> None:
        """Send the progress as server-sent events whenever it has changed, until the browser closes the page."""
        if not self._streams.acquire(blocking=False):
            return request.say(http.HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_STREAMS} live pages are open: close one.\n")
        try:
            request.begin("text/event-stream; charset=utf-8", None)
            request.close_connection = True
            said, said_at = "", 0.0
            while True:
                words, now = self._spelled_now(), time.monotonic()
                if words != said or now - said_at > PING_S:
                    event = f"event: now\ndata: {words}" if words != said else ": still here"
                    request.wfile.write(f"{event}\n\n".encode())
                    said, said_at = words, now
                time.sleep(LOOK_S)
        finally:
            self._streams.release()

    def _spelled_now(self) -> str:
        return json.dumps(self.now(), allow_nan=False, default=str)

    def now(self) -> dict[str, Any]:
        """Return the progress of the batch as values of JSON.

        These are a line, seconds to go (None: unknown), patches left, who trains, each running patch, all states, and
        the version of the report. The files are read at most every `LOOK_S`.

        Raises:
            LaterFormatError: a later version of splatbatch wrote the output folder.
        """
        with self._looking:
            if time.monotonic() - self._looked_at >= LOOK_S:
                self._now = self._look()
                self._looked_at = time.monotonic()
            return self._now

    def page(self) -> str:
        """Return the report as an HTML page that follows the batch.

        The page is made anew when its version has changed.

        Raises:
            LaterFormatError: a later version of splatbatch wrote the output folder.
            OSError: a mask was removed during the audit.
        """
        from splatbatch.report import to_live_html
        from splatbatch.run.status import report_of

        version, batch = self.now()["version"], self._batch
        with self._making:
            if self._page_version != version:
                self._made_at, spent = time.monotonic(), time.thread_time()
                facts = report_of(batch, batch.standing())
                self._page, self._page_version = to_live_html(facts, batch.output, version), version
                self._took_s = time.thread_time() - spent
            return self._page

    def _look(self) -> dict[str, Any]:
        from splatbatch.monitor.table import batch_eta_s, batch_line, num_left
        from splatbatch.output.claims import at_work
        from splatbatch.output.exclusive import holder
        from splatbatch.output.workers import LOCAL
        from splatbatch.run.status import describe_workers, states_in_view

        batch = self._batch
        found = states_in_view(batch)
        running = [asdict(one) for one in found if one.state == "running"]
        return {
            "line": batch_line(found),
            "eta_s": batch_eta_s(found),
            "left": num_left(found),
            "run": " and ".join(describe_workers(holder(batch.output), at_work(self._watcher, but=LOCAL))),
            "running": [{key: one[key] for key in OF_A_PATCH} for one in running],
            "states": {one.patch: one.state for one in found},
            "version": self._version(found),
        }

    def _version(self, found: tuple[PatchStatus, ...]) -> str:
        """Return a hash of the states, attempts and figures of all patches, and of the sizes of the ledgers.

        A recent report keeps its version, see `REST`, so that making reports takes little CPU from the training.
        """
        if self._page and time.monotonic() - self._made_at < REST * self._took_s:
            return self._page_version
        facts = [(one.patch, one.state, one.attempt, one.cause, one.psnr_covered, one.psnr) for one in found]
        sizes = [path.stat().st_size for path in self._batch.output.ledgers() if path.exists()]
        return hashlib.sha256(repr((facts, sizes)).encode()).hexdigest()[:16]


class SplatPages:
    """Pages of `view`: the page itself, its scripts, the splats as one file, and their photographs.

    `shown` are the splats, with the photographs that the page offers.
    """

    def __init__(self, shown: JointScene) -> None:
        self._shown = shown
        self._photos = {f"photo/{number}": photo.file for number, photo in enumerate(shown.facts.photos)}

    def answer(self, request: Request, name: str) -> None:
        """Answer with the file of this name; if the file cannot be read, close the connection.

        Another name gets status 404.
        """
        from splatbatch.files import open_regular
        from splatbatch.publish.page import PACKAGE, folder_page
        from splatbatch.report.html import asset
        from splatbatch.report.viewer.viewer import viewer_script

        try:
            match name:
                case "":
                    request.send("text/html; charset=utf-8", folder_page(self._shown.facts, "splat.ply"))
                case "viewer.js":
                    request.send("text/javascript; charset=utf-8", viewer_script())
                case "page.js" | "page.css":
                    kind = "css" if name == "page.css" else "javascript"
                    request.send(f"text/{kind}; charset=utf-8", asset(name, PACKAGE))
                case "splat.ply":
                    self._send_splat(request)
                case _ if photo := self._photos.get(name):
                    with open_regular(photo) as file:
                        request.begin(mimetypes.guess_type(photo.name)[0] or "image/jpeg", photo.stat().st_size)
                        shutil.copyfileobj(file, request.wfile)
                case _:
                    request.say(http.HTTPStatus.NOT_FOUND, "There is no such file.\n")
        except (SplatbatchError, OSError, ValueError):
            request.close_connection = True  # the browser reports the missing rest

    def _send_splat(self, request: Request) -> None:
        size, pieces = self._shown.ply()
        request.begin("application/octet-stream", size)
        for piece in pieces:
            request.wfile.write(piece)
