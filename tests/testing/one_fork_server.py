"""One fork server for all nights inside this process: each would start its own, and end it with its last attempt.

As a program it is that server. Its supervisors have the environment and the working folder of the night that asks for
them, which a server of its own would have had from its start.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path

from splatbatch.machine import supervisors
from splatbatch.supervisor import fork_server

FILE = "FORK_SERVER_SURROUNDINGS"
START = supervisors._Server.start


class Shared:
    """What a night takes for a server of its own."""

    def __init__(self, server: supervisors._Server, surroundings: Path) -> None:
        self.process, self.channel, self._server, self._surroundings = server.process, self, server, surroundings

    def ask(self, path: bytes) -> int:
        from quick import WATCH

        WATCH.hear_start("an attempt")
        self._surroundings.write_text(json.dumps([str(Path.cwd()), dict(os.environ)]))
        return self._server.ask(path)

    def end(self) -> None:
        """Leave the server to the next night."""

    close = end


def shared(*_programs: str) -> Shared:
    """Return the server of this process; another one where that has died."""
    if (server := _started()).process.poll() is not None:
        _started.cache_clear()
        server = _started()
    return server


@functools.cache
def _started() -> Shared:
    file = Path(os.environ["SPLATBATCH_CACHE"]) / f"surroundings-{os.getpid()}.json"
    environment, usual = dict(os.environ), supervisors.FORK_SERVER
    os.environ |= {FILE: str(file), "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    supervisors.FORK_SERVER = Path(__file__).stem
    try:
        return Shared(START(), file)
    finally:
        supervisors.FORK_SERVER = usual
        os.environ.clear()
        os.environ.update(environment)


def main(file: Path) -> None:
    usual = fork_server._introduced

    def introduced(path: str, parent: int) -> bool:
        folder, environment = json.loads(file.read_text())
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        return usual(path, parent)

    fork_server._introduced = introduced
    fork_server.serve(os.getppid())


if __name__ == "__main__":
    main(Path(os.environ[FILE]))
