"""This machine: one supervisor process per attempt, one slot per GPU or a few on the CPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from splatbatch import gpu
from splatbatch.attempt import AttemptFolder
from splatbatch.config import Executor as ExecutorConfig
from splatbatch.errors import ExecutorError
from splatbatch.executors.mps import SERVER_MIB, Mps
from splatbatch.executors.protocol import Handle, Job, Key, Seen, Slot
from splatbatch.files import read_json
from splatbatch.supervisor import processes

_SUPERVISOR = "splatbatch.supervisor"


class LocalExecutor:
    """Starts supervisors as processes of this machine; they stop their attempt when this parent dies."""

    survives_parent = False

    def __init__(self, config: ExecutorConfig, *, on_cpu: bool) -> None:
        slots = _cpu_slots(config.cpu_slots) if on_cpu else _gpu_slots(config)
        packs = not on_cpu and config.patches_per_gpu != 1 and config.mps == "auto"
        self._mps = Mps.start() if packs else None
        self._slots = tuple(replace(slot, environment=self._mps.environment) for slot in slots) if self._mps else slots
        self.shared_mib = SERVER_MIB if self._mps else 0.0
        self._supervisors: dict[Key, _Supervisor] = {}

    def slots(self) -> Sequence[Slot]:
        """Return one slot per GPU, else the CPU slots."""
        return self._slots

    def submit(self, jobs: Sequence[Job]) -> Mapping[Key, Handle]:
        """Start a supervisor per job; from the main thread, since its death signal follows the thread."""
        for job in jobs:
            if job.key not in self._supervisors:
                self._supervisors[job.key] = _Supervisor(job.folder, _start_supervisor(job.folder))
        return {job.key: _handle(self._supervisors[job.key].process.pid) for job in jobs}

    def poll(self, handles: Mapping[Key, Handle]) -> Mapping[Key, Seen]:
        """Say which supervisors still run."""
        return {key: self._seen(key, handle) for key, handle in handles.items()}

    def cancel(self, handles: Mapping[Key, Handle]) -> None:
        """Ask supervisors to stop their attempts; what is left of an attempt without a supervisor is ended by force."""
        for key, handle in handles.items():
            pid = _living(handle)
            if pid and _supervised_folder(pid):
                processes.send(signal.SIGTERM, [pid])
            elif pid:
                processes.end_marked(key)

    def close(self) -> None:
        """End the MPS daemon, if there is one."""
        if self._mps:
            self._mps.stop()

    def find(self, batch: str) -> Mapping[Key, Handle]:
        """Return what still runs of a batch on this machine: supervisors, and what a killed one has left behind."""
        found = {key: _handle(pid) for pid, key in processes.marked(f"{batch}.").items()}
        for pid in (int(path.name) for path in Path("/proc").glob("[0-9]*")):
            if (folder := _supervised_folder(pid)) and (job := read_json(folder.job)):
                key = str(job.get("key"))
                if key.startswith(f"{batch}."):
                    found[key] = _handle(pid)
        return found

    def _seen(self, key: Key, handle: Handle) -> Seen:
        if supervisor := self._supervisors.get(key):
            code = supervisor.process.poll()
            if code is None:
                return Seen("running")
            if not supervisor.folder.exit.exists():
                processes.end_marked(key)
            return Seen("ended", f"supervisor ended with {code}")
        return Seen("running") if _living(handle) else Seen("gone")


@dataclass(frozen=True)
class _Supervisor:
    folder: AttemptFolder
    process: subprocess.Popen[bytes]


def _start_supervisor(folder: AttemptFolder) -> subprocess.Popen[bytes]:
    me = os.getpid()
    return subprocess.Popen(
        [sys.executable, "-m", _SUPERVISOR, str(folder.path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: processes.die_with_parent(signal.SIGTERM, me),  # noqa: PLW1509 - the parent has one thread
    )


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
