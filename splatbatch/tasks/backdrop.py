"""Adds borders and the backdrop to the patches of a cut scene.

The backdrop is a task of its own: the whole scene, trained first with few Gaussians, and drawn behind the patches.
Patches wait for the backdrop; if its training fails, they train without it. Photographs added after the split do not
change it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from splatbatch.config import Config
from splatbatch.config.recipe import PatchOverrides, Training
from splatbatch.config.trainers.programs import OUR_TRAINER
from splatbatch.errors import SceneError
from splatbatch.output.folders import BACKDROP
from splatbatch.output.layout import OutputFolder
from splatbatch.scene.partition.files import find_partition
from splatbatch.scene.patches import Patch, model_folder

if TYPE_CHECKING:
    from splatbatch.scene.partition.record import Partition

SHARE_OF_CAP = 3
"""Divisor from the cap of Gaussians of a patch to that of the backdrop, which every patch holds in memory."""
SHARE_OF_STEPS, FEWEST_STEPS = 4, 2_000
"""Divisor from the steps of a patch to those of the backdrop, and the fewest steps of the backdrop.

A patch with fewer than `FEWEST_STEPS` gives the backdrop as many steps as it has itself.
"""


def as_cut(config: Config, patches: tuple[Patch, ...], output: OutputFolder) -> tuple[Config, tuple[Patch, ...]]:
    """Return config and patches for training; those of a cut scene get their borders, and the backdrop as first patch.

    Patches that the partition does not list stay as they are. Without a partition, and for a list of scenes, config and
    patches are returned unchanged.

    Raises:
        SceneError: the partition is broken, a split was interrupted, or a patch has the name of the backdrop.
        LaterFormatError: a later version of splatbatch wrote partition.json.
        PermissionError: a folder of the scene may not be entered.
    """
    for patch in patches:  # its results, or those of a scene of a list, would lie under that name
        if patch.name == BACKDROP:
            folder = patch.sparse.parent.parent if patch.sparse.name.isdecimal() else patch.sparse.parent
            message = f"{folder}: the name {BACKDROP} is reserved for the background of the whole scene"
            raise SceneError(message, "Rename the folder, for example to p0, or move it.")
    scene = config.scene
    path = None if scene.scenes or model_folder(scene.patches) else find_partition(scene.patches)
    if path is None:
        return config, patches
    from splatbatch.scene.partition.border import border_of
    from splatbatch.scene.partition.record import read_partition  # reads arrays, which other batches have no use for

    partition, behind = read_partition(path), output.patch(BACKDROP).path
    bordered = [  # those that the partition does not know stay as they are
        replace(patch, border=border, behind=behind) if (border := border_of(partition, patch.name)) else patch
        for patch in patches
    ]
    return _with_backdrop(config, len(partition.cores)), (_whole(partition, patches), *bordered)


def _with_backdrop(config: Config, num_cores: int) -> Config:
    """Return the config with default settings for the backdrop; settings for it in the YAML take precedence."""
    own, training = config.patches.get(BACKDROP, PatchOverrides()), config.training
    steps = min(training.max_steps, max(FEWEST_STEPS, training.max_steps // SHARE_OF_STEPS))
    low_cap: int | str = (
        f"{float(training.cap_max[:-1]) / (SHARE_OF_CAP * num_cores):.4f}x"  # of the points of all patches
        if isinstance(training.cap_max, str) and training.cap_max != "auto"
        else max(1, training.cap() // SHARE_OF_CAP)
    )
    coarse = {"trainer": OUR_TRAINER, "max_steps": steps, "cap_max": low_cap}
    overrides = own.model_copy(update={"training": Training.model_validate(coarse | own.model_dump()["training"])})
    return config.model_copy(update={"patches": {**config.patches, BACKDROP: overrides}})


def _whole(partition: Partition, patches: tuple[Patch, ...]) -> Patch:
    """Return the whole scene as a patch, for the backdrop; its photographs are those of the patches."""
    images, masks = ({getattr(patch, name) for patch in patches} for name in ("images", "masks"))
    sparse = partition.source
    beside = (sparse.parent.parent if sparse.name.isdecimal() else sparse.parent) / "images"
    return Patch(
        BACKDROP,
        sparse,
        images.pop() if len(images) == 1 else beside,
        masks=masks.pop() if len(masks) == 1 else None,
        partition=partition.path,
        is_whole=True,
    )
