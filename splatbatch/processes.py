"""Linux processes: find all descendants, end them, let children die with their parent, and ask what memory is left.

On other systems requests to the kernel (prctl) do nothing, and functions that list /proc raise FileNotFoundError.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from functools import cache
from pathlib import Path

MARKER = "SPLATBATCH_ATTEMPT"
"""Environment variable with the key of the attempt, set in all its processes, to find them if the supervisor dies."""
MOST_FILES = 65_536
"""Number of open files that `raise_file_limit` requests."""

_GROUP_FILES = {  # limit, use, and prefix in memory.stat of numbers that count groups below
    "": ("memory.max", "memory.current", ""),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
}
"""Files about the memory of a control group, by the key of `control_groups`."""

# linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_ROUNDS = 100
_ROUND_S = 0.005
"""Rounds of `end_all`, and the pause between two, s. A process not dead after all rounds waits for a device."""


@cache
def num_cores() -> int:
    """Return how many CPU cores this process may use, at least 1: those of its affinity, or less by a quota.

    Quotas of its control groups count, as a container has; a part of a core counts as a core. Asked once per process.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    groups = control_groups()
    told = (
        kernel_file(f"{one}/cpu.max")
        or kernel_file(f"{one}/cpu.cfs_quota_us") + kernel_file(f"{one}/cpu.cfs_period_us")
        for key in {"", "cpu"} & groups.keys()
        for one in groups[key]
    )
    quotas = filter(None, (re.match(r"(\d+)\s+(\d+)", one) for one in told))  # "max" or -1: no quota
    return min([cores, *(math.ceil(int(quota[1]) / int(quota[2])) for quota in quotas)])


def die_with_parent(sig: int, parent: int) -> None:
    """Let the kernel send the signal `sig` to this process when its parent ends (prctl(2)).

    This stays in force across exec.

    To be called in a child between fork and exec. The handler of `sig` is reset, since one inherited from the parent
    could swallow the signal. The child exits at once, with code 1, if its parent is dead already. The thread that
    forked counts as the parent.

    Args:
        sig: the number of the signal.
        parent: the pid of the parent.
    """
    if sig != signal.SIGKILL:
        signal.signal(sig, signal.SIG_DFL)
    _prctl(_PR_SET_PDEATHSIG, sig)
    if os.getppid() != parent:  # it died before the kernel knew of our wish
        os._exit(1)


def redirect_to_null(*descriptors: int) -> None:
    """Redirect file descriptors of this process, given by number, to /dev/null.

    Raises:
        OSError: /dev/null cannot be opened, or a number is no valid descriptor.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for one in descriptors:
        os.dup2(nowhere, one)
    os.close(nowhere)


def adopt_orphans() -> None:
    """Make this process a subreaper, see prctl(2): the parent of every orphaned descendant, in whatever session."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def raise_file_limit() -> None:
    """Allow this process up to `MOST_FILES` open files, as far as the hard limit permits; errors are ignored.

    The workers of data loaders and the cached photographs need thousands.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def descendants(pid: int) -> list[int]:
    """Return the pids of all processes below `pid`, parents before children, without `pid` itself."""
    return _below(pid, _stats())


def kernel_file(path: str) -> str:
    """Return the text of a kernel file, as in /proc; "" if it does not exist or may not be read."""
    try:
        with open(path, errors="surrogateescape", newline="") as file:  # noqa: PTH123 - of thousands of processes
            return file.read()
    except OSError:
        return ""


def available_mib() -> int:
    """Return the host memory in MiB that the machine or, if less, a control group of this process has left.

    Unknown: `sys.maxsize`.
    """
    found = re.search(r"MemAvailable: *(\d+)", kernel_file("/proc/meminfo"))
    left = (
        _left_in(group, *_GROUP_FILES[key])
        for key, groups in control_groups().items()
        if key in _GROUP_FILES
        for group in groups
    )
    return min([int(found[1]) // 1024 if found else sys.maxsize, *left])


def _left_in(group: Path, limit: str, used: str, prefix: str) -> int:
    try:
        left = int((group / limit).read_text()) - int((group / used).read_text())
    except (OSError, ValueError):  # no limit: no such file, or "max"
        return sys.maxsize
    # the kernel drops cached files before a limit is met; MemAvailable counts them as free, too
    cached = re.findall(rf"^{prefix}(?:in)?active_file (\d+)", kernel_file(f"{group}/memory.stat"), re.MULTILINE)
    return (left + sum(map(int, cached))) >> 20


def control_groups() -> dict[str, list[Path]]:
    """Return the folders of the control groups that hold this process: its own first, the topmost mounted here last.

    The key is "" for groups of cgroup v2, and the controller for those of v1, as "memory". It is missing without such
    groups, or if those of this process are not mounted here.
    """
    lines = (line.split(":", 2) for line in kernel_file("/proc/self/cgroup").splitlines())
    names = {one: Path(name) for _, controllers, name in lines for one in controllers.split(",")}
    found = dict[str, list[Path]]()
    for line in kernel_file("/proc/self/mountinfo").splitlines():
        # proc(5): root of the mount (the fourth), mount point, …, "-", type, source, options
        _, _, _, root, top, *_, kind, _, options = line.split()
        for key in {"cgroup2": [""], "cgroup": options.split(",")}.get(kind, ()):
            if key in names and names[key].is_relative_to(root):
                own = top / names.pop(key).relative_to(root)
                found[key] = [own, *(one for one in own.parents if one.is_relative_to(top))]
    return found


def stat_of(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat after the command's name, see proc(5).

    An empty list if it cannot be read.
    """
    # that name, in parentheses, may itself hold blanks and parentheses: fields start after the last one
    return kernel_file(f"/proc/{pid}/stat").rpartition(")")[2].split()


