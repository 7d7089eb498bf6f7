"""What an attempt whose supervisor was killed has left running, and its end.

A process may empty its environment and open a session of its own; it is found all the same by its control group, or by
the number and start that the supervisor wrote down with its last beat. Only what was born between that beat and the
supervisor's death, where there is no control group and no parent of the batch is left either, is never found.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path

from splatbatch import processes
from splatbatch.machine.orphans import control_group
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.records.attempt import Start

MOST_NAMES = 4096


def names_below(pid: int) -> list[str]:
    """Return every process below one, as number and start, for the heartbeat."""
    below = processes.descendants_at_a_glance(pid)[:MOST_NAMES]
    return [f"{one}:{ticks}" for one in below if (ticks := processes.start_ticks(one))]


def has_died(attempt: AttemptFolder) -> bool:
    """Return whether an attempt's supervisor was a process of this machine that is no more; False if unknown."""
    start = attempt.read_start()
    if start.ticks is None or start.host != socket.gethostname() or start.space not in ("", processes.pid_space()):
        return False
    return start.boot_id != processes.boot_id() or processes.start_ticks(start.pid or 0) != start.ticks


def find(folder: AttemptFolder) -> list[int]:
    """Return the processes of an attempt that its files name and that still run."""
    if not _may_be_ours(start := folder.read_start()):
        return []
    group = control_group.of_supervisor(start)
    return sorted({*(control_group.members(group) if group else ()), *_recorded(folder)})


def end(folder: AttemptFolder) -> None:
    """End by SIGKILL what is left of an attempt without a supervisor, and all below it."""
    processes.end_all(lambda: processes.with_descendants(find(folder)))
    control_group.end(_group(folder.read_start()))


def _may_be_ours(start: Start) -> bool:
    """Return whether the numbers in start.json are of this boot and, as containers of a host differ, of this space."""
    return start.boot_id == processes.boot_id() and start.space in ("", processes.pid_space())


def _group(start: Start) -> Path | None:
    return control_group.of_supervisor(start) if _may_be_ours(start) else None


def _recorded(folder: AttemptFolder) -> Iterable[int]:
    """Yield the processes of the last beat; a number that another process has by now is not ours."""
    for name in folder.read_heartbeat().below:
        pid, _, ticks = name.partition(":")
        if pid.isdecimal() and ticks.isdecimal() and processes.start_ticks(int(pid)) == int(ticks) != 0:
            yield int(pid)
