"""What the kernel said and did while an attempt ran, as far as it concerns the attempt: its GPU, its processes.

Only root may read /dev/kmsg on most machines; elsewhere the kernel says nothing. The victims of its OOM killer are
counted by the control group.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

KMSG = "/dev/kmsg"
MOST_LINES = 20
RECORD_BYTES = 8192  # the kernel's own limit of a record

# "NVRM: Xid (PCI:0000:3b:00): 79, ..." and "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed": the GPU is named by its bus
_DRIVER = re.compile(r"\bNVRM\b|\bXid\b")
_BUS = re.compile(r"\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\b", re.IGNORECASE)
# "oom-kill:...,task=python,pid=4242,uid=0" and "Out of memory: Killed process 4242 (python) total-vm:..."
_VICTIM = re.compile(r"oom-kill:.*\bpid=(\d+)|\bKilled process (\d+)")


_COUNTERS = (  # cgroup v2, then v1
    Path("/sys/fs/cgroup/memory.events"),
    Path("/sys/fs/cgroup/memory/memory.oom_control"),
)


class KernelLog:
    """Collects the lines about one GPU and a changing set of processes, from now on."""

    def __init__(self, gpu_bus: str, path: str = KMSG) -> None:
        self.lines: list[str] = []
        self._gpu_bus = gpu_bus
        self._descriptor = -1
        with suppress(OSError):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._descriptor, 0, os.SEEK_END)

    def look(self, pids: Container[int]) -> None:
        """Read what the kernel has said since; `pids` are the processes of the attempt."""
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
        """Close the kernel's log."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def message_of(record: bytes) -> str:
    """Return the text of a record "6,1234,567890,-;text", without the key=value lines below it."""
    return record.decode("utf-8", errors="replace").partition(";")[2].partition("\n")[0]


def concerns(line: str, gpu_bus: str, pids: Container[int]) -> bool:
    """Return whether a line is about this GPU, the driver as a whole, or the end of one of our processes."""
    if victim := _VICTIM.search(line):
        return int(victim[1] or victim[2]) in pids
    if not _DRIVER.search(line):
        return False
    named = _BUS.search(line)
    return named is None or (bool(gpu_bus) and named[0].lower().endswith(gpu_bus))


class OomWatch:
    """Compares the `oom_kill` counters of now with those at the start."""

    def __init__(self) -> None:
        self._before = _oom_kills()

    def struck(self) -> bool:
        """Return True if the counter has moved since."""
        return _oom_kills() > self._before


def _oom_kills() -> int:
    return sum(_counter(path) for path in (*_own_groups(), *_COUNTERS))


def _own_groups() -> list[Path]:
    """Return the event files of the control groups that this process is in (cgroup v2)."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    names = [line.split(":", 2)[2].lstrip("/") for line in lines if line.startswith("0::")]
    return [Path("/sys/fs/cgroup") / name / "memory.events" for name in names if name]


def _counter(path: Path) -> int:
    try:
        pairs = (line.split() for line in path.read_text().splitlines())
        return sum(int(value) for key, value in pairs if key == "oom_kill")
    except (OSError, ValueError):
        return 0
