"""Finds and ends the processes of an attempt whose supervisor was killed.

The processes are found by their control group, and by the pids and starts in the supervisor's last heartbeat
(heartbeat.json). So a process that empties its environment and opens its own session is found, too. Without a control
group, and with the `train` process dead, too, a process forked after that heartbeat is not found.
"""

from __future__ import annotations

import socket

from splatbatch import processes
from splatbatch.machine import control_group
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.records.attempt import Start


def has_died(attempt: AttemptFolder) -> bool:
    """Return whether an attempt's supervisor ran on this machine and has ended; False if that is unknown.

    False, too, on another machine or in another container.
    """
    start = attempt.read_start()
    if start.ticks is None or start.host != socket.gethostname() or start.space not in ("", processes.pid_space()):
        return False
    return start.boot_id != processes.boot_id() or processes.start_ticks(start.pid or 0) != start.ticks


def find(folder: AttemptFolder) -> list[int]:
    """Return the pids of an attempt's running processes, from its start.json and heartbeat.json, sorted.

    Empty if none runs, or if the files name another boot or container.
    """
    start = folder.read_start()
    if not _may_be_ours(start):
        return []
    of_last_beat = filter(None, map(processes.living, folder.read_heartbeat().below))
    return sorted({*control_group.members(control_group.of_supervisor(start)), *of_last_beat})


def end(folder: AttemptFolder) -> None:
    """Kill the processes of an attempt without a supervisor and all their descendants, and remove its control group.

    Nothing happens to processes of another boot or container.
    """
    processes.end_all(lambda: processes.with_descendants(find(folder)))
    start = folder.read_start()
    control_group.end(control_group.of_supervisor(start) if _may_be_ours(start) else None)


def _may_be_ours(start: Start) -> bool:
    """Return whether the pids in start.json are of this boot, and of the PID namespace of this process."""
    return start.boot_id == processes.boot_id() and start.space in ("", processes.pid_space())
