"""What an output folder keeps: the accepted splat of each patch and one before it; of other attempts, their records.

Logs, figures and settings of every attempt stay. Checkpoints and pictures of attempts that another has superseded
go; so do their splats, but for the latest and the one that was measured best.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from splatbatch.files import MOST_FILES, TooManyFiles, find_files
from splatbatch.store import best
from splatbatch.store.attempt_folder import AttemptFolder
from splatbatch.store.folders import PatchFolder
from splatbatch.store.records.result import Result


@dataclass(frozen=True)
class Superfluous:
    """A file or folder that may go."""

    path: Path
    what: str
    num_bytes: int
    """What its removal gives back: nothing for a second name of a file that stays."""


def superfluous(folder: PatchFolder) -> Iterator[Superfluous]:
    """Yield what may go of a patch; nothing where no product says which attempt is accepted."""
    product = folder.read_result() or Result()
    accepted = product.attempt
    attempts = [attempt for attempt in folder.attempts() if attempt.has_ended()]
    if accepted not in {attempt.path.name for attempt in attempts}:
        return
    others = [attempt for attempt in attempts if attempt.path.name != accepted]
    splats = [attempt for attempt in others if attempt.splat.exists()]
    for attempt in others:
        yield from _kind(attempt.checkpoint, "checkpoint")
        yield from _kind(attempt.views.parent, "pictures")
    better = better_attempt(folder, product)
    for attempt in splats[:-1]:
        if attempt.path.name != better:
            yield from splat_files(attempt)


def better_attempt(folder: PatchFolder, product: Result) -> str:
    """Return the attempt whose splat was measured best of those better than the product; empty if there is none."""
    left = [attempt for attempt in folder.attempts() if attempt.path.name != product.attempt and attempt.splat.exists()]
    better = best.better_than(product, filter(None, (attempt.read_result() for attempt in left)))
    return better.attempt if better else ""


def splat_files(attempt: AttemptFolder) -> Iterator[Superfluous]:
    """Yield every name that an attempt has for its splat: a program of its own left it under another one."""
    yield from _kind(attempt.splat, "splat")
    try:
        number = attempt.splat.stat().st_ino
        below = find_files(attempt.output, ["**/*"], MOST_FILES)
        names = [path for path in below if path.stat().st_ino == number]
    except (OSError, TooManyFiles):
        return
    yield from (Superfluous(path, "splat, as its trainer named it", 0) for path in names)


def remove(found: Iterable[Superfluous]) -> None:
    """Remove files and folders; what is gone already is no error."""
    for one in found:
        if one.path.is_dir():
            shutil.rmtree(one.path, ignore_errors=True)
        else:
            one.path.unlink(missing_ok=True)


def _kind(path: Path, what: str) -> Iterator[Superfluous]:
    if path.exists():
        files = [path, *path.rglob("*")] if path.is_dir() else [path]
        yield Superfluous(path, what, sum(one.lstat().st_size for one in files if one.is_file()))
