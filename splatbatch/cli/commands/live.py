"""The report while a batch runs, served to this machine alone; from another one through `ssh -L`."""

from __future__ import annotations

import hashlib
import http
import json
import threading
import time
from dataclasses import asdict, dataclass
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
from splatbatch.errors import SplatbatchError
from splatbatch.monitor.table import batch_eta_s, batch_line, num_left, num_shown
from splatbatch.output.claims import at_work
from splatbatch.output.exclusive import holder
from splatbatch.output.workers import LOCAL, Watcher
from splatbatch.report import BatchSnapshot, build, to_live_html
from splatbatch.run.status import spelled_crew, standing_now
from splatbatch.tasks.batch import Batch, open_batch
from splatbatch.tasks.status import PatchStatus, read_status

MOST_STREAMS = 16
"""Pages that follow at once."""
PING_S = 15.0
"""After which a page that has closed unseen is noticed."""
LOOK_S = 2.0
"""As long a look serves everybody."""
REST = 20.0
"""Times what a report takes to make, for which it stands: a batch of hundreds takes seconds."""
OF_A_PATCH = (
    "patch", "phase", "step", "max_steps", "loss", "psnr_covered", "psnr", "num_gaussians", "steps_per_s", "eta_s",
    "gpu_used_mib", "gpu_temperature_c", "node",
)  # fmt: skip


def serve(config: Path | None, port: int) -> None:
    """Serve the report until Ctrl-C, then exit with 130.

    Raises:
        OutputError: no port is free.
    """
    board = LiveStatus(open_batch(config).whole())
    guard = RequestGuard()
    server = open_server(port, partial(_LiveHandler, guard, board, threading.BoundedSemaphore(MOST_STREAMS)))
    number = server.server_port
    print_line(f"live report at http://{LOOPBACK}:{number}/{guard.token}/ until Ctrl-C")
    print_line(
        f"From another machine: run `ssh -L {number}:{LOOPBACK}:{number} THIS_MACHINE`, then open this address there."
    )
    serve_until_interrupted(server)


class _LiveHandler(LoopbackHandler):
    """Answers with the page, with how far the batch is, and with a stream of both."""

    def __init__(
        self, guard: RequestGuard, board: LiveStatus, streams: threading.BoundedSemaphore, *arguments: Any
    ) -> None:
        self._board, self._streams = board, streams
        super().__init__(guard, *arguments)

    def answer(self, name: str) -> None:
        """Answer what was asked for below the token."""
        try:
            self._answer(name)
        except SplatbatchError as error:
            self.say(http.HTTPStatus.SERVICE_UNAVAILABLE, f"{error.message}\n")

    def _answer(self, name: str) -> None:
        match name:
            case "":
                self.send("text/html; charset=utf-8", self._board.page())
            case "now":
                self.send("application/json", _spell(self._board.now()).encode())
            case "events":
                self._stream()
            case _:
                self.say(http.HTTPStatus.NOT_FOUND, "There is no such page.\n")

    def _stream(self) -> None:
        """Send how far the batch is whenever that has changed, until nobody listens."""
        if not self._streams.acquire(blocking=False):
            self.say(http.HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_STREAMS} live pages are open: close one.\n")
            return
        try:
            self.begin("text/event-stream; charset=utf-8", None)
            self.close_connection = True
            self._follow()
        finally:
            self._streams.release()

    def _follow(self) -> None:
        said, said_at = "", 0.0
        while True:
            words = _spell(self._board.now())
            if words != said:
                self.wfile.write(f"event: now\ndata: {words}\n\n".encode())
                said, said_at = words, time.monotonic()
            elif time.monotonic() - said_at > PING_S:
                self.wfile.write(b": still here\n\n")
                said_at = time.monotonic()
            time.sleep(LOOK_S)


def _spell(now: dict[str, Any]) -> str:
    return json.dumps(now, allow_nan=False, default=str)


@dataclass(frozen=True)
class LiveReport:
    """A report that was made, of which version, when, and what that took."""

    version: str
    content: bytes
    made_at: float
    took_s: float

    def may_be_followed(self, now: float) -> bool:
        """Return whether it has stood long enough: to make reports is not to take the CPU from who trains."""
        return now - self.made_at >= REST * self.took_s


class LiveStatus:
    """Looks at the files of a batch when somebody asks; it starts nothing and writes nothing."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._looking, self._making = threading.Lock(), threading.Lock()
        self._watcher = Watcher(batch.output)
        self._now: dict[str, Any] = {}
        self._looked_at = -LOOK_S
        self._page: LiveReport | None = None

    def now(self) -> dict[str, Any]:
        """Return how far it is: a line, seconds to go, patches left, each running patch, and which report that is."""
        with self._looking:
            if time.monotonic() - self._looked_at >= LOOK_S:
                self._now = self._look()
                self._looked_at = time.monotonic()
            return self._now

    def page(self) -> bytes:
        """Return the report as a page that follows the batch; made anew when a patch or the ledger has changed."""
        version = self.now()["version"]
        with self._making:
            if self._page is None or self._page.version != version:
                self._page = self._made(version)
            return self._page.content

    def _made(self, version: str) -> LiveReport:
        batch, begun, spent = self._batch, time.monotonic(), time.thread_time()
        standing = batch.standing()
        now = BatchSnapshot(standing_now(batch, standing), holder(batch.output) is not None)
        variants = tuple(batch.config.variants.values())
        text = to_live_html(build(batch.output, batch.names, variants, standing, now), batch.output, version)
        return LiveReport(version, text.encode(), begun, time.thread_time() - spent)

    def _look(self) -> dict[str, Any]:
        batch = self._batch
        found = read_status(batch.output, batch.names, num_shown(len(batch.tasks)), batch.standing())
        running = holder(batch.output)
        return {
            "line": batch_line(found),
            "eta_s": batch_eta_s(found),
            "left": num_left(found),
            "run": " and ".join(spelled_crew(running, at_work(self._watcher, but=LOCAL))),
            "running": [_row(one) for one in found if one.state == "running"],
            "states": {one.patch: one.state for one in found},
            "version": self._version(found),
        }

    def _version(self, found: tuple[PatchStatus, ...]) -> str:
        """Return what tells this report from an earlier one: states, attempts, figures, and how much the ledgers say.

        That of the page, as long as it stands.
        """
        if self._page and not self._page.may_be_followed(time.monotonic()):
            return self._page.version
        facts = [(one.patch, one.state, one.attempt, one.cause, one.psnr_covered, one.psnr) for one in found]
        sizes = [path.stat().st_size for path in self._batch.output.ledgers() if path.exists()]
        return hashlib.sha256(repr((facts, sizes)).encode()).hexdigest()[:16]


def _row(status: PatchStatus) -> dict[str, Any]:
    known = asdict(status)
    return {key: known[key] for key in OF_A_PATCH}
