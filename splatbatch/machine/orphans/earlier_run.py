"""Attempts of an earlier parent that still run. They are stopped: their settings may no longer be ours."""

from __future__ import annotations

import time
from collections.abc import Callable

from splatbatch.errors import SplatbatchError
from splatbatch.machine.protocol import Executor
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.events import OrphansStopped
from splatbatch.store.layout import OutputFolder, PatchFolder
from splatbatch.store.ledger import Ledger
from splatbatch.store.results import batch_name

PATIENCE_S = 10.0
ROUND_S = 0.1


def stop_orphans(
    executor: Executor, output: OutputFolder, ledger: Ledger, grace_s: float, beat: Callable[[], None]
) -> None:
    """Stop what still runs of a batch, by SIGKILL what does not listen, and wait until it has ended.

    Raises:
        SplatbatchError: something does not end.
    """
    batch, unended = batch_name(output), _unended(output)
    orphans = executor.find(batch, unended)
    if not orphans:
        return
    ledger.write(OrphansStopped(tuple(sorted(orphans))))
    for end, patience_s in ((executor.cancel, grace_s + PATIENCE_S), (executor.kill, PATIENCE_S)):
        give_up_at = time.monotonic() + patience_s
        while orphans and time.monotonic() < give_up_at:
            end(orphans)
            beat()
            time.sleep(ROUND_S)
            orphans = executor.find(batch, unended)
    if orphans:
        raise SplatbatchError(
            f"attempts of an earlier run do not end, not even by SIGKILL: {', '.join(sorted(orphans))}",
            "They wait for a device: a disk, a share or a GPU driver. When it answers, or after a restart, run again.",
        )


def _unended(output: OutputFolder) -> list[AttemptFolder]:
    """Return the attempts of all patches that were started and have not told their end."""
    patches = (PatchFolder(path) for path in (output.path / "patches").glob("*"))
    return [one for patch in patches for one in patch.attempts() if one.start.exists() and not one.has_ended()]
