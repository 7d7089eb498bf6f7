"""CUDA MPS for the attempts of one batch: a private daemon that ends with the batch, even if the batch is killed.

Without MPS, kernels of different processes on one GPU take turns; with it they run side by side.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from splatbatch import processes
from splatbatch.machine.gpu import environment_of

DAEMON = "nvidia-cuda-mps-control"
"""Name of the program that is the MPS daemon."""
SERVER_MIB = 512.0
"""GPU memory in MiB that the MPS server of a GPU may take (estimated, not measured)."""
READY_S = 5.0
"""Seconds that the daemon may take to be ready."""
QUIT_S = 5.0
"""Seconds that the daemon may take to end by SIGTERM."""
PREFIX = "splatbatch-mps-"
"""Begin of the daemon's folder in the temporary folder, and of the marker of its processes."""


@dataclass(frozen=True)
class Mps:
    """A running MPS daemon. Its pipes lie in a private temporary folder, so that it serves no other program."""

    process: subprocess.Popen[bytes]
    folder: Path

    @staticmethod
    def start(uuids: Iterable[str]) -> Mps | None:
        """Start the daemon for the GPUs of these UUIDs, also where CUDA_VISIBLE_DEVICES shows others.

        None if MPS is not installed, cannot be started, or is not ready within `READY_S`. Daemons that dead
        batches have left are ended first.

        Raises:
            OSError: no temporary folder can be made.
        """
        program = shutil.which(DAEMON)
        if program is None:
            return None
        _end_orphaned_daemons()
        # the path of a socket may have 107 bytes (unix(7)): not in the output folder
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            process = subprocess.Popen(
                [program, "-f"],  # in the foreground: a process that the kernel ends when we die
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # UUIDs, not indices: the daemon would count the GPUs that it sees anew (NVIDIA's guide of MPS)
                env={**os.environ, **_environment(folder), **environment_of(uuids), processes.MARKER: _key(folder)},
                start_new_session=True,
                preexec_fn=partial(processes.die_with_parent, signal.SIGTERM, os.getpid()),  # noqa: PLW1509 - one thread
            )
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        mps = Mps(process, folder)
        if mps._is_ready():
            return mps
        mps.stop()
        return None

    @property
    def environment(self) -> tuple[tuple[str, str], ...]:
        """Environment variables that make a CUDA program use this daemon, as names and values."""
        return tuple(_environment(self.folder).items())

    def stop(self) -> None:
        """End the daemon and its servers by SIGTERM, and by SIGKILL after `QUIT_S` seconds; remove its folder.

        After SIGKILL, the end of the daemon is waited for without a limit of time.
        """
        processes.send_group(signal.SIGTERM, self.process.pid)
        try:
            self.process.wait(QUIT_S)
        except subprocess.TimeoutExpired:
            processes.send_group(signal.SIGKILL, self.process.pid)
            self.process.wait()
        processes.end_marked(_key(self.folder))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _is_ready(self) -> bool:
        give_up_at = time.monotonic() + READY_S
        while time.monotonic() < give_up_at and self.process.poll() is None:
            if (self.folder / "control").exists():
                return True
            time.sleep(0.02)
        return False


def _environment(folder: Path) -> dict[str, str]:
    return {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}


def _key(folder: Path) -> str:
    """Return the marker of a daemon's processes; it names this process, so a later run can see whether it lives."""
    return f"{PREFIX}{processes.name_of(os.getpid())}:{folder}"


def _end_orphaned_daemons() -> None:
    """End MPS daemons of dead batches that outlived them."""
    for key in set(processes.with_marker(PREFIX).values()):
        pid, ticks, folder = key.removeprefix(PREFIX).split(":", 2)
        if not processes.living(f"{pid}:{ticks}"):
            processes.end_marked(key)
            shutil.rmtree(folder, ignore_errors=True)
