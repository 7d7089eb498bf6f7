"""Which patches a scene can be merged from: those that are trained and fresh, in one frame, with one hold-out."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from splatbatch.config import Offset
from splatbatch.errors import ConfigError
from splatbatch.plain_text import spell_place
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
class Standing:
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


def look(batch: Batch, partition: Partition) -> tuple[tuple[Standing, ...], tuple[str, ...]]:
    """Return how all that a scene is merged from stands, in the order of the partition, and what is odd about it all.

    Whether a patch is trained and fresh is what plan and status say of it.
    """
    tasks = {task.name: task for task in batch.every}
    statuses = {
        one.patch: one for one in read_status(batch.output, list(tasks), standing=batch.whole().standing("content"))
    }
    found = [_standing(batch, core.name, core, tasks, statuses) for core in partition.cores]
    found += [_standing(batch, name, None, tasks, statuses) for name, task in tasks.items() if task.patch.is_backdrop]
    found = _in_one_frame(found, batch.frame.offset if batch.frame else partition.offset)
    return _with_one_holdout(found, partition)


def _standing(
    batch: Batch, name: str, core: Core | None, tasks: Mapping[str, Task], statuses: Mapping[str, PatchStatus]
) -> Standing:
    if name not in tasks:
        return Standing(name, core, lacking=f"no such patch in {batch.config.scene.patches}")
    status = statuses[name]
    lacking = "" if status.state == "trained" else _in_words(status)
    result = batch.output.patch(name).read_result()
    warnings = status.warnings if status.state == "trained" else ()
    return Standing(name, core, tasks[name], result, lacking or ("" if result else "not trained yet"), warnings)


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


def _in_one_frame(found: Sequence[Standing], offset: Offset) -> list[Standing]:
    """Return how patches stand, those that lie in another frame than the batch as lacking."""
    return [
        replace(one, lacking=f"lies in another frame: offset {spell_place(one.result.trained_from.offset)}, not {here}")
        if one.result and not one.lacking and one.result.trained_from.offset != offset
        else one
        for here in [spell_place(offset)]
        for one in found
    ]


def _with_one_holdout(found: Sequence[Standing], partition: Partition) -> tuple[tuple[Standing, ...], tuple[str, ...]]:
    """Return how patches stand, those with another hold-out than the scene's as lacking, or a warning.

    A photograph that is test in one patch and trained on in another flatters every figure of the scene. Where all
    patches agree on another hold-out (none, for a last training on everything) that is somebody's choice.
    """
    splits = {
        one.name: _split(one.task, one.result)
        for one in found
        if one.task and one.result and one.core and not one.lacking
    }
    odd = {name: why for name, split in splits.items() if (why := _why_other(*split, partition))}
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


def _why_other(test: frozenset[str], train: frozenset[str], partition: Partition) -> str:
    """Say in what a hold-out differs from the scene's; empty if it does not."""
    if leaked := sorted(train & (partition.test | partition.contiguous)):
        return f"its hold-out is another: {spell(leaked, FEW)} {_is(leaked)} held out by {partition.path.name}"
    if missed := sorted(test - partition.test - partition.contiguous):
        return f"its hold-out is another: {spell(missed, FEW)} {_is(missed)} none by {partition.path.name}"
    return ""


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else f"({len(names)}) are"
