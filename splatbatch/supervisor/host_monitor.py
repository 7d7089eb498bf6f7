"""Evidence about an attempt that its own log does not hold: GPU, kernel log, OOM killer, free disk and shared memory.

Of the kernel log only lines about the attempt's GPU and processes are kept. On most machines only root may read
/dev/kmsg; others get no lines. Kills by the OOM killer are counted by the control group.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Container
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from splatbatch import processes
from splatbatch.files import SHARED_MEMORY, append_line, free_mib
from splatbatch.machine import gpu
from splatbatch.outcome import Exit
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.attempt import ExitFacts, GpuSample

KMSG = "/dev/kmsg"
"""File of the kernel log."""
MOST_LINES = 20
"""Most lines of the kernel log that are kept of an attempt."""
RECORD_BYTES = 8192  # the kernel's own limit of a record
# "NVRM: Xid (PCI:0000:3b:00): 79, ..." and "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed": the GPU is named by its bus
_DRIVER = re.compile(r"\bNVRM\b|\bXid\b")
_BUS = re.compile(r"\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\b", re.IGNORECASE)
# "oom-kill:...,task=python,pid=4242,uid=0" and "Out of memory: Killed process 4242 (python) total-vm:..."
_VICTIM = re.compile(r"oom-kill:.*\bpid=(\d+)|\bKilled process (\d+)")
_OOM_KILLS = re.compile(r"^oom_kill (\d+)", re.MULTILINE)


class HostMonitor:
    """Watches the OOM killer, the kernel log, the disk and shared memory, from the start of an attempt to its end.

    The GPU is sampled by its `gpu`; what cannot be read is left out of the record of the end.
    """

    def __init__(self, folder: AttemptFolder, gpu_uuid: str | None) -> None:
        """Begin to watch an attempt on a GPU, named by its UUID; None: on the CPU."""
        self._folder = folder
        self._oom_kills_before = oom_kills()
        self._least: dict[Path, int] = {}
        self._pids: set[int] = set()
        self._watch(gpu_uuid)

    def begin(self, gpu_uuid: str | None) -> None:
        """Watch this GPU, and count the seconds anew: a standby, prepared while slots were busy, begins.

        Args:
            gpu_uuid: UUID of the GPU, perhaps another than planned; None: the CPU.
        """
        self._kernel.close()
        self._watch(gpu_uuid)

    def _watch(self, gpu_uuid: str | None) -> None:
        self.since = time.monotonic()
        self.gpu = GpuWatch(self._folder, gpu_uuid)
        self._kernel = KernelLog(gpu.bus(gpu_uuid) if gpu_uuid else "")

    def look(self, _: float = 0.0) -> None:
        """Read the kernel log and the free space; called every two seconds, and once after the end of the process.

        The argument, the time, is not used.
        """
        self._pids.update(processes.descendants_at_a_glance(os.getpid()))
        self._kernel.look(self._pids)
        for path in (self._folder.path, SHARED_MEMORY):
            if (free := free_mib(path)) is not None:
                self._least[path] = min(free, self._least.get(path, free))

    def facts(self, end: Exit, *, stood_by: bool) -> ExitFacts:
        """Return the record of the end with all that was seen; of free space the least, since it may be free again.

        Args:
            end: how the process ended.
            stood_by: whether the process was still a standby.
        """
        return ExitFacts(
            end,
            seconds=round(time.monotonic() - self.since, 3),
            ended_at=time.time(),
            out_of_memory=oom_kills() > self._oom_kills_before,
            kernel_lines=tuple(self._kernel.lines),
            disk_free_mib=self._least.get(self._folder.path),
            own_gpu_peak_mib=self.gpu.own_peak_mib,
            shm_free_mib=self._least.get(SHARED_MEMORY),
            stood_by=stood_by,
        )


class GpuWatch:
    """Samples a GPU into gpu.jsonl; does nothing for an attempt on the CPU.

    In a container NVML may report pids of the host, which mean nothing there. Then a process that has appeared since
    the first sample, and whose pid does not exist in the container, is taken for the attempt's. If several appear at
    once, or the process was there before the watch began, its memory is unknown.
    """

    def __init__(self, folder: AttemptFolder, uuid: str | None) -> None:
        """Prepare without a sample; `uuid` names the GPU, None: the attempt is on the CPU."""
        self._folder, self._uuid = folder, uuid
        self._before: frozenset[int] | None = None
        # who has opened its context ahead of its turn is there already: who comes now is another
        self._came: frozenset[int] | None = frozenset() if folder.ahead.exists() else None
        self._busiest: int | None = None
        self.own_peak_mib: int | None = None
        """Most GPU memory of the attempt's processes in one sample, in MiB; None: unknown, or there is no GPU."""

    def look(self, _: float = 0.0) -> None:
        """Append a sample to gpu.jsonl; the first must be taken before the process uses the GPU.

        The argument, the time, is not used.

        Raises:
            OSError: gpu.jsonl cannot be written.
        """
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
        come = frozenset(pid for pid in sample.processes if pid not in self._before and not processes.start_ticks(pid))
        if self._came is None and come:  # none of this container by their numbers
            self._came = come if len(come) == 1 else frozenset()
        return self._came or frozenset()

    def busiest_percent(self) -> int | None:
        """Return the highest utilisation since the last call, in percent.

        None: NVML does not say, or there is no GPU. 0 without a new sample.
        """
        busiest = self._busiest
        self._busiest = None if busiest is None else 0
        return busiest


