"""Removing files of attempts that another attempt has replaced, while no training runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from splatbatch.monitor.messages import print_err
from splatbatch.output import results, retention
from splatbatch.output.folders import PatchFolder
from splatbatch.output.records.result import Result
from splatbatch.scheduler.work.exclusive_output import lock_output_alone
from splatbatch.tasks.batch import Batch


@dataclass(frozen=True)
class RemovedFile:
    """A file or folder that `clean` removes, or would remove without --dry-run."""

    path: str
    what: str
    """What it is: "checkpoint", "pictures" or "splat", perhaps with more words."""
    bytes: int
    """Bytes on disk that the removal frees; 0 for a second name (hard link) of a splat file."""


@dataclass(frozen=True)
class CleanOutput:
    """Output of `clean --json`: the files and their size in bytes; `removed` is false for a dry run."""

    removed: bool
    bytes: int
    files: tuple[RemovedFile, ...]


def clean(batch: Batch, *, dry_run: bool) -> CleanOutput:
    """Remove checkpoints, pictures and splats of attempts that another one has replaced; return the removed files.

    With `dry_run` nothing is removed. Logs, figures and settings stay. So do up to three splats of each patch: the
    accepted one, the latest other one, and the best one among those measured better than the accepted one.
    If no attempt of a patch is accepted, all its files stay.

    Raises:
        OutputError: a run, or a worker, holds the output folder (not with `dry_run`); or a later version wrote a
            record of a patch.
        OSError: a file cannot be removed.
    """
    is_locked = not dry_run and batch.output.path.exists()
    with lock_output_alone(batch, print_err) if is_locked else nullcontext():
        found = tuple(one for name in batch.names for one in _superfluous(batch.output.patch(name)))
        if not dry_run:
            results.remove(Path(one.path) for one in found)
    return CleanOutput(not dry_run, sum(one.bytes for one in found), found)


def _superfluous(folder: PatchFolder) -> Iterator[RemovedFile]:
    """Yield the removable files of a patch; none if no manifest says which attempt is accepted."""
    product = folder.read_result() or Result()
    attempts = [attempt for attempt in folder.attempts() if attempt.has_exited()]
    if product.attempt not in {attempt.path.name for attempt in attempts}:
        return
    others = [attempt for attempt in attempts if attempt.path.name != product.attempt]
    for attempt in others:
        yield from _files(attempt.checkpoint, "checkpoint")
        yield from _files(attempt.views.parent, "pictures")
    left = [attempt for attempt in others if attempt.splat.exists()]
    read = [one for attempt in left if (one := attempt.read_result())]
    alike = [one for one in read if retention.compare(one, product, retention.other_files(one, product))[0] is not None]
    kept = retention.choose_splats([product, *alike], product).kept
    for attempt in left[:-1]:
        if attempt.path.name not in kept:
            splat, *names = results.names_of_splat(attempt)
            yield from _files(splat, "splat")
            yield from (RemovedFile(str(path), "splat, under the name that its trainer gave", 0) for path in names)


def _files(path: Path, what: str) -> Iterator[RemovedFile]:
    if path.exists():
        files = [path, *path.rglob("*")] if path.is_dir() else [path]
        yield RemovedFile(str(path), what, sum(one.lstat().st_size for one in files if one.is_file()))
