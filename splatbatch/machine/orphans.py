"""What a killed run has left behind: its attempts and their processes, how these are found, and how they are ended.

A process may empty its environment and open a session of its own; it is found all the same by its control group, or by
the number and start that the supervisor wrote down with its last beat. Never found is only what was born between
that beat and the supervisor's death. That is where there is no control group and no parent of the batch is left.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from splatbatch import processes
from splatbatch.errors import SplatbatchError
from splatbatch.machine import control_group
from splatbatch.machine.protocol import AttemptExecutor, Handle, Key
from splatbatch.output.attempt_folder import AttemptFolder
from splatbatch.output.events import OrphansStopped
from splatbatch.output.folders import PatchFolder
from splatbatch.output.layout import OutputFolder
from splatbatch.output.ledger import Ledger
from splatbatch.output.records.attempt import Start
from splatbatch.output.results import batch_name

PATIENCE_S = 10.0
ROUND_S = 0.1


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


@dataclass(frozen=True)
class Orphans:
    """Attempts that may still run although the run that started them is gone."""

    output: OutputFolder
    task: str = ""
    """Of which task; empty: of the whole batch, which no other run trains."""

    @property
    def prefix(self) -> str:
        """Return what the keys of these attempts begin with, the last dot left out."""
        batch = batch_name(self.output)
        return f"{batch}.{self.task}" if self.task else batch

    def find(self, executor: AttemptExecutor, unended: Sequence[AttemptFolder]) -> Mapping[Key, Handle]:
        """Return what runs of it: a task whose name another begins with has only its own."""
        found = executor.find(self.prefix, unended)
        others = f"{self.prefix}." if self.task else "\0"
        is_other = {key: key.startswith(others) and key.rpartition(".a")[0] != self.prefix for key in found}
        return {key: handle for key, handle in found.items() if not is_other[key]}

    def unended(self) -> list[AttemptFolder]:
        """Return the attempts that were started and have not told their end."""
        places = [self.output.patch(self.task).path] if self.task else (self.output.path / "patches").glob("*")
        patches = (PatchFolder(path) for path in places)
        return [one for patch in patches for one in patch.attempts() if one.start.exists() and not one.has_exited()]


def stop_orphans(
    orphans: Orphans, executor: AttemptExecutor, ledger: Ledger, grace_s: float, beat: Callable[[], None]
) -> None:
    """Stop what still runs of a batch or a task, by SIGKILL what does not listen, and wait until it has ended.

    Raises:
        SplatbatchError: something does not end.
    """
    unended = orphans.unended()
    running = orphans.find(executor, unended)
    if not running:
        return
    ledger.write(OrphansStopped(tuple(sorted(running))))
    for end, patience_s in ((executor.cancel, grace_s + PATIENCE_S), (executor.kill, PATIENCE_S)):
        give_up_at = time.monotonic() + patience_s
        while running and time.monotonic() < give_up_at:
            end(running)
            beat()
            time.sleep(ROUND_S)
            running = orphans.find(executor, unended)
    if running:
        raise SplatbatchError(
            f"attempts of an earlier run do not end, not even by SIGKILL: {', '.join(sorted(running))}",
            "They wait for a device: a disk, a share or a GPU driver. When it answers, or after a restart, run again.",
        )
