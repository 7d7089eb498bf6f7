"""What superseded attempts of a batch keep on disk, removed while nobody trains."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from splatbatch.monitor.telling import tell
from splatbatch.scheduler.work.holding import held_alone
from splatbatch.store import retention
from splatbatch.tasks.batch import Batch


@dataclass(frozen=True)
class Removed:
    """A file that `clean` removes, or would."""

    path: str
    what: str
    bytes: int


@dataclass(frozen=True)
class Cleaned:
    """`clean --json`; `removed` is false where it was only asked what would be."""

    removed: bool
    bytes: int
    files: tuple[Removed, ...]


def clean(batch: Batch, *, dry_run: bool) -> Cleaned:
    """Remove what the retention rule does not keep, unless it is only asked what that is; return that.

    Raises:
        OutputError: a run, or a worker, holds the output folder.
    """
    with nullcontext() if dry_run else held_alone(batch.output, batch.terms, tell):
        found = [one for name in batch.names for one in retention.superfluous(batch.output.patch(name))]
        if not dry_run:
            retention.remove(found)
    files = tuple(Removed(str(one.path), one.what, one.num_bytes) for one in found)
    return Cleaned(not dry_run, sum(one.bytes for one in files), files)