def with_descendants(pids: Iterable[int]) -> list[int]:
    """Return the pids of processes, each followed by those of all its descendants."""
    return [one for pid in pids for one in (pid, *descendants(pid))]


def descendants_at_a_glance(pid: int) -> list[int]:
    """Return the pids of the descendants of `pid`, in no order, without reading all of /proc.

    A process that is forked meanwhile may be missing. Where the kernel lists no children, all of /proc is read.
    """
    found, front = [], [pid]
    while front:
        one, born = front.pop(), list[int]()
        try:
            for task in Path(f"/proc/{one}/task").iterdir():
                born += map(int, kernel_file(f"{task}/children").split())
        except OSError:
            continue
        found += born
        front += born
    return found if Path("/proc/thread-self/children").exists() else descendants(pid)


MOST_NAMES = 4096
"""Most processes that a heartbeat of a supervisor lists."""


def names_below(pid: int) -> list[str]:
    """Return the descendants of a process, each named by `name_of`; at most `MOST_NAMES`.

    Those that have ended are left out. A heartbeat lists them.
    """
    return [f"{one}:{ticks}" for one in descendants_at_a_glance(pid)[:MOST_NAMES] if (ticks := start_ticks(one))]


def cpu_s(pid: int) -> float:
    """Return the CPU time in seconds of a process, its descendants, and their reaped children; 0: no such process."""
    stats = _stats()
    # proc(5): utime, stime, cutime, cstime
    ticks = (sum(map(int, stats[one][11:15])) for one in (pid, *_below(pid, stats)) if one in stats)
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def _stats() -> dict[int, list[str]]:
    """Return `stat_of` of every process, by pid."""
    pids = map(int, filter(str.isdecimal, os.listdir("/proc")))  # noqa: PTH208
    return {pid: fields for pid in pids if (fields := stat_of(pid))}


def _below(pid: int, stats: dict[int, list[str]]) -> list[int]:
    children = defaultdict[int, list[int]](list)
    for child, fields in stats.items():
        children[int(fields[1])].append(child)
    found, front = [], [pid]
    while front:
        born = children.get(front.pop(), [])
        found += born
        front += born
    return found


def with_marker(prefix: str) -> dict[int, str]:
    """Return the value of the environment variable `MARKER` of other processes, by pid, where it starts with `prefix`.

    Processes whose environment may not be read (of other users) are left out.
    """
    found = {int(pid): _marker(int(pid)) for pid in filter(str.isdecimal, os.listdir("/proc"))}  # noqa: PTH208
    return {pid: key for pid, key in found.items() if key.startswith(prefix) and pid != os.getpid()}


