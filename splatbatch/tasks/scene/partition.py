"""The partition that a batch's patches were cut by: which one it is, and whether it is still that of its scene."""

from __future__ import annotations

from splatbatch.config import Offset
from splatbatch.errors import ConfigError, SceneError
from splatbatch.scene.partition.record import AGAIN, Partition, partition_of
from splatbatch.scene.patches import list_names
from splatbatch.tasks.batch import Batch
from splatbatch.tasks.task import of_patches
from splatbatch.text import plural

FEW = 3
"""Names that a message holds."""


def partition_for(batch: Batch) -> Partition:
    """Return the partition that a batch's patches were cut by.

    Raises:
        SceneError: there is none, it cannot be read, or there are patches that it does not know.
        ConfigError: the batch is a sweep, or a list of scenes.
    """
    config = batch.config
    if config.variants:
        message = f"sweep: {len(config.variants)} variants, but a scene takes one splat per patch"
        raise ConfigError(message, "Write a YAML without a sweep for it.")
    if config.scene.scenes:
        hint = "Name the patches of one scene as scene.patches; `splatbatch publish --as ply` writes splats one by one."
        raise ConfigError("scene.scenes: these scenes are separate and cannot be merged", hint)
    partition = partition_of(config.scene.patches)
    if partition is None:
        hint = "Cut the scene first: splatbatch split --source sparse/0 --images images."
        raise SceneError(f"{config.scene.patches}: no partition.json, which holds the borders of the patches", hint)
    strangers = [task.name for task in of_patches(batch.every) if not partition.core(task.name)]
    if strangers:
        hint = f"Move folders that are no patch of this scene, or split it again: {AGAIN}"
        raise SceneError(f"{partition.path}: patches: does not list {list_names(strangers, FEW)}", hint)
    return partition


def offset_of(batch: Batch, partition: Partition) -> Offset:
    """Return what is taken off the coordinates of a batch's patches: as it is settled, else as they were cut."""
    frame = batch.shared.frame
    return frame.offset if frame else partition.offset


def check_scene(partition: Partition) -> None:
    """See that the scene has no photographs that its partition does not know.

    Raises:
        SceneError: it has; which of them would be test is open, and no patch has seen them.
    """
    from splatbatch.scene.colmap.reconstruction import read_images

    known = partition.test | partition.contiguous | partition.train
    names = {image.name for image in read_images(partition.source)}
    if partition.train and (new := sorted(names - known)):
        said = f"{plural(len(new), 'photograph')} new ({list_names(new, FEW)})"
        hint = f"{AGAIN} Patches that do not change are not trained again."
        raise SceneError(f"{partition.path}: its scene has changed, {partition.source}: {said}", hint)
