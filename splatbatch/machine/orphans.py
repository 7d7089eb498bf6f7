"""What a killed supervisor has left behind of its attempt: how its processes are found, and how they are ended.

A process may empty its environment and open a session of its own; it is found all the same by its control group, or by
the number and start that the supervisor wrote down with its last beat. Never found is only what was born between
that beat and the supervisor's death. That is where there is no control group and no parent of the batch is left.
"""

from __future__ import annotations

import socket

from splatbatch import processes
from splatbatch.machine import control_group
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.attempt import Start


def has_died(attempt: AttemptFolder) -> bool:
    """Return whether an attempt's supervisor was a process of this machine that is no more; False if unknown."""
    start = attempt.read_start()
    if start.ticks is None or start.host != socket.gethostname() or start.space not in ("", processes.pid_space()):
        return False
    return start.boot_id != processes.boot_id() or processes.start_ticks(start.pid or 0) != start.ticks


def find(folder: AttemptFolder) -> list[int]:
    """Return the processes of an attempt that its files name and that still run."""
    start = folder.read_start()
    if not _may_be_ours(start):
        return []
    of_last_beat = filter(None, map(processes.living, folder.read_heartbeat().below))
    return sorted({*control_group.members(control_group.of_supervisor(start)), *of_last_beat})


def end(folder: AttemptFolder) -> None:
    """End by SIGKILL what is left of an attempt without a supervisor, and all below it."""
    processes.end_all(lambda: processes.with_descendants(find(folder)))
    start = folder.read_start()
    control_group.end(control_group.of_supervisor(start) if _may_be_ours(start) else None)


def _may_be_ours(start: Start) -> bool:
    """Return whether the numbers in start.json are of this boot and, as containers of a host differ, of this space."""
    return start.boot_id == processes.boot_id() and start.space in ("", processes.pid_space())
