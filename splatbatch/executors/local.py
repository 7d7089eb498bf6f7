"""This machine: one supervisor process per attempt, one slot per GPU or a few on the CPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from splatbatch import gpu
from splatbatch.attempt import AttemptFolder
from splatbatch.config import Executor as ExecutorConfig
from splatbatch.errors import ExecutorError
from splatbatch.executors.protocol import Handle, Job, Key, Seen, Slot
from splatbatch.files import read_json
from splatbatch.supervisor import processes

_SUPERVISOR = "splatbatch.supervisor"


class LocalExecutor:
    """Starts supervisors as processes of this machine; they stop their attempt when this parent dies."""

    survives_parent = False

    def __init__(self, config: ExecutorConfig, *, on_cpu: bool) -> None:
        self._slots = _cpu_slots(config.cpu_slots) if on_cpu else _gpu_slots(config)
        self._processes: dict[Key, subprocess.Popen[bytes]] = {}

    def slots(self) -> Sequence[Slot]:
        """Return one slot per GPU, else the CPU slots."""
        return self._slots

    def submit(self, jobs: Sequence[Job]) -> Mapping[Key, Handle]:
        """Start a supervisor per job; from the main thread, since its death signal follows the thread."""
        for job in jobs:
            if job.key not in self._processes:
                self._processes[job.key] = subprocess.Popen(
                    [sys.executable, "-m", _SUPERVISOR, str(job.folder.path)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    preexec_fn=_stop_with_parent,  # noqa: PLW1509 - the parent has one thread
                )
        return {job.key: _handle(self._processes[job.key].pid) for job in jobs}

    def poll(self, handles: Mapping[Key, Handle]) -> Mapping[Key, Seen]:
        """Say which supervisors still run."""
        return {key: self._seen(key, handle) for key, handle in handles.items()}

    def cancel(self, handles: Mapping[Key, Handle]) -> None:
        """Ask supervisors to stop their attempts."""
        for handle in handles.values():
            if pid := _living(handle):
                processes.send(signal.SIGTERM, [pid])

    def find(self, batch: str) -> Mapping[Key, Handle]:
        """Return the supervisors of a batch that still run on this machine."""
        found = {}
        for pid in (int(path.name) for path in Path("/proc").glob("[0-9]*")):
            if (folder := _supervised_folder(pid)) and (job := read_json(folder.job)):
                key = str(job.get("key"))
                if key.startswith(f"{batch}."):
                    found[key] = _handle(pid)
        return found

    def _seen(self, key: Key, handle: Handle) -> Seen:
        if process := self._processes.get(key):
            code = process.poll()
            return Seen("running") if code is None else Seen("ended", f"supervisor ended with {code}")
        return Seen("running") if _living(handle) else Seen("gone")


def _stop_with_parent() -> None:
    processes.die_with_parent(signal.SIGTERM)


def _handle(pid: int) -> Handle:
    return f"{pid}:{processes.start_ticks(pid)}:{processes.boot_id()}"


def _living(handle: Handle) -> int | None:
    """Return the pid behind a handle if that very process still runs, not another that got its number."""
    pid, ticks, boot = handle.split(":")
    alive = boot == processes.boot_id() and int(ticks) and processes.start_ticks(int(pid)) == int(ticks)
    return int(pid) if alive else None


def _supervised_folder(pid: int) -> AttemptFolder | None:
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    if _SUPERVISOR.encode() not in argv[:-1]:
        return None
    return AttemptFolder(Path(os.fsdecode(argv[argv.index(_SUPERVISOR.encode()) + 1])))


def _cpu_slots(count: int) -> tuple[Slot, ...]:
    return tuple(Slot(f"cpu{index}") for index in range(count))


def _gpu_slots(config: ExecutorConfig) -> tuple[Slot, ...]:
    present = {card.index: card for card in gpu.gpus()}
    wanted = tuple(present) if config.gpus == "auto" else config.gpus
    if not wanted:
        raise ExecutorError(
            "training.device: cuda: NVML sees no GPU here",
            "Check nvidia-smi and the driver, or set training.device to auto or cpu.",
        )
    for index in wanted:
        if index not in present:
            have = ", ".join(f"{card.index} ({card.name})" for card in present.values()) or "none"
            raise ExecutorError(
                f"executor.gpus: [{index}]: no such GPU; NVML sees {have}",
                "Check nvidia-smi and the driver, or set executor.gpus to auto, or to [] to train on the CPU.",
            )
    return tuple(Slot(f"gpu{index}", present[index].uuid) for index in wanted)
