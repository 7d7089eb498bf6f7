"""The report while a batch runs, served to this machine alone; from another one through `ssh -L`."""

from __future__ import annotations

import http
import json
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import typer

from splatbatch.commands.live.board import LOOK_S, Board
from splatbatch.commands.view.guard import Guard
from splatbatch.commands.view.loopback import LOOPBACK, LoopbackHandler, open_server, serve_until_interrupted
from splatbatch.errors import SplatbatchError
from splatbatch.plain_text import one_line
from splatbatch.tasks.batch import open_batch

MOST_STREAMS = 16
"""Pages that follow at once."""
PING_S = 15.0
"""After which a page that has closed unseen is noticed."""


def serve(config: Path | None, port: int) -> None:
    """Serve the report until Ctrl-C, then exit with 130.

    Raises:
        OutputError: no port is free.
    """
    board = Board(open_batch(config).whole())
    guard = Guard()
    server = open_server(port, partial(_Handler, guard, board, threading.BoundedSemaphore(MOST_STREAMS)))
    number = server.server_port
    typer.echo(one_line(f"the report, as it is now, at http://{LOOPBACK}:{number}/{guard.token}/ until Ctrl-C"))
    typer.echo(f"from another machine: ssh -L {number}:{LOOPBACK}:{number} THIS_MACHINE there, then the same address")
    serve_until_interrupted(server)


class _Handler(LoopbackHandler):
    """Answers with the page, with how far the batch is, and with a stream of both."""

    def __init__(self, guard: Guard, board: Board, streams: threading.BoundedSemaphore, *arguments: Any) -> None:
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
                self.say(http.HTTPStatus.NOT_FOUND, "There is nothing of that name.\n")

    def _stream(self) -> None:
        """Send how far the batch is whenever that has changed, until nobody listens."""
        if not self._streams.acquire(blocking=False):
            self.say(http.HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_STREAMS} pages follow already.\n")
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
