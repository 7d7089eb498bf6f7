"""How much memory this machine, or the control group we are in, can still give."""

from __future__ import annotations

import sys
from pathlib import Path

from splatbatch.files import MIB

_MEMINFO = Path("/proc/meminfo")
_GROUPS = (  # limit and use: cgroup v2, then v1
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


def available_mib() -> int:
    """Return what a new process could take, in MiB; as good as endless where nobody says."""
    return min(_of_machine(), *(_of_group(limit, used) for limit, used in _GROUPS))


def _of_machine() -> int:
    try:
        fields = dict(line.split(":") for line in _MEMINFO.read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) // 1024
    except (OSError, ValueError, KeyError, IndexError):
        return sys.maxsize


def _of_group(limit: Path, used: Path) -> int:
    try:
        return (int(limit.read_text()) - int(used.read_text())) // MIB
    except (OSError, ValueError):  # no such group, or "max"
        return sys.maxsize
