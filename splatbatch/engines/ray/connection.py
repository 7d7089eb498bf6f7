"""The door to Ray: a client process that is started when it is needed, and again when it has gone."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from splatbatch.plain_text import one_line

CLIENT = Path(__file__).with_name("client.py")
CONNECT_S = 60.0
"""Ray itself tries for two minutes, and says nothing more by that."""
ANSWER_S = 90.0
LOOK_S = 0.2
REFUSED = "InvalidAuthToken"
"""Ray's word for a wrong token, or none; it goes on trying for many seconds after it."""


class RayError(Exception):
    """Ray cannot be asked, or refuses; its message is Ray's own words."""


class Connection:
    """A client of the cluster that Ray's own variables name (RAY_ADDRESS, RAY_AUTH_MODE, RAY_AUTH_TOKEN_PATH, …)."""

    def __init__(self, changes: Mapping[str, str] | None = None) -> None:
        self._environment = {"RAY_DEDUP_LOGS": "0", **os.environ, **(changes or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._words: IO[bytes] | None = None
        self._began, self._is_connected = 0.0, False

    def __del__(self) -> None:
        self.close()

    def ask(self, do: str, patience_s: float = ANSWER_S, **more: Any) -> dict[str, Any]:
        """Return Ray's answer.

        Raises:
            RayError: there is none.
        """
        process = self.connected(patience_s)
        assert process.stdin is not None  # noqa: S101  it is a pipe
        try:
            process.stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise RayError(self._gone()) from error
        return self._answer(process, patience_s)

    def connected(self, patience_s: float = CONNECT_S) -> subprocess.Popen[bytes]:
        """Return the client, once it is connected; who asks again goes on waiting for the same.

        Raises:
            RayError: it cannot connect, or has not yet.
        """
        process = self._process
        if process is None or process.poll() is not None:
            process = self._begin()
        if not self._is_connected:
            age_s = time.monotonic() - self._began
            self._answer(process, min(patience_s, CONNECT_S), keeps=age_s + patience_s < CONNECT_S)
            self._is_connected = True
        return process

    def _begin(self) -> subprocess.Popen[bytes]:
        self.close()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  closed with the connection
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(CLIENT)],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
        )
        return self._process

    def close(self) -> None:
        """Let go of the cluster; what it runs goes on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
        if self._words is not None:
            self._words.close()
        self._process = self._words = None
        self._is_connected = False

    def _answer(self, process: subprocess.Popen[bytes], patience_s: float, *, keeps: bool = False) -> dict[str, Any]:
        """Wait for a line; it is complete once it has begun, but for one of many."""
        assert process.stdout is not None  # noqa: S101  it is a pipe
        end, line = time.monotonic() + patience_s, b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if selector.select(LOOK_S):
                    some = os.read(process.stdout.fileno(), 1 << 16)
                    if not some:
                        raise RayError(self._gone())
                    line += some
                elif (said := self._said()) and REFUSED in said:
                    self.close()
                    raise RayError(one_line(said[said.index(REFUSED) :].partition("\n")[0]))
                elif time.monotonic() > end:
                    if not keeps:
                        self.close()
                    raise RayError(f"it has not answered for {patience_s:.0f} s{': ' + said if said else ''}")
        answer = json.loads(line)
        if "error" in answer:
            raise RayError(one_line(str(answer["error"])))
        return dict(answer)

    def _said(self) -> str:
        """Return the last line that Ray has printed; all where it refuses us."""
        if self._words is None:
            return ""
        said = os.pread(self._words.fileno(), 1 << 16, 0).decode(errors="replace")
        return said if REFUSED in said else one_line(said.strip().rpartition("\n")[2])

    def _gone(self) -> str:
        """Return how the client has ended."""
        said = self._said()
        self.close()
        return said or "its client has ended without a word: the head of the cluster is gone"
