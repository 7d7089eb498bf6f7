"""Processes as Linux sees them: a death that reaches the child, and every descendant found and ended.

On other systems the Linux-only parts do nothing and the process group alone is ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from pathlib import Path

MARKER = "SPLATBATCH_ATTEMPT"
"""Environment variable of every process of an attempt: its key, so that what outlives a killed supervisor is found."""
MOST_FILES = 65_536

# linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_ROUNDS = 100
_ROUND_S = 0.005
"""A process dies some moments after its SIGKILL; what takes longer than a hundred rounds waits for a device."""


def die_with_parent(sig: int, parent: int) -> None:
    """Have the kernel send us `sig` when the thread that started us ends (prctl(2)); kept across exec.

    Called between fork and exec. There the parent's handlers are still ours: one of them could swallow the signal.
    """
    if sig != signal.SIGKILL:
        signal.signal(sig, signal.SIG_DFL)
    _prctl(_PR_SET_PDEATHSIG, sig)
    if os.getppid() != parent:  # it died before the kernel knew of our wish
        os._exit(1)


def redirect_to_null(*descriptors: int) -> None:
    """Lead descriptors of ours to /dev/null."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for one in descriptors:
        os.dup2(nowhere, one)
    os.close(nowhere)


def adopt_orphans() -> None:
    """Become the parent of every orphaned descendant, so that a grandchild in its own session cannot escape."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def raise_file_limit() -> None:
    """Allow as many open files as the hard limit does: loader workers and cached photographs need thousands."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def descendants(pid: int) -> list[int]:
    """Return the processes below `pid`, parents before children."""
    return _below(pid, _stats())


def kernel_file(path: str) -> str:
    """Return what a file of the kernel's says, as in /proc; empty where there is none, or it is not for us."""
    try:
        with open(path, errors="surrogateescape", newline="") as file:  # noqa: PTH123 - of thousands of processes
            return file.read()
    except OSError:
        return ""


def stat_of(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat, counted behind the command's name; none of a process that is gone."""
    # that name, in parentheses, may itself hold blanks and parentheses: fields start after the last one
    return kernel_file(f"/proc/{pid}/stat").rpartition(")")[2].split()


def with_descendants(pids: Iterable[int]) -> list[int]:
    """Return processes with all that is below them."""
    return [one for pid in pids for one in (pid, *descendants(pid))]


def descendants_at_a_glance(pid: int) -> list[int]:
    """Return the processes below `pid` without a look at all others; one that is born just now may be missing."""
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


def names_below(pid: int) -> list[str]:
    """Return every process below one, as number and start, for the heartbeat."""
    below = descendants_at_a_glance(pid)[:MOST_NAMES]
    return [f"{one}:{ticks}" for one in below if (ticks := start_ticks(one))]


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process, all below it, and those they have waited for, have used."""
    stats = _stats()
    # proc(5): utime, stime, cutime, cstime
    ticks = (sum(map(int, stats[one][11:15])) for one in (pid, *_below(pid, stats)) if one in stats)
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def _stats() -> dict[int, list[str]]:
    """Return `stat_of` every process."""
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


def with_marker(prefix: str, marker: str = MARKER) -> dict[int, str]:
    """Return the other processes whose `marker` starts with `prefix`, each with it, as far as we may look."""
    found = {int(pid): _marker(int(pid), marker) for pid in filter(str.isdecimal, os.listdir("/proc"))}  # noqa: PTH208
    return {pid: key for pid, key in found.items() if key.startswith(prefix) and pid != os.getpid()}


def end_marked(key: str) -> None:
    """End by SIGKILL all that is left of an attempt whose supervisor was killed, also what is born meanwhile."""
    end_all(lambda: [pid for pid, its_key in with_marker(key).items() if its_key == key])


def end_all(find: Callable[[], list[int]], *, are_ours: bool = False) -> None:
    """End by SIGKILL what is found, as long as anything is; children of ours leave no zombies."""
    for _ in range(_ROUNDS):
        if not (left := find()):
            return
        send(signal.SIGKILL, left)
        for pid in left if are_ours else ():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_ROUND_S)


def send(sig: int, pids: list[int]) -> None:
    """Signal processes; those that are gone already are left alone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, sig)


def send_group(sig: int, leader: int) -> None:
    """Signal a process group, as far as it still exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, sig)


def end_orphans(spared: int) -> None:
    """End by SIGKILL what our child `spared` has left behind, also what is born meanwhile.

    The child itself is not waited for: its exit code belongs to the process that started it.
    """
    with contextlib.suppress(ChildProcessError):  # no child, so no process below has adopted orphans
        if sys.platform == "linux":
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        end_all(lambda: [pid for pid in descendants(os.getpid()) if pid != spared], are_ours=True)


def end_adopted(key: str, spared: Container[int], since_ticks: int) -> None:
    """End by SIGKILL what an attempt whose supervisor died has left to us, whose subreaper we are.

    Args:
        key: of the attempt; children that bear the marker of another are left alone.
        spared: children that we have started ourselves.
        since_ticks: when the supervisor started: what is older cannot be of it.
    """
    if os.getpid() != 1:  # the first process of a container inherits everybody's orphans
        end_all(
            lambda: with_descendants(pid for pid in _adopted(spared, since_ticks) if _marker(pid) in ("", key)),
            are_ours=True,
        )


def _adopted(spared: Container[int], since_ticks: int) -> list[int]:
    """Return our children that are in another session than we, as everything that a supervisor starts is."""
    me, session = os.getpid(), os.getsid(0)
    return [
        pid
        for pid, fields in _stats().items()
        if int(fields[1]) == me and int(fields[3]) != session and int(fields[19]) >= since_ticks and pid not in spared
    ]


def _marker(pid: int, marker: str = MARKER) -> str:
    variables = kernel_file(f"/proc/{pid}/environ").split("\0")
    return next((one.partition("=")[2] for one in variables if one.startswith(f"{marker}=")), "")


def boot_id() -> str:
    """Return what tells this boot of this machine from any other; empty where the kernel does not say."""
    return kernel_file("/proc/sys/kernel/random/boot_id").strip()


def pid_space() -> str:
    """Return which space our process numbers are of: containers of one host may each have their own; empty: unknown."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def start_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since boot: with the pid it names a process for ever; 0 if gone."""
    return _of_living(pid, 19)


def name_of(pid: int) -> str:
    """Return the name of a process, its number and start: "4711:123456". No other of this boot ever has it."""
    return f"{pid}:{start_ticks(pid)}"


def living(name: str) -> int:
    """Return the number of a process by its name; 0 if it has ended, or that is no name."""
    pid, _, ticks = name.partition(":")
    is_there = pid.isdecimal() and ticks.isdecimal() and start_ticks(int(pid)) == int(ticks) != 0
    return int(pid) if is_there else 0


def parent(pid: int) -> int:
    """Return the number of a process's parent; 0 if it is gone."""
    return _of_living(pid, 1)


def _of_living(pid: int, field: int) -> int:
    """Return a field of `stat_of` a process; 0 of one that has ended."""
    fields = stat_of(pid)
    return 0 if not fields or fields[0] == "Z" else int(fields[field])


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
