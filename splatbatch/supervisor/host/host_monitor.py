"""What happened around the process of an attempt: evidence that its own log does not hold."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from splatbatch import processes
from splatbatch.files import SHARED_MEMORY, free_mib
from splatbatch.machine import gpu
from splatbatch.outcome import Exit
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.records.attempt import ExitFacts
from splatbatch.supervisor.host.gpu_watch import GpuWatch
from splatbatch.supervisor.host.kernel_log import KernelLog, OomWatch


class HostMonitor:
    """Watches the OOM killer, the kernel's log, the disk and shared memory from the start of an attempt."""

    def __init__(self, folder: AttemptFolder, gpu_uuid: str | None) -> None:
        self._attempt = folder
        self._memory = OomWatch()
        self._least: dict[Path, int] = {}
        self._folder = folder.path
        self._pids: set[int] = set()
        self._watch(gpu_uuid)

    def begin(self, gpu_uuid: str | None) -> None:
        """Watch this GPU from now on: the attempt has stood by, and was meant for another one maybe."""
        self._kernel.close()
        self._watch(gpu_uuid)

    def _watch(self, gpu_uuid: str | None) -> None:
        self.since = time.monotonic()
        self.gpu = GpuWatch(self._attempt, gpu_uuid)
        self._kernel = KernelLog(gpu.bus(gpu_uuid) if gpu_uuid else "")

    def look(self) -> None:
        """Look around; now and then while the process runs, and once after its end."""
        self._pids.update(processes.descendants_at_a_glance(os.getpid()))
        self._kernel.look(self._pids)
        for path in (self._folder, SHARED_MEMORY):
            free = free_mib(path)
            if free is not None:
                self._least[path] = min(free, self._least.get(path, free))

    def facts(self, end: Exit, *, stood_by: bool) -> ExitFacts:
        """Return the end with what was seen; the least room, since it may be back by now."""
        return ExitFacts(
            end,
            seconds=round(time.monotonic() - self.since, 3),
            ended_at=time.time(),
            out_of_memory=self._memory.struck(),
            kernel_lines=tuple(self._kernel.lines),
            disk_free_mib=self._least.get(self._folder),
            own_gpu_peak_mib=self.gpu.own_peak_mib,
            shm_free_mib=self._least.get(SHARED_MEMORY),
            host=socket.gethostname(),
            pid=os.getpid(),
            boot_id=processes.boot_id(),
            stood_by=stood_by,
        )
