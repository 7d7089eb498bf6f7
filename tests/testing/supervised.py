"""Supervisors over small Python programs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from program_here import Clock, supervise_here

from splatbatch import processes
from splatbatch.files import read_json
from splatbatch.output.attempt_folder import AttemptFolder

PATIENCE_S = 60.0
ASLEEP = "import time; print('ready', flush=True); time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {ASLEEP}"


def wait_for(condition: Callable[[], Any]) -> Any:
    end = monotonic() + PATIENCE_S
    while monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def alive(pid: int) -> bool:
    return processes.start_ticks(pid) != 0


class Attempts:
    """Starts supervisors over small Python programs, and ends what is left of them."""

    def __init__(self, root: Path) -> None:
        self.folder = AttemptFolder(root / "attempt-01")
        self.folder.path.mkdir()
        self.started: list[subprocess.Popen[bytes]] = []
        self.clock = Clock()

    def job(self, *argv: str, limits: dict[str, float] | None = None, **more: Any) -> Attempts:
        job = {
            "argv": argv,
            "limits": {"wall_s": 60.0, "grace_s": 0.3} | (limits or {}),
            "env": {},
            "gpu": None,
            **more,
        }
        self.folder.job.write_text(json.dumps(job))
        return self

    def program(self, code: str, **job: Any) -> Attempts:
        return self.job(sys.executable, "-c", code, **job)

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "splatbatch.supervisor", str(self.folder.path)]
        self.started.append(subprocess.Popen(command, start_new_session=True))
        return self.started[-1]

    def run(self) -> int:
        """Supervise inside this process, by a clock of its own."""
        return supervise_here(self.folder, self.clock)

    def run_apart(self) -> int:
        return self.start().wait(PATIENCE_S)

    def after(self, seconds: float, do: Callable[[], object]) -> None:
        """Do something once the program has run for so long, by the clock of `run`."""
        self.clock.alarms.append((seconds, do))

    def until_ready(self) -> subprocess.Popen[bytes]:
        supervisor = self.start()
        wait_for(lambda: self.folder.log.exists() and "ready" in self.folder.log.read_text())
        return supervisor

    @property
    def end(self) -> dict[str, Any]:
        return read_json(self.folder.exit) or {}

    @property
    def child(self) -> int:
        return int(wait_for(lambda: read_json(self.folder.heartbeat))["child"])
