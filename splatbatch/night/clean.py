"""What superseded attempts of a batch keep on disk, removed while nobody trains."""

from __future__ import annotations

from splatbatch.monitor.telling import tell
from splatbatch.scheduler.work.holding import held_alone
from splatbatch.store import retention
from splatbatch.store.retention import Superfluous
from splatbatch.tasks.batch import Batch


def clean(batch: Batch, *, dry_run: bool) -> list[Superfluous]:
    """Remove what the retention rule does not keep, unless it is only asked what that is; return that.

    Raises:
        OutputError: a run, or a worker, holds the output folder.
    """
    if dry_run:
        return _superfluous(batch)
    with held_alone(batch.output, batch.terms, tell):
        found = _superfluous(batch)
        retention.remove(found)
    return found


def _superfluous(batch: Batch) -> list[Superfluous]:
    return [one for name in batch.names for one in retention.superfluous(batch.output.patch(name))]
