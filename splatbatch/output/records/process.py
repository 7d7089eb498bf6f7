"""The identity of a process that wrote a record; a process id alone is not unique over time, hosts and containers."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Self

from splatbatch.output.records.record import TypedRecord
from splatbatch.processes import boot_id, pid_space, start_ticks


@dataclass(frozen=True)
class ProcessIdentity(TypedRecord):
    """Identity of a process, unique among all processes of all machines and boots."""

    host: str = ""
    space: str = ""
    """PID namespace of the process, see `processes.pid_space`; empty: an earlier version wrote the record."""
    pid: int | None = None
    """Process id within `space`; None: unknown."""
    boot_id: str = ""
    """Id of the boot of the machine, see `processes.boot_id`; empty: unknown."""
    ticks: int | None = None
    """Start of the process in clock ticks since boot, which tells it from a later process with the same id; None:
    unknown."""

    @classmethod
    def of_self(cls) -> Self:
        """Return the identity of the calling process."""
        me = os.getpid()
        return cls(socket.gethostname(), pid_space(), me, boot_id(), start_ticks(me))

    def identity(self) -> ProcessIdentity:
        """Return the identity alone, without the other fields of a subclass."""
        return ProcessIdentity(self.host, self.space, self.pid, self.boot_id, self.ticks)

    @property
    def is_self(self) -> bool:
        """Whether this is the calling process; the host is not compared, since earlier versions recorded none."""
        me = self.of_self()
        return (self.pid, self.boot_id, self.ticks) == (me.pid, me.boot_id, me.ticks)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the process is of another host, or of another container, so that this process cannot check it.

        False for an earlier boot of this host; True without a host.
        """
        return self.host != socket.gethostname() or (self.boot_id == boot_id() and self.space != pid_space())

    @property
    def is_alive_here(self) -> bool | None:
        """Whether the process runs.

        None for a process of another host, boot or container, which cannot be checked from here, and for a record
        without a pid.
        """
        here = (socket.gethostname(), boot_id(), pid_space())
        if (self.host, self.boot_id, self.space) != here or self.pid is None:
            return None
        return start_ticks(self.pid) == self.ticks != 0
