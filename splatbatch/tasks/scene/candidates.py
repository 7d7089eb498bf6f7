"""Finds the partition of a batch, and the patches that can be merged: up to date, with a consistent hold-out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from splatbatch.config import Offset
from splatbatch.errors import ConfigError, SceneError
from splatbatch.output.records.result import Result, UsedPhotographs
from splatbatch.scene.partition.record import AGAIN, Core, Partition, partition_of
from splatbatch.scene.patches import list_names
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.shared_decisions.holdout import (
    assumptions,
    conflicting_holdout,
    describe_holdout_change,
    photographs_of,
)
from splatbatch.tasks.status import PatchStatus, read_status
from splatbatch.tasks.task import Task, of_patches
from splatbatch.text import plural

FEW = 3
"""Most names of patches or photographs in a message; others are counted."""


def partition_for(batch: Batch) -> Partition:
    """Return the partition by which the patches of a batch were cut.

    Raises:
        SceneError: there is no partition, it cannot be read, or the batch has patches that it does not list.
        ConfigError: the batch is a sweep, or a list of scenes.
        LaterFormatError: a later version of splatbatch wrote partition.json.
    """
    config = batch.config
    if config.variants:
        message = f"sweep: {len(config.variants)} variants, but a scene takes one splat per patch"
        raise ConfigError(message, "Use a YAML without a sweep.")
    if config.scene.scenes:
        hint = "Name the patches of one scene as scene.patches; `splatbatch publish --as ply` writes splats one by one."
        raise ConfigError("scene.scenes: these scenes are separate and cannot be merged", hint)
    partition = partition_of(config.scene.patches)
    if partition is None:
        hint = "Cut the scene first: splatbatch split --source sparse/0 --images images --out DIR."
        message = "no partition.json: splatbatch split did not make these patches, and their borders are unknown"
        raise SceneError(f"{config.scene.patches}: {message}", hint)
    strangers = [task.name for task in of_patches(batch.every) if not partition.core(task.name)]
    if strangers:
        hint = f"Move folders that are no patch of this scene, or split it again: {AGAIN}"
        raise SceneError(f"{partition.path}: patches: does not list {list_names(strangers, FEW)}", hint)
    return partition


def offset_of(batch: Batch, partition: Partition) -> Offset:
    """Return the offset of a batch: that of its shared decisions, else that of the partition."""
    return (batch.shared.frame or partition).offset


def check_scene(partition: Partition) -> None:
    """Check that the scene has no photographs that its partition does not list.

    A partition that lists no training photographs passes, as earlier versions wrote it.

    Raises:
        SceneError: the scene has unlisted photographs, on which no patch was trained; or its model cannot be read.
    """
    from splatbatch.scene.colmap.reconstruction import read_images

    known = partition.test | partition.contiguous | partition.train
    names = {image.name for image in read_images(partition.source)}
    if partition.train and (new := sorted(names - known)):
        said = f"{plural(len(new), 'new photograph')} ({list_names(new, FEW)})"
        hint = f"{AGAIN} Patches that do not change are not trained again."
        raise SceneError(f"{partition.path}: since the split, the scene {partition.source} has changed: {said}", hint)


@dataclass(frozen=True)
class MergeCandidate:
    """A patch of a partition, or the backdrop, with the reason if it cannot be merged.

    `task` is None if the batch has no such patch; `result` is None if the patch has no splat, or no readable
    result.json.
    """

    name: str
    core: Core | None
    """Core of the patch; None: this is the backdrop."""
    task: Task | None = None
    result: Result | None = None
    lacking: str = ""
    """Reason why the candidate cannot be merged; empty if it can."""
    warnings: tuple[str, ...] = ()
    """Warnings of the candidate's training, and of later attempts; empty: none, or no up-to-date splat."""
    photographs: UsedPhotographs | None = None
    """Photographs that the splat was trained on, and held-out ones; None: no up-to-date splat, or no record of them."""


def merge_candidates(batch: Batch, partition: Partition) -> tuple[tuple[MergeCandidate, ...], tuple[str, ...]]:
    """Return all patches of a partition, in its order, then the backdrop; and warnings on the scene as a whole.

    Patches count as up to date by the same rules as in `plan` and `status`. Patches with a contradicting hold-out
    cannot be merged.

    Raises:
        SceneError: the shared decisions have changed, and a split was interrupted or partition.json is broken.
        LaterFormatError: a later version of splatbatch wrote a record that is read.
    """
    standing = batch.whole().standing("content")
    statuses = {one.patch: one for one in read_status(batch.output, standing.tasks, None, standing)}
    cores = {core.name: core for core in partition.cores}
    behind = [name for name, task in standing.tasks.items() if task.patch.is_whole]
    found = [
        _candidate(MergeCandidate(name, cores.get(name), task, standing.state(name).result), statuses[name])
        if (task := standing.tasks.get(name))
        else MergeCandidate(name, cores.get(name), lacking=f"no such patch in {batch.config.scene.patches}")
        for name in (*cores, *behind)
    ]
    # a photograph held out in one patch and trained on in another is no test; the manifests show which ones
    known = {one.name: one.photographs for one in found if one.photographs and one.core and not one.lacking}
    odd = {
        name: f"{why}: `splatbatch retry {name}` trains it again" for name, why in conflicting_holdout(known).items()
    }
    agreeing = {one.name: one for one in found if one.name in known.keys() - odd.keys()}
    today = describe_holdout_change((one.task, known[name]) for name, one in agreeing.items() if one.task)
    warnings = filter(None, (today, assumptions({name: known[name] for name in agreeing})))
    return tuple(replace(one, lacking=one.lacking or odd.get(one.name, "")) for one in found), tuple(warnings)


def _candidate(one: MergeCandidate, status: PatchStatus) -> MergeCandidate:
    """Return a candidate with its warnings and photographs, or with the reason why it cannot be merged."""
    if status.state == "trained" and one.result is not None and one.task is not None:
        try:
            photographs = photographs_of(one.task, one.result)
        except SceneError as error:  # of a version that did not record it
            return replace(one, lacking=f"its hold-out is not recorded: {error.message}")
        return replace(one, warnings=status.warnings, photographs=photographs)
    words = {"waiting": "not trained yet", "running": "is being trained", "refused": f"refused: {status.advice}"}
    return replace(one, lacking=words.get(status.state, status.why))
