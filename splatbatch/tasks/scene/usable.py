"""Which patches a scene can be merged from: those that are trained and fresh, with one hold-out."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from splatbatch.errors import ConfigError
from splatbatch.scene.holdout import choose_holdout
from splatbatch.scene.partition.record import Core, Partition
from splatbatch.scene.patches import spell
from splatbatch.store.records.result import Result
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.status import PatchStatus, read_status
from splatbatch.tasks.task import Task

FEW = 3
"""Names that a message holds."""


@dataclass(frozen=True)
class Candidate:
    """A patch of a partition, or the backdrop, as a merge finds it."""

    name: str
    core: Core | None
    """None: it is the backdrop."""
    task: Task | None = None
    result: Result | None = None
    lacking: str = ""
    """Why it cannot be merged; empty if it can."""
    warnings: tuple[str, ...] = ()
    """Of its training, and of attempts since."""


Found = tuple[tuple[Candidate, ...], tuple[str, ...]]
"""How all stands, and what is odd about it as a whole."""


def look(batch: Batch, partition: Partition) -> Found:
    """Return how all that a scene is merged from stands, in the order of the partition, and what is odd about it all.

    Whether a patch is trained and fresh is what plan and status say of it: one in another frame is not.
    """
    standing = batch.whole().standing("content")
    statuses = {
        one.patch: one for one in read_status(batch.output, [task.name for task in batch.every], None, standing)
    }
    cores = {core.name: core for core in partition.cores}
    tasks = {task.name: task for task in batch.every}
    backdrops = [name for name, task in tasks.items() if task.patch.is_backdrop]
    found = [
        _candidate(Candidate(name, cores.get(name), task, standing.evidence(name).result), statuses[name])
        if (task := tasks.get(name))
        else Candidate(name, cores.get(name), lacking=f"no such patch in {batch.config.scene.patches}")
        for name in (*cores, *backdrops)
    ]
    return _with_one_holdout(found, partition)


def _candidate(one: Candidate, status: PatchStatus) -> Candidate:
    """Return a candidate with what its status says of it."""
    if status.state == "trained" and one.result is not None:
        return replace(one, warnings=status.warnings)
    return replace(one, lacking=_in_words(status))


def _in_words(status: PatchStatus) -> str:
    """Return why a patch has no splat that counts."""
    match status.state:
        case "waiting":
            return "not trained yet"
        case "running":
            return "is being trained"
        case "refused":
            return f"refused: {status.advice}"
        case state:
            return f"{state}: {status.cause}" if status.cause else state


def _with_one_holdout(
    found: Sequence[Candidate], partition: Partition
) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
    """Return how patches stand, those with another hold-out than the scene's as lacking, or a warning.

    A photograph that is test in one patch and trained on in another flatters every figure of the scene. Where all
    patches agree on another hold-out (none, for a last training on everything) that is somebody's choice.
    """
    splits = {
        one.name: _split(one.task, one.result)
        for one in found
        if one.task and one.result and one.core and not one.lacking
    }
    # held out is what the partition spreads over the scene or, where somebody wants that, its one block, or both
    block = partition.contiguous
    choices = [partition.test, *([block, partition.test | block] if block else [])]
    odd = min(
        ({name: why for name, one in splits.items() if (why := _why_other(*one, test))} for test in choices), key=len
    )
    tested: set[str] = set().union(*(test for test, _ in splits.values()))
    trained: set[str] = set().union(*(train for _, train in splits.values()))
    if odd and len(odd) == len(splits) and not tested & trained:
        warning = f"all patches have another hold-out than {partition.path.name}: {next(iter(odd.values()))}"
        return tuple(found), (warning,)
    return tuple(replace(one, lacking=one.lacking or odd.get(one.name, "")) for one in found), ()


def _split(task: Task, result: Result) -> tuple[frozenset[str], frozenset[str]]:
    """Return the photographs of a patch that were held out when it was trained, and the others."""
    from splatbatch.scene.colmap.reconstruction import read_images

    setup = task.today
    with contextlib.suppress(ConfigError):  # changes of another version: its fingerprint is as today all the same
        setup = setup.changed(result.changes)
        setup.recipe  # noqa: B018 - for its error
    names = frozenset(image.name for image in read_images(task.patch.sparse))
    test = frozenset(choose_holdout(task.patch, setup.recipe.evaluation))
    return test, names - test


def _why_other(test: frozenset[str], train: frozenset[str], wanted: frozenset[str]) -> str:
    """Say in what a hold-out differs from the one that is wanted of all patches; empty if it does not."""
    if leaked := sorted(train & wanted):
        return f"its hold-out is another: of the scene's it was trained on {spell(leaked, FEW)}"
    if missed := sorted(test - wanted):
        return f"its hold-out is another: of no other patch it holds out {spell(missed, FEW)}"
    return ""
