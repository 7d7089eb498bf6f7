"""What NVML says of the GPU while an attempt runs on it, and how much of its memory the attempt itself holds."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from splatbatch import processes
from splatbatch.files import append_line
from splatbatch.machine import gpu
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.records.progress import GpuSample


class GpuWatch:
    """Samples a GPU into gpu.jsonl; does nothing for an attempt on the CPU."""

    def __init__(self, folder: AttemptFolder, uuid: str | None) -> None:
        self._folder, self._uuid = folder, uuid
        self._before: frozenset[int] | None = None
        self._busiest: int | None = None
        self.own_peak_mib: int | None = None
        """The most that the attempt's processes held at a sample; None: NVML did not say, or there is no GPU."""

    def look(self) -> None:
        """Take a sample and write it down; the first belongs to the time before the process has reached the GPU."""
        if self._uuid is None:
            return
        sample = gpu.sample(self._uuid)
        if sample.utilisation_percent is not None:
            self._busiest = max(sample.utilisation_percent, self._busiest or 0)
        self._before = frozenset(sample.processes) if self._before is None else self._before
        own = own_mib(sample, frozenset(processes.descendants(os.getpid())), self._before)
        if own is not None:
            self.own_peak_mib = max(own, self.own_peak_mib or 0)
        line = replace(sample, t=round(time.time(), 2), own_mib=own)
        append_line(self._folder.gpu_samples, line.to_record(), durable=False)

    def busiest_percent(self) -> int | None:
        """Return the highest utilisation since this was last asked; None: NVML does not say."""
        busiest = self._busiest
        self._busiest = None if busiest is None else 0
        return busiest


def own_mib(sample: GpuSample, ours: frozenset[int], before: frozenset[int]) -> int | None:
    """Return what our processes hold of a GPU.

    In a container NVML names processes by numbers that mean nothing here. Then one that has come since the attempt
    began, and is none of this container by its number, is taken for ours; of several nobody can tell.
    """
    held = {pid: mib for pid, mib in zip(sample.processes, sample.process_mib, strict=True) if mib is not None}
    known = [mib for pid, mib in held.items() if pid in ours]
    if known:
        return sum(known)
    came = [mib for pid, mib in held.items() if pid not in before and not processes.start_ticks(pid)]
    return came[0] if len(came) == 1 else None