def held_mib(sample: GpuSample, pids: frozenset[int]) -> int | None:
    """Return the GPU memory of processes in a sample, in MiB.

    None: NVML does not say, or none of them is on the GPU.
    """
    each = zip(sample.processes, sample.process_mib, strict=True)
    held = [mib for pid, mib in each if pid in pids and mib is not None]
    return sum(held) if held else None


class KernelLog:
    """Collects new lines of the kernel log about one GPU and a set of processes, at most `MOST_LINES`.

    Without the right to read the log there are no lines, and no error.
    """

    def __init__(self, gpu_bus: str, path: str = KMSG) -> None:
        """Open the log at `path`, at its end; `gpu_bus` is explained at `concerns`."""
        self.lines: list[str] = []
        self._gpu_bus = gpu_bus
        self._descriptor = -1
        with suppress(OSError):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._descriptor, 0, os.SEEK_END)

    def look(self, pids: Container[int]) -> None:
        """Add the lines written since the last call; `pids` are the processes of the attempt."""
        while self._descriptor >= 0 and len(self.lines) < MOST_LINES:
            try:
                record = os.read(self._descriptor, RECORD_BYTES)
            except BrokenPipeError:  # records were overwritten before we came: the next read goes on behind the gap
                continue
            except OSError:
                return
            line = message_of(record)
            if concerns(line, self._gpu_bus, pids):
                self.lines.append(line)

    def close(self) -> None:
        """Close the kernel log; the lines stay, and further looks add none."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def message_of(record: bytes) -> str:
    """Return the text of a kernel record "6,1234,567890,-;text", without the key=value lines below it.

    Empty if malformed.
    """
    return record.decode("utf-8", errors="replace").partition(";")[2].partition("\n")[0]


def concerns(line: str, gpu_bus: str, pids: Container[int]) -> bool:
    """Return whether a kernel line is about this GPU, the driver as a whole, or the OOM kill of one of `pids`.

    Args:
        line: text of the kernel log.
        gpu_bus: PCI address of the GPU, as "0000:3b:00"; empty: unknown, and no line that names a GPU counts.
        pids: processes of the attempt.
    """
    if victim := _VICTIM.search(line):
        return int(victim[1] or victim[2]) in pids
    if not _DRIVER.search(line):
        return False
    named = _BUS.search(line)
    return named is None or (bool(gpu_bus) and named[0].lower().endswith(gpu_bus))


def oom_kills() -> int:
    """Return the number of OOM kills in the control group of this process; 0 where the kernel counts none."""
    files = {"": "memory.events", "memory": "memory.oom_control"}
    groups = processes.control_groups()
    paths = (f"{groups[key][0]}/{files[key]}" for key in files.keys() & groups)
    return sum(int(number) for path in paths for number in _OOM_KILLS.findall(processes.kernel_file(path)))
