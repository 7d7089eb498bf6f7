"""A control group (cgroup v2) for the processes of an attempt, if this user may make one: no process can escape."""

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
    own = _own()
    if own is None or not os.access(own / "cgroup.procs", os.W_OK):
        return None
    _sweep(own)
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
    if group is None:
        return []
    with suppress(OSError, ValueError):  # 0 is one that has no number here, and would stand for all of us
        return [int(line) for line in (group / "cgroup.procs").read_text().split() if int(line) > 0]
    return []


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


def _sweep(own: Path) -> None:
    """Remove the empty groups of dead supervisors; the kernel refuses to remove groups that hold a process."""
    for group in own.glob(f"{PREFIX}*-*"):
        pid, _, ticks = group.name.removeprefix(PREFIX).partition("-")
        if pid.isdecimal() and str(processes.start_ticks(int(pid))) != ticks:
            with suppress(OSError):
                group.rmdir()


def _own() -> Path | None:
    """Return the folder of the group of this process; None without cgroup v2."""
    mounts = [line.split() for line in processes.kernel_file("/proc/self/mountinfo").splitlines()]
    ours = [line for line in processes.kernel_file("/proc/self/cgroup").splitlines() if line.startswith("0::")]
    # proc(5): root of the mount, mount point, …, "-", type
    places = [Path(fields[4]) for fields in mounts if fields[fields.index("-") + 1] == "cgroup2" and fields[3] == "/"]
    return places[0] / ours[0].removeprefix("0::").lstrip("/") if places and ours else None