def end_marked(key: str) -> None:
    """Kill all other processes whose `MARKER` is `key`, also those forked meanwhile.

    Used for an attempt whose supervisor was killed.
    """
    end_all(lambda: [pid for pid, its_key in with_marker(key).items() if its_key == key])


def end_all(find: Callable[[], list[int]], *, are_ours: bool = False) -> None:
    """Kill the processes that `find` returns by SIGKILL, and ask again, until it returns none.

    It is asked at most 100 times, with pauses of 5 ms.

    A process that waits for a device may survive. Processes that are gone, or of other users, are passed over.

    Args:
        find: returns the pids still to be killed.
        are_ours: the processes are children of this one, and are reaped.
    """
    for _ in range(_ROUNDS):
        if not (left := find()):
            return
        send(signal.SIGKILL, left)
        for pid in left if are_ours else ():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_ROUND_S)


def send(sig: int, pids: list[int]) -> None:
    """Send the signal `sig` to processes by pid; those that are gone, or of other users, are passed over."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, sig)


def send_group(sig: int, leader: int) -> None:
    """Send the signal `sig` to the process group of `leader`.

    A group that is gone, or of another user, is passed over.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, sig)


def end_orphans(spared: int) -> None:
    """Kill all descendants of this process but the child with the pid `spared`, also those forked meanwhile.

    The child itself is neither killed nor reaped: its exit code belongs to the code that started it.
    """
    with contextlib.suppress(ChildProcessError):  # no child, so no process below has adopted orphans
        if sys.platform == "linux":
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        end_all(lambda: [pid for pid in descendants(os.getpid()) if pid != spared], are_ours=True)


def end_adopted(key: str, spared: Container[int], since_ticks: int) -> None:
    """Kill the orphans of a dead supervisor that this process has adopted as their subreaper, and their descendants.

    Does nothing as process 1 of a container, which adopts the orphans of all programs.

    Args:
        key: the key of the attempt; children with the marker of another attempt are spared.
        spared: pids of children that this process started itself.
        since_ticks: start of the supervisor in clock ticks since boot; older children cannot come from it.
    """
    me, session = os.getpid(), os.getsid(0)

    def adopted() -> list[int]:
        return with_descendants(
            pid
            for pid, fields in _stats().items()
            # all that a supervisor starts is in another session
            if int(fields[1]) == me and int(fields[3]) != session and int(fields[19]) >= since_ticks
            if pid not in spared and _marker(pid) in ("", key)
        )

    if me != 1:  # the first process of a container inherits everybody's orphans
        end_all(adopted, are_ours=True)


def _marker(pid: int) -> str:
    variables = kernel_file(f"/proc/{pid}/environ").split("\0")
    return next((one.partition("=")[2] for one in variables if one.startswith(f"{MARKER}=")), "")


def boot_id() -> str:
    """Return the id of this boot of this machine, which no other boot or machine has; "" if the kernel gives none."""
    return kernel_file("/proc/sys/kernel/random/boot_id").strip()


def pid_space() -> str:
    """Return the PID namespace of this process, as "pid:[4026531836]"; each container has its own. "": unknown."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def start_ticks(pid: int) -> int:
    """Return the start of a process in clock ticks since boot; 0 if the process has ended.

    Pid and start together name a process: no other process of this boot ever has both.
    """
    return _of_living(pid, 19)


def name_of(pid: int) -> str:
    """Return a unique name of a process, its pid and start in clock ticks since boot: "4711:123456".

    No other process of this boot ever has the same name. If the process has ended, its start is 0.
    """
    return f"{pid}:{start_ticks(pid)}"


def living(name: str) -> int:
    """Return the pid of the process with a name of `name_of`; 0 if it has ended, or the text is no such name."""
    pid, _, ticks = name.partition(":")
    is_there = pid.isdecimal() and ticks.isdecimal() and start_ticks(int(pid)) == int(ticks) != 0
    return int(pid) if is_there else 0


def parent(pid: int) -> int:
    """Return the pid of a process's parent; 0 if the process has ended, or its parent is not visible from here."""
    return _of_living(pid, 1)


def _of_living(pid: int, field: int) -> int:
    """Return a field of `stat_of` as a number; 0 if the process has ended, even if it is not reaped yet."""
    fields = stat_of(pid)
    return 0 if not fields or fields[0] == "Z" else int(fields[field])


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
