"""Attempts of an earlier parent that still run. They are stopped: their settings may no longer be ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from splatbatch.errors import SplatbatchError
from splatbatch.machine.protocol import Executor, Handle, Key
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.events import OrphansStopped
from splatbatch.store.folders import PatchFolder
from splatbatch.store.layout import OutputFolder
from splatbatch.store.ledger import Ledger
from splatbatch.store.results import batch_name

PATIENCE_S = 10.0
ROUND_S = 0.1


@dataclass(frozen=True)
class Orphans:
    """What may still run although whoever started it is gone."""

    output: OutputFolder
    task: str = ""
    """Of which task; empty: of the whole batch, on which nobody else works."""

    @property
    def prefix(self) -> str:
        """Return what the keys of these attempts begin with, the last dot left out."""
        batch = batch_name(self.output)
        return f"{batch}.{self.task}" if self.task else batch

    def find(self, executor: Executor, unended: Sequence[AttemptFolder]) -> Mapping[Key, Handle]:
        """Return what runs of it: a task whose name another begins with has only its own."""
        found = executor.find(self.prefix, unended)
        others = f"{self.prefix}." if self.task else "\0"
        is_other = {key: key.startswith(others) and key.rpartition(".a")[0] != self.prefix for key in found}
        return {key: handle for key, handle in found.items() if not is_other[key]}

    def unended(self) -> list[AttemptFolder]:
        """Return the attempts that were started and have not told their end."""
        places = [self.output.patch(self.task).path] if self.task else (self.output.path / "patches").glob("*")
        patches = (PatchFolder(path) for path in places)
        return [one for patch in patches for one in patch.attempts() if one.start.exists() and not one.has_ended()]


def stop_orphans(
    orphans: Orphans, executor: Executor, ledger: Ledger, grace_s: float, beat: Callable[[], None]
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
