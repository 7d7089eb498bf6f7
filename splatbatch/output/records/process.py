"""Which process wrote a record: its number alone may be another's by now, on another machine or in a container."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Self

from splatbatch.output.records.record import TypedRecord
from splatbatch.processes import boot_id, pid_space, start_ticks


@dataclass(frozen=True)
class ProcessIdentity(TypedRecord):
    """A process, told from every other that has ever been on any machine."""

    host: str = ""
    space: str = ""
    """Of its number: see `processes.pid_space`; empty: an earlier version wrote it."""
    pid: int | None = None
    boot_id: str = ""
    ticks: int | None = None
    """When it began, in the kernel's count: tells it from another of the same number."""

    @classmethod
    def of_self(cls) -> Self:
        """Return which process we are."""
        me = os.getpid()
        return cls(socket.gethostname(), pid_space(), me, boot_id(), start_ticks(me))

    def identity(self) -> ProcessIdentity:
        """Return it without what else a record says of the process."""
        return ProcessIdentity(self.host, self.space, self.pid, self.boot_id, self.ticks)

    @property
    def is_self(self) -> bool:
        """Whether it is we; earlier versions named no host."""
        me = self.of_self()
        return (self.pid, self.boot_id, self.ticks) == (me.pid, me.boot_id, me.ticks)

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is one of another host, or of a container whose processes have numbers of their own."""
        return self.host != socket.gethostname() or (self.boot_id == boot_id() and self.space != pid_space())

    @property
    def is_alive_here(self) -> bool | None:
        """Whether it runs, on this host and boot; None of one that cannot be asked about from here."""
        here = (socket.gethostname(), boot_id(), pid_space())
        if (self.host, self.boot_id, self.space) != here or self.pid is None:
            return None
        return start_ticks(self.pid) == self.ticks != 0
