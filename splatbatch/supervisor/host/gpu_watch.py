"""What NVML says of the GPU while an attempt runs on it, and how much of its memory the attempt itself holds."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from splatbatch import processes
from splatbatch.files import append_line
from splatbatch.machine import gpu
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.records.attempt import GpuSample


class GpuWatch:
    """Samples a GPU into gpu.jsonl; does nothing for an attempt on the CPU.

    In a container NVML names processes by numbers that mean nothing here. Then the one that has come since the attempt
    began, and is none of this container by its number, is taken for the attempt's; where several come at once, or it
    came before the watch began, nobody can tell.
    """

    def __init__(self, folder: AttemptFolder, uuid: str | None) -> None:
        self._folder, self._uuid = folder, uuid
        self._before: frozenset[int] | None = None
        # who has opened its context ahead of its turn is there already: who comes now is another
        self._came: frozenset[int] | None = frozenset() if folder.ahead.exists() else None
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
        own = held_mib(sample, self._own(sample))
        if own is not None:
            self.own_peak_mib = max(own, self.own_peak_mib or 0)
        line = replace(sample, t=round(time.time(), 2), own_mib=own)
        append_line(self._folder.gpu_samples, line.to_record(), durable=False)

    def _own(self, sample: GpuSample) -> frozenset[int]:
        self._before = frozenset(sample.processes) if self._before is None else self._before
        if known := frozenset(processes.descendants(os.getpid())) & frozenset(sample.processes):
            return known
        if self._came is None and (come := newcomers(sample, self._before)):
            self._came = come if len(come) == 1 else frozenset()
        return self._came or frozenset()

    def busiest_percent(self) -> int | None:
        """Return the highest utilisation since this was last asked; None: NVML does not say."""
        busiest = self._busiest
        self._busiest = None if busiest is None else 0
        return busiest


def newcomers(sample: GpuSample, before: frozenset[int]) -> frozenset[int]:
    """Return the processes that have come since, and are none of this container by their numbers."""
    return frozenset(pid for pid in sample.processes if pid not in before and not processes.start_ticks(pid))


def held_mib(sample: GpuSample, pids: frozenset[int]) -> int | None:
    """Return what processes hold of a GPU; None: NVML does not say."""
    each = zip(sample.processes, sample.process_mib, strict=True)
    held = [mib for pid, mib in each if pid in pids and mib is not None]
    return sum(held) if held else None
