"""`cancel`: the end of a batch that runs, or of some of its patches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from splatbatch.cli.commands.output import print_line
from splatbatch.run.cancel import cancel as cancel_batch
from splatbatch.tasks.status import summary


def cancel(config: Path | None, wanted: Sequence[str]) -> None:
    """End what runs, wait until it has ended, and say how it stands then."""
    done = cancel_batch(config, wanted)
    if not done.was_running:
        return print_line(f"{done.output.path}: no batch is running, nothing to cancel")
    for one in done.statuses if done.patches else ():
        print_line(f"{one.patch}: {one.why}")
    print_line(f"cancelled. {'Given patches' if done.patches else 'Batch'}: {summary(done.statuses)}")
