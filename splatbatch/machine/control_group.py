"""A control group (cgroup v2) from which no process of an attempt can escape."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from splatbatch import processes
from splatbatch.output.records.attempt import Start

PREFIX = "splatbatch-"
"""Begin of the name of every group that splatbatch makes."""
_ROUNDS = 100
_ROUND_S = 0.005


def make(ticks: int) -> Path | None:
    """Make an empty group below that of this process; return its absolute path.

    None without cgroup v2, without cgroup.kill (Linux before 5.14), or without the right to write. Empty groups of dead
    supervisors are removed first.

    Args:
        ticks: start of this process in clock ticks since boot; with its pid it makes the group's name unique.
    """
    own = next(iter(processes.control_groups().get("", ())), None)
    if own is None or not os.access(own / "cgroup.procs", os.W_OK):
        return None
    for left in own.glob(f"{PREFIX}[0-9]*-[0-9]*"):
        if not processes.living(left.name.removeprefix(PREFIX).replace("-", ":")):
            with suppress(OSError):  # it holds a process
                left.rmdir()
    group = own / f"{PREFIX}{os.getpid()}-{ticks}"
    with suppress(OSError):
        group.mkdir()
        if (group / "cgroup.kill").exists():  # since Linux 5.14
            return group
        group.rmdir()
    return None


def enter(group: Path | None) -> None:
    """Move this process and its future children into a group; None: do nothing.

    Errors are ignored, since the function is called between fork and exec.
    """
    if group is not None:
        with suppress(OSError):
            (group / "cgroup.procs").write_text("0")


def members(group: Path | None) -> list[int]:
    """Return the pids in a group; empty if `group` is None, is gone, cannot be read or holds no process."""
    pids = map(int, processes.kernel_file(f"{group}/cgroup.procs").split()) if group else ()
    return [pid for pid in pids if pid > 0]  # 0 is one that has no number here, and would stand for all of us


def end(group: Path | None) -> None:
    """Kill all processes in a group, also those forked meanwhile, and remove the group; None: do nothing.

    Processes that hang in the kernel are waited for only half a second; then the group stays. No error is raised.
    """
    if group is None:
        return None
    for _ in range(_ROUNDS):
        with suppress(OSError):
            (group / "cgroup.kill").write_text("1")
        try:
            return group.rmdir()
        except FileNotFoundError:
            return None
        except OSError:  # what was killed is not gone yet
            time.sleep(_ROUND_S)
    return None


def of_supervisor(start: Start) -> Path | None:
    """Return the group recorded in start.json; None if none is recorded.

    None, too, if the group is gone or was not made by this supervisor, so that no other is killed by mistake.
    """
    group = Path(start.group or "")
    return group if group.name == f"{PREFIX}{start.pid}-{start.ticks}" and group.is_dir() else None
