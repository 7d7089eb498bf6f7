"""A control group (cgroup v2) for what an attempt starts, where we may make one: nothing born in it escapes."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from splatbatch import processes
from splatbatch.output.records.attempt import Start

PREFIX = "splatbatch-"
_ROUNDS = 100
_ROUND_S = 0.005


def make(ticks: int) -> Path | None:
    """Return a new, empty group below our own; None where there is no cgroup v2, or it is not ours to divide.

    Args:
        ticks: when this process started; with its number it names the group for ever.
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
    """Move this process into a group, with all that it will start; called between fork and exec, so nothing fails."""
    if group is not None:
        with suppress(OSError):
            (group / "cgroup.procs").write_text("0")


def members(group: Path | None) -> list[int]:
    """Return the processes in a group; none if there is none, or it is gone."""
    if group is None:
        return []
    with suppress(OSError, ValueError):  # 0 is one that has no number here, and would stand for all of us
        return [int(line) for line in (group / "cgroup.procs").read_text().split() if int(line) > 0]
    return []


def end(group: Path | None) -> None:
    """End by SIGKILL all that is in a group, also what is born meanwhile, and remove it."""
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
    """Return the group that a supervisor says it made, if its name agrees: strangers must not be ended."""
    group = Path(start.group or "")
    return group if group.name == f"{PREFIX}{start.pid}-{start.ticks}" and group.is_dir() else None


def _sweep(own: Path) -> None:
    """Remove the empty groups of supervisors that were killed; the kernel keeps those that still hold a process."""
    for group in own.glob(f"{PREFIX}*-*"):
        pid, _, ticks = group.name.removeprefix(PREFIX).partition("-")
        if pid.isdecimal() and str(processes.start_ticks(int(pid))) != ticks:
            with suppress(OSError):
                group.rmdir()


def _own() -> Path | None:
    """Return the folder of the group that we are in."""
    mounts = [line.split() for line in processes.kernel_file("/proc/self/mountinfo").splitlines()]
    ours = [line for line in processes.kernel_file("/proc/self/cgroup").splitlines() if line.startswith("0::")]
    # proc(5): root of the mount, mount point, …, "-", type
    places = [Path(fields[4]) for fields in mounts if fields[fields.index("-") + 1] == "cgroup2" and fields[3] == "/"]
    return places[0] / ours[0].removeprefix("0::").lstrip("/") if places and ours else None
