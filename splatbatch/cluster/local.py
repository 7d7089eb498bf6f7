"""The engine that starts workers on this machine, each with GPUs of its own; they outlive whoever has started them."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from splatbatch import processes
from splatbatch.cluster.engine import JOB, Ended, Handle, JobState, Running, Unknown, WorkerRequest
from splatbatch.config import Executor
from splatbatch.errors import ExecutorError
from splatbatch.machine import background_command
from splatbatch.machine.slots import chosen_cards
from splatbatch.output.submissions import Submission


class LocalEngine:
    """Workers as processes of this machine; a handle is host, boot, process number and its start."""

    def __init__(self, settings: Executor) -> None:
        self._settings = settings

    def check(self, wanted: WorkerRequest) -> None:
        """See that there are GPUs enough.

        Raises:
            ExecutorError: there are not.
        """
        if wanted.gpus and wanted.num_workers > 1:
            have, want = len(chosen_cards(self._settings, "auto")), wanted.num_workers * wanted.gpus
            if want > have:
                raise ExecutorError(
                    f"executor.workers: {wanted.num_workers}: GPUs wanted: {want}, GPUs here: {have}",
                    "Lower workers or gpus_per_worker, or set gpus_per_worker: 0 and training.device: cpu.",
                )

    def num_turns(self, wanted: WorkerRequest, seconds: float | None) -> int:
        """Return 1: nobody ends them."""
        return 1

    def start(self, wanted: WorkerRequest, submission: Submission) -> tuple[Handle, ...]:
        """Start them, one after the other."""
        return tuple(self._started(wanted, submission, index) for index in range(wanted.num_workers))

    def find(self, submission: Submission) -> tuple[Handle, ...]:
        """Return those that bear its name in their environment."""
        mark = f"{JOB}={submission.name}/".encode()
        found = {}
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                job = next((one for one in environ.read_bytes().split(b"\0") if one.startswith(mark)), None)
            except OSError:
                continue
            pid = int(environ.parent.name)
            if job and os.getsid(pid) == pid:  # the worker itself leads its session; what it has started does not
                found[job] = _handle(pid)
        return tuple(found[job] for job in sorted(found))

    def look(self, known: Sequence[Submission]) -> Mapping[Handle, JobState]:
        """Say which of them still run, if this machine started them."""
        return {handle: _seen(handle) for one in known for handle in one.handles}

    def stop(self, known: Sequence[Submission]) -> str:
        """Tell them to stop."""
        ours = [handle for handle, seen in self.look(known).items() if isinstance(seen, Running)]
        processes.send(signal.SIGTERM, [int(handle.split(":")[2]) for handle in ours])
        return ""

    def drop(self, submission: Submission) -> None:
        """Do nothing: none of them waits."""

    def _started(self, wanted: WorkerRequest, submission: Submission, index: int) -> Handle:
        environment = {**os.environ, **wanted.environment, JOB: f"{submission.name}/{index}"}
        if wanted.gpus and wanted.num_workers > 1:
            cards = chosen_cards(self._settings, "auto")[index * wanted.gpus :][: wanted.gpus]
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(card.uuid for card in cards)
        try:
            return _handle(background_command.start(wanted.command, submission.log(index), environment).pid)
        except OSError as error:
            raise ExecutorError(f"{wanted.command[0]}: cannot be started ({error.strerror})") from error


def _handle(pid: int) -> Handle:
    return f"{socket.gethostname()}:{processes.boot_id()}:{pid}:{processes.start_ticks(pid)}"


def _seen(handle: Handle) -> JobState:
    host, boot, pid, ticks = handle.split(":")
    if host != socket.gethostname():
        return Unknown(f"it runs on {host}, if at all")
    lives = boot == processes.boot_id() and processes.start_ticks(int(pid)) == int(ticks) != 0
    return Running(host) if lives else Ended("its process has ended", host)
